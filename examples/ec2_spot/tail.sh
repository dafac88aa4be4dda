#!/bin/bash
# tail.sh INSTANCE: follow the log of the worker on a machine.
set -euo pipefail
aws ssm start-session --target "${1:?instance}" --document-name AWS-StartInteractiveCommand \
    --parameters 'command=["sudo journalctl -u pyes-worker -f"]'
