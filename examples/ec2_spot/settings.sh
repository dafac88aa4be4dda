#!/bin/bash
# Settings of the other scripts. Fill them in; the region is that of AWS_REGION or `aws configure`.

name=pyes-nodes             # of the Auto Scaling group and the launch template
image=${PYES_IMAGE:-}       # machine image with pyes installed in /opt/pyes
subnets=${PYES_SUBNETS:-}   # with commas between them, in which the head is
security=${PYES_SECURITY:-} # security group that may reach the head's port
profile=${PYES_PROFILE:-}   # instance profile that may read the key's parameter
head=${PYES_HEAD:-}         # tcp://ADDRESS:PORT of the head
parameter=/pyes/cluster.key.node # name of the SecureString with the nodes' key
types="c7i.4xlarge c7a.4xlarge c6i.4xlarge c6a.4xlarge"

for each in image subnets security profile head; do
    if [ -z "${!each}" ]; then
        echo "set PYES_$(tr a-z A-Z <<< "$each"), or $each in settings.sh" >&2
        exit 2
    fi
done
