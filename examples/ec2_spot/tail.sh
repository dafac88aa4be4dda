#!/bin/bash
# tail.sh INSTANCE: what the worker on a machine says, as it says it.
set -euo pipefail
aws ssm start-session --target "${1:?instance}" --document-name AWS-StartInteractiveCommand \
    --parameters 'command=["sudo journalctl -u pyes-worker -f"]'
