"""A node whose ACLs hide the resources of User:alice from User:ANONYMOUS, the principal of the tests.

`open` and `g` have no ACL, so allow.everyone.if.no.acl.found gives access to all principals; `hidden`, `secret-*` and
`secret-txn` are User:alice's. Every principal may do all operations on the cluster that a test does not deny. The expected
answers are Apache Kafka 4.3.1's.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.server.authorization.authorizer import STANDARD_AUTHORIZER
from ottla.server.authorization.operations import (
    ALL,
    CLUSTER,
    CLUSTER_NAME,
    DESCRIBE,
    GROUP,
    PREFIXED,
    SUPPORTED_OPERATIONS,
    TOPIC,
    TRANSACTIONAL_ID,
)
from tests.broker.authorization.entries import (
    ALICE,
    acl,
    create,
    delete,
    error_codes,
)
from tests.broker.authorization.requests import commit
from tests.broker.conftest import Node, eventually, start_node, stop_node
from tests.broker.wire import Wire


@pytest.fixture(scope="package")
def guarded() -> Iterator[Node]:
    node = start_node(
        authorizer_class_name=STANDARD_AUTHORIZER, allow_everyone_if_no_acl_found="true", super_users="User:root"
    )
    for topic in ("open", "hidden", "other"):
        node.create(topic)
    with node.wire() as wire:
        eventually(lambda: not error_codes(wire.request(FindCoordinatorRequest(coordinator_keys=["g"]), 4)), "offsets")
        # Group `g` exists before the first test: OffsetDelete answers GROUP_ID_NOT_FOUND before it looks at topics.
        eventually(lambda: not error_codes(wire.request(commit("g", "open"), 8)), "the coordinator to be loaded")
        eventually(lambda: not wire.request(ListGroupsRequest()).error_code, "those of all other groups to be loaded")
        create(
            wire,
            acl(TOPIC, "hidden", ALL, principal=ALICE),
            acl(GROUP, "secret-", ALL, principal=ALICE, pattern=PREFIXED),
            acl(TRANSACTIONAL_ID, "secret-txn", ALL, principal=ALICE),
            *(acl(CLUSTER, CLUSTER_NAME, operation) for operation in SUPPORTED_OPERATIONS[CLUSTER]),
        )
    yield node
    stop_node(node)


@pytest.fixture
def wire(guarded: Node) -> Iterator[Wire]:
    with guarded.wire() as connection:
        yield connection


@pytest.fixture(scope="package")
def ids(guarded: Node) -> dict[str, bytes]:
    found = {}
    for name in ("open", "hidden", "other"):
        create_allow = acl(TOPIC, name, DESCRIBE)
        with guarded.wire() as connection:
            create(connection, create_allow)
            answer = connection.request(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 12)
            found[name] = answer.topics[0].topic_id
            delete(connection, create_allow)
    return found
