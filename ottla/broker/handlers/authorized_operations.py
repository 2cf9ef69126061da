"""The authorized_operations bit fields of Metadata, DescribeCluster and DescribeTopicPartitions (KIP-430).

Bit n is AclOperation n. Without an authorizer the field has all operations of the resource, as in Kafka.
With one, what the handlers put here is overwritten for the caller (broker/authorization/).
"""

from __future__ import annotations

from ottla.server.authorization.authorizer import EVERY_OPERATION
from ottla.server.authorization.operations import CLUSTER, GROUP, TOPIC

#: The field's value if the request did not ask for it.
NOT_ASKED = -(2**31)

TOPIC_OPERATIONS = EVERY_OPERATION[TOPIC]
CLUSTER_OPERATIONS = EVERY_OPERATION[CLUSTER]
GROUP_OPERATIONS = EVERY_OPERATION[GROUP]
