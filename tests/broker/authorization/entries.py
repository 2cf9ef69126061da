"""Making entries, waiting until they count, and reading refusals out of answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.protocol.messages.describe_acls import DescribeAclsRequest
from ottla.server.authorization.operations import (
    ALLOW,
    CLUSTER,
    CLUSTER_NAME,
    DENY,
    DESCRIBE,
    LITERAL,
)
from tests.broker.conftest import eventually
from tests.broker.wire import Wire

ALICE, ME = "User:alice", "User:ANONYMOUS"
TOPIC_REFUSED = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
GROUP_REFUSED = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
CLUSTER_REFUSED = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
TRANSACTION_REFUSED = int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
REFUSED = {TOPIC_REFUSED, GROUP_REFUSED, CLUSTER_REFUSED, TRANSACTION_REFUSED}


def acl(
    resource_type: int, name: str, operation: int, permission: int = ALLOW, principal: str = ME, pattern: int = LITERAL
) -> AclCreation:
    return AclCreation(
        resource_type=resource_type,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=principal,
        host="*",
        operation=operation,
        permission_type=permission,
    )


def create(wire: Wire, *acls: AclCreation) -> None:
    answer = wire.request(CreateAclsRequest(creations=list(acls)))
    assert [result.error_code for result in answer.results] == [0] * len(acls)
    wanted = [(a.principal, a.operation, a.permission_type) for a in acls]
    eventually(lambda: all(entry in described(wire) for entry in wanted), "the entries to be in force")


def described(wire: Wire) -> list[tuple[str, int, int]]:
    # the permission to describe the cluster may be the one that is denied just now
    answer = wire.request(DescribeAclsRequest(1, None, 1, None, None, 1, 1))
    if answer.error_code == CLUSTER_REFUSED:
        return [(ME, DESCRIBE, DENY)]
    return [(a.principal, a.operation, a.permission_type) for resource in answer.resources for a in resource.acls]


def delete(wire: Wire, *acls: AclCreation) -> None:
    filters = [
        DeleteAclsFilter(
            resource_type_filter=a.resource_type,
            resource_name_filter=a.resource_name,
            pattern_type_filter=a.resource_pattern_type,
            principal_filter=a.principal,
            host_filter=a.host,
            operation=a.operation,
            permission_type=a.permission_type,
        )
        for a in acls
    ]
    answer = wire.request(DeleteAclsRequest(filters=filters))
    assert [len(result.matching_acls) for result in answer.filter_results] == [1] * len(acls)


@contextmanager
def denied(wire: Wire, *operations: int) -> Iterator[None]:
    entries = [acl(CLUSTER, CLUSTER_NAME, operation, DENY) for operation in operations]
    create(wire, *entries)
    try:
        yield
    finally:
        delete(wire, *entries)


def error_codes(answer: Any) -> set[int]:
    """Return all error codes anywhere in the response."""
    if isinstance(answer, list):
        return set().union(*map(error_codes, answer)) if answer else set()
    if not hasattr(answer, "__field_names__"):
        return set()
    codes = set().union(*(error_codes(getattr(answer, name)) for name in answer.__field_names__))
    own = {int(getattr(answer, name, 0)) for name in ("error_code", "partition_error_code")}
    return codes | own - {0}
