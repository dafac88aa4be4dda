#!/bin/bash
# notice.sh COMMAND...: runs a command as soon as this machine has the notice that it will be taken away, two minutes before.
set -euo pipefail
metadata=${EC2_METADATA:-http://169.254.169.254}/latest

while sleep "${EC2_INTERVAL:-5}"; do
    token=$(curl -sf -m 2 -X PUT -H "X-aws-ec2-metadata-token-ttl-seconds: 60" "$metadata/api/token") || continue
    # There is no such page (404) before the notice.
    if curl -sf -m 2 -H "X-aws-ec2-metadata-token: $token" "$metadata/meta-data/spot/instance-action"; then
        exec "$@"
    fi
done
