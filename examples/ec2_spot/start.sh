#!/bin/bash
# start.sh N: N spot machines that join the head.
set -euo pipefail
cd "$(dirname "$0")"
count=${1:?number of machines}
source ./settings.sh
region=${AWS_REGION:-$(aws configure get region)}

data=$(sed -e "s|@REGION@|$region|" -e "s|@PARAMETER@|$parameter|" -e "s|@HEAD@|$head|" \
    -e "s|@NOTICE@|$(base64 < notice.sh | tr -d '\n')|" user_data.sh | base64 | tr -d '\n')
template=$(printf '{"ImageId": "%s", "SecurityGroupIds": ["%s"], "IamInstanceProfile": {"Name": "%s"}, "UserData": "%s",
    "MetadataOptions": {"HttpTokens": "required"}}' "$image" "$security" "$profile" "$data")
aws ec2 create-launch-template --launch-template-name "$name" --launch-template-data "$template"

overrides=$(printf '{"InstanceType": "%s"},' $types)
policy=$(printf '{"LaunchTemplate": {"LaunchTemplateSpecification": {"LaunchTemplateName": "%s", "Version": "$Latest"},
    "Overrides": [%s]}, "InstancesDistribution": {"OnDemandPercentageAboveBaseCapacity": 0,
    "SpotAllocationStrategy": "price-capacity-optimized"}}' "$name" "${overrides%,}")
aws autoscaling create-auto-scaling-group --auto-scaling-group-name "$name" --mixed-instances-policy "$policy" \
    --vpc-zone-identifier "$subnets" --min-size 0 --max-size 1000 --desired-capacity "$count"
