#!/bin/bash
# resize.sh N: as many machines from now on; 0 keeps the group and pays for none.
set -euo pipefail
cd "$(dirname "$0")"
count=${1:?number of machines}
source ./settings.sh

aws autoscaling set-desired-capacity --auto-scaling-group-name "$name" --desired-capacity "$count"
