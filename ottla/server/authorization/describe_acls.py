"""DescribeAcls (29): the access control entries that match a filter, gathered by the resource they are about.

v1 pattern types (KIP-290) · v2 flexible · v3 the user resource type (KIP-373).
"""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from ottla.server.authorization.acl import AccessControlEntry, matches_filter
from ottla.server.authorization.authorizer import Authorizer
from ottla.server.authorization.operations import OPERATIONS, PATTERN_TYPES, PERMISSIONS, RESOURCE_TYPES


def describe_acls(authorizer: Authorizer, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """Returns the matching entries. Raises KafkaError: SECURITY_DISABLED, or INVALID_REQUEST for a filter that Kafka does not know."""
    if not authorizer.enabled:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
    _check(request)
    by_pattern: dict[tuple[int, str, int], list[AccessControlEntry]] = {}
    for entry in authorizer.entries():
        if matches_filter(request, entry):
            pattern = (entry.resource_type, entry.resource_name, entry.pattern_type)
            by_pattern.setdefault(pattern, []).append(entry)
    return DescribeAclsResponse(
        error_message="",
        resources=[
            DescribeAclsResource(*pattern, [AclDescription(*entry[3:]) for entry in sorted(entries)])
            for pattern, entries in sorted(by_pattern.items())
        ],
    )


def _check(request: DescribeAclsRequest) -> None:
    for value, known in (
        (request.resource_type_filter, RESOURCE_TYPES),
        (request.pattern_type_filter, PATTERN_TYPES),
        (request.operation, OPERATIONS),
        (request.permission_type, PERMISSIONS),
    ):
        if known.get(value, "UNKNOWN") == "UNKNOWN":
            raise KafkaError(ErrorCode.INVALID_REQUEST, "DescribeAclsRequest contains UNKNOWN elements")
