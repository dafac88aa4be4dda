#!/bin/bash
# stop.sh: terminate all machines, and remove the group and the launch template.
set -euo pipefail
cd "$(dirname "$0")"
source ./settings.sh

aws autoscaling delete-auto-scaling-group --auto-scaling-group-name "$name" --force-delete
aws ec2 delete-launch-template --launch-template-name "$name"
