#!/bin/bash
# Run as root by each machine when it starts: become a node, and leave in time. start.sh replaces the names between @ signs.
set -euo pipefail
umask 077

run=/run/pyes
mkdir -p "$run"
aws ssm get-parameter --region "@REGION@" --name "@PARAMETER@" --with-decryption \
    --query Parameter.Value --output text > "$run/cluster.key.node"
chown -R nobody "$run"
systemd-run --unit pyes-worker --uid nobody --working-directory /opt/pyes --property Restart=always \
    --property RestartSec=10 --property TimeoutStopSec=110 \
    /opt/pyes/bin/pyes worker "@HEAD@" --key "$run/cluster.key.node"
base64 -d <<<"@NOTICE@" >"$run/notice.sh"
systemd-run --unit pyes-notice bash "$run/notice.sh" systemctl stop pyes-worker
