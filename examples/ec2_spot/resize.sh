#!/bin/bash
# resize.sh N: change the number of machines; with 0 the group stays, without machines.
set -euo pipefail
cd "$(dirname "$0")"
count=${1:?number of machines}
source ./settings.sh

aws autoscaling set-desired-capacity --auto-scaling-group-name "$name" --desired-capacity "$count"
