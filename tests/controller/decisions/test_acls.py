from __future__ import annotations

from typing import Any

import pytest

from ottla.controller.decisions.acls import create_acls, delete_acls
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from tests.controller.harness import DecisionHarness

TOPIC, ANY, MATCH, LITERAL, PREFIXED, READ, ALLOW = 2, 1, 2, 3, 4, 3, 3


def acl(name: str, pattern: int = LITERAL, **fields: Any) -> AclCreation:
    given: dict[str, Any] = {
        "resource_type": TOPIC,
        "resource_name": name,
        "resource_pattern_type": pattern,
        "principal": "User:alice",
        "host": "*",
        "operation": READ,
        "permission_type": ALLOW,
    }
    return AclCreation(**given | fields)


def create(cluster: DecisionHarness, *creations: AclCreation) -> list[tuple[int, str | None]]:
    results = cluster.decide(
        create_acls(cluster.state, CreateAclsRequest(creations=list(creations)), cluster.rng)
    ).results
    return [(result.error_code, result.error_message) for result in results]


def everything(**fields: Any) -> DeleteAclsFilter:
    given: dict[str, Any] = {
        "resource_type_filter": ANY,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    }
    return DeleteAclsFilter(**given | fields)


def names(cluster: DecisionHarness) -> list[str]:
    return sorted(entry.resource_name for entry in cluster.image.acls.entries.values())


def test_an_entry_that_is_there_is_not_written_twice() -> None:
    cluster = DecisionHarness()
    assert create(cluster, acl("a"), acl("a"), acl("b")) == [(0, "")] * 3
    assert create(cluster, acl("a")) == [(0, "")]
    assert names(cluster) == ["a", "b"]


def test_match_finds_every_entry_that_would_apply_to_the_name() -> None:
    cluster = DecisionHarness()
    create(cluster, acl("orders"), acl("or", PREFIXED), acl("*"), acl("orders-2"), acl("x", PREFIXED))
    wanted = everything(resource_name_filter="orders", pattern_type_filter=MATCH)
    (result,) = cluster.decide(delete_acls(cluster.state, DeleteAclsRequest(filters=[wanted]))).filter_results
    assert sorted(each.resource_name for each in result.matching_acls) == ["*", "or", "orders"]
    assert names(cluster) == ["orders-2", "x"]


def test_any_finds_only_the_very_name() -> None:
    cluster = DecisionHarness()
    create(cluster, acl("orders"), acl("orders", PREFIXED), acl("*"))
    cluster.decide(delete_acls(cluster.state, DeleteAclsRequest(filters=[everything(resource_name_filter="orders")])))
    assert names(cluster) == ["*"]


def test_filters_overlap_without_harm_and_all_is_all() -> None:
    cluster = DecisionHarness()
    create(cluster, acl("a"), acl("b", principal="User:bob"))
    both = [everything(principal_filter="User:bob"), everything()]
    results = cluster.decide(delete_acls(cluster.state, DeleteAclsRequest(filters=both))).filter_results
    assert [len(result.matching_acls) for result in results] == [1, 2]
    assert names(cluster) == []


@pytest.mark.parametrize(
    ("creation", "message"),
    [
        (acl("a", resource_type=ANY), "Invalid resourceType ANY"),
        (acl("a", resource_type=99), "Invalid resourceType UNKNOWN"),
        (acl("a", MATCH), "Invalid patternType MATCH"),
        (acl("a", operation=ANY), "Invalid operation ANY"),
        (acl("a", permission_type=0), "Invalid permissionType UNKNOWN"),
        (acl(""), "Invalid empty resource name"),
        (acl("mine", resource_type=4), "The only valid name for the CLUSTER resource is kafka-cluster"),
    ],
)
def test_an_entry_that_cannot_be_is_refused_alone(creation: AclCreation, message: str) -> None:
    cluster = DecisionHarness()
    assert create(cluster, creation, acl("good")) == [(ErrorCode.INVALID_REQUEST, message), (0, "")]
    assert names(cluster) == ["good"]


def test_a_filter_with_an_unknown_type_deletes_nothing() -> None:
    cluster = DecisionHarness()
    create(cluster, acl("a"))
    (result,) = cluster.decide(
        delete_acls(cluster.state, DeleteAclsRequest(filters=[everything(operation=0)]))
    ).filter_results
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert names(cluster) == ["a"]


def test_a_host_may_be_a_network_and_what_looks_like_one_and_is_none_is_refused() -> None:
    cluster = DecisionHarness()
    hosts = ["10.0.0.0/8", "2001:db8::/32", "10.0.0.0/33", "10.0.0/8", "10.0.0.0/255.0.0.0", "/", "*"]
    results = create(cluster, *(acl("a", host=host) for host in hosts))
    assert [code for code, _ in results] == [0, 0, *[ErrorCode.INVALID_REQUEST] * 4, 0]
    assert "10.0.0.0/33" in str(results[2][1])
