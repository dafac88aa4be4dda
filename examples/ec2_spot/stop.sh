#!/bin/bash
# stop.sh: end all machines, and remove what start.sh has made.
set -euo pipefail
cd "$(dirname "$0")"
source ./settings.sh

aws autoscaling delete-auto-scaling-group --auto-scaling-group-name "$name" --force-delete
aws ec2 delete-launch-template --launch-template-name "$name"
