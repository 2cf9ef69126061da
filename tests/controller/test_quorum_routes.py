"""The quorum's APIs are for nodes: other clients need ClusterAction."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.controller.handlers.components import ControllerComponents
from ottla.controller.raft.routes import quorum_routes
from ottla.controller.routes import QUORUM_OPERATIONS, guard_quorum
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server.authorization.acl import AccessControlEntry
from ottla.server.authorization.authorizer import AllowAll, Authorizer, StandardAuthorizer
from ottla.server.authorization.operations import ALLOW, CLUSTER, CLUSTER_NAME, LITERAL
from ottla.server.network.route import Route
from ottla.server.principal import Principal
from tests.server.authorization.callers import caller

NODE: Any = None  # the routes are only looked up, never called


def components(authorizer: Authorizer) -> ControllerComponents:
    unused: list[Any] = [None] * 6
    return ControllerComponents(*unused, authorizer=authorizer)


def test_every_api_of_the_quorum_has_an_operation() -> None:
    assert {route.api_key for route in quorum_routes(NODE)} == set(QUORUM_OPERATIONS)


def test_without_an_authorizer_the_routes_are_the_quorums_own() -> None:
    rows = quorum_routes(NODE)
    assert guard_quorum(components(AllowAll()), rows) == rows


@pytest.mark.parametrize("api_key", QUORUM_OPERATIONS)
def test_a_client_is_rejected_and_a_node_is_not(api_key: int) -> None:
    authorizer = StandardAuthorizer()
    operation = QUORUM_OPERATIONS[api_key]
    node = AccessControlEntry(CLUSTER, CLUSTER_NAME, LITERAL, "User:node", "*", operation, ALLOW)
    authorizer.change((), [node])
    (route,) = guard_quorum(components(authorizer), [Route(api_key, lambda request, context: "answered")])
    with pytest.raises(KafkaError) as refused:
        route.handler(None, caller(api_key=api_key))
    assert refused.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert route.handler(None, caller(Principal("User", "node"), api_key=api_key)) == "answered"
