#!/bin/bash
# list.sh: list the machines, and the nodes of the head.
set -euo pipefail
key=$(realpath "${PYES_KEY:-cluster.key.node}") # of the folder that it is called in
cd "$(dirname "$0")"
source ./settings.sh

aws ec2 describe-instances --filters "Name=tag:aws:autoscaling:groupName,Values=$name" \
    "Name=instance-state-name,Values=pending,running" --output table --query \
    'Reservations[].Instances[].[InstanceId, InstanceType, PrivateIpAddress, State.Name, LaunchTime]'
pyes status "$head" --key "$key"
