"""Constants of access control: operations, resource types, patterns, permissions, by their codes on the wire.

They are plain ints, because they are keys of lookups on the hot path. acl.py decides with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.protocol.errors import ErrorCode

UNKNOWN: Final = 0
ANY: Final = 1

# AclOperation
ALL: Final = 2
READ: Final = 3
WRITE: Final = 4
CREATE: Final = 5
DELETE: Final = 6
ALTER: Final = 7
DESCRIBE: Final = 8
CLUSTER_ACTION: Final = 9
DESCRIBE_CONFIGS: Final = 10
ALTER_CONFIGS: Final = 11
IDEMPOTENT_WRITE: Final = 12
CREATE_TOKENS: Final = 13
DESCRIBE_TOKENS: Final = 14
TWO_PHASE_COMMIT: Final = 15

# ResourceType
TOPIC: Final = 2
GROUP: Final = 3
CLUSTER: Final = 4
TRANSACTIONAL_ID: Final = 5
DELEGATION_TOKEN: Final = 6
USER: Final = 7

# PatternType
MATCH: Final = 2
LITERAL: Final = 3
PREFIXED: Final = 4

# AclPermissionType
DENY: Final = 2
ALLOW: Final = 3

#: The only resource of type CLUSTER.
CLUSTER_NAME: Final = "kafka-cluster"
#: A literal name that stands for all names, and a host that stands for all hosts.
WILDCARD: Final = "*"
WILDCARD_PRINCIPAL: Final = "User:*"

OPERATIONS: Mapping[int, str] = {
    0: "UNKNOWN", 1: "ANY", 2: "ALL", 3: "READ", 4: "WRITE", 5: "CREATE", 6: "DELETE", 7: "ALTER", 8: "DESCRIBE",
    9: "CLUSTER_ACTION", 10: "DESCRIBE_CONFIGS", 11: "ALTER_CONFIGS", 12: "IDEMPOTENT_WRITE", 13: "CREATE_TOKENS",
    14: "DESCRIBE_TOKENS", 15: "TWO_PHASE_COMMIT",
}  # fmt: skip
RESOURCE_TYPES: Mapping[int, str] = {
    0: "UNKNOWN", 1: "ANY", 2: "TOPIC", 3: "GROUP", 4: "CLUSTER", 5: "TRANSACTIONAL_ID", 6: "DELEGATION_TOKEN", 7: "USER",
}  # fmt: skip
PATTERN_TYPES: Mapping[int, str] = {0: "UNKNOWN", 1: "ANY", 2: "MATCH", 3: "LITERAL", 4: "PREFIXED"}
PERMISSIONS: Mapping[int, str] = {0: "UNKNOWN", 1: "ANY", 2: "DENY", 3: "ALLOW"}

#: The operations of each resource type, for the authorized_operations fields (KIP-430).
SUPPORTED_OPERATIONS: Mapping[int, tuple[int, ...]] = {
    TOPIC: (READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS),
    GROUP: (READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS),
    CLUSTER: (CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE),
    TRANSACTIONAL_ID: (WRITE, DESCRIBE, TWO_PHASE_COMMIT),
    DELEGATION_TOKEN: (DESCRIBE,),
    USER: (CREATE_TOKENS, DESCRIBE_TOKENS),
}

#: The error code of an unauthorized request, by resource type.
AUTHORIZATION_ERRORS: Mapping[int, ErrorCode] = {
    TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}


def bit_field(operations: tuple[int, ...] | list[int]) -> int:
    """Return a bit field in which bit n is operation n."""
    return sum(1 << operation for operation in operations)
