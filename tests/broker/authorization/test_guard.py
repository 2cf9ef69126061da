"""The guards themselves: their cost without an authorizer, and the completion of answers that come later."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.api.groups import list_groups
from ottla.broker.api_row import Answered
from ottla.broker.authorization import Each, Whole, guarded, on_cluster, on_each_group, on_group
from ottla.broker.routes import ROUTES
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ottla.server.authorization.acl import AccessControlEntry
from ottla.server.authorization.authorizer import AllowAll, StandardAuthorizer
from ottla.server.authorization.operations import (
    ALL,
    ALLOW,
    CLUSTER,
    CLUSTER_ACTION,
    CLUSTER_NAME,
    DELETE,
    GROUP,
    LITERAL,
    READ,
)
from ottla.server.network.context import Reply
from tests.server.authorization.callers import caller

EACH = (Each("groups_names", "results", on_each_group(DELETE)),)


def broker(authorizer: Any = None) -> Any:
    if authorizer is None:
        authorizer = StandardAuthorizer()
        authorizer.change((), [AccessControlEntry(GROUP, "mine", LITERAL, "User:*", "*", ALL, ALLOW)])
    return SimpleNamespace(authorizer=authorizer)


def codes(answer: DeleteGroupsResponse) -> dict[str, int]:
    return {result.group_id: result.error_code for result in answer.results}


@pytest.mark.parametrize("row", [row for row in ROUTES if isinstance(row, Answered)], ids=lambda row: row.api_key.name)
def test_without_an_authorizer_the_handler_stands_alone(row: Answered) -> None:
    def handler(request: Any, context: Any) -> None: ...

    assert guarded(broker(AllowAll()), row.api_key, row.authorization, handler) is handler


@pytest.mark.parametrize("asked_first", [True, False])
def test_refusals_are_added_to_an_answer_that_comes_later(asked_first: bool) -> None:
    reply = Reply()
    served: list[DeleteGroupsRequest] = []

    def serve(request: DeleteGroupsRequest, context: Any) -> Reply:
        served.append(request)
        return reply

    handler = guarded(broker(), ApiKey.DELETE_GROUPS, EACH, serve)
    request = DeleteGroupsRequest(groups_names=["mine", "other"])
    if not asked_first:
        reply.complete(DeleteGroupsResponse(results=[DeletableGroupResult(group_id="mine")]))
    answer = handler(request, caller(api_key=ApiKey.DELETE_GROUPS))
    assert [each.groups_names for each in served] == [["mine"]]
    assert request.groups_names == ["mine", "other"], "the request itself is left as it came"
    if asked_first:
        arrived: list[Any] = []
        answer.attach(SimpleNamespace(completed=arrived.append))
        reply.complete(DeleteGroupsResponse(results=[DeletableGroupResult(group_id="mine")]))
        (answer,) = arrived
    assert codes(answer) == {"mine": 0, "other": ErrorCode.GROUP_AUTHORIZATION_FAILED}


def test_a_failure_that_comes_later_stays_one() -> None:
    reply = Reply()
    handler = guarded(broker(), ApiKey.DELETE_GROUPS, EACH, lambda request, context: reply)
    answer = handler(DeleteGroupsRequest(groups_names=["mine", "other"]), caller())
    arrived: list[Any] = []
    answer.attach(SimpleNamespace(completed=arrived.append))
    reply.complete(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    assert [error.code for error in arrived] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


def test_a_client_that_goes_cancels_what_the_handler_waits_for() -> None:
    reply = Reply()
    handler = guarded(broker(), ApiKey.DELETE_GROUPS, EACH, lambda request, context: reply)
    answer = handler(DeleteGroupsRequest(groups_names=["mine", "other"]), caller())
    answer.cancel()
    assert reply.cancelled


def test_a_request_of_which_nothing_is_left_never_reaches_the_handler() -> None:
    def handler(request: Any, context: Any) -> None:
        raise AssertionError("reached")

    behind = guarded(broker(), ApiKey.DELETE_GROUPS, EACH, handler)
    nothing_left = behind(DeleteGroupsRequest(groups_names=["other"]), caller())
    assert codes(nothing_left) == {"other": ErrorCode.GROUP_AUTHORIZATION_FAILED}


def test_a_request_that_is_refused_as_a_whole_never_reaches_the_handler() -> None:
    def handler(request: Any, context: Any) -> None:
        raise AssertionError("reached")

    rules = (Whole((on_group(READ),)),)
    with pytest.raises(KafkaError) as refused:
        guarded(broker(), ApiKey.HEARTBEAT, rules, handler)(HeartbeatRequest(group_id="other"), caller())
    assert refused.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_one_of_several_permissions_is_enough() -> None:
    rules = (Whole((on_cluster(CLUSTER_ACTION), on_group(READ))),)
    handler = guarded(broker(), ApiKey.HEARTBEAT, rules, lambda request, context: "answered")
    assert handler(HeartbeatRequest(group_id="mine"), caller()) == "answered"


def test_what_may_not_be_seen_is_left_out_of_the_answer() -> None:
    listed = [ListedGroup(group_id="mine"), ListedGroup(group_id="other")]
    node = broker()
    node.groups = SimpleNamespace(list=lambda states, types: (ErrorCode.NONE, listed))
    answer = list_groups(node, ListGroupsRequest(), caller())
    assert isinstance(answer, ListGroupsResponse)
    assert [group.group_id for group in answer.groups] == ["mine"]


@pytest.mark.parametrize(
    "api_key", range(ApiKey.INITIALIZE_SHARE_GROUP_STATE, ApiKey.READ_SHARE_GROUP_STATE_SUMMARY + 1)
)
def test_states_of_share_partitions_are_for_brokers_alone(api_key: int) -> None:
    (row,) = [row for row in ROUTES if isinstance(row, Answered) and row.api_key == api_key]
    handler = guarded(broker(), api_key, row.authorization, lambda request, context: "served")
    with pytest.raises(KafkaError) as refused:
        handler(object(), caller(api_key=ApiKey(api_key)))
    assert refused.value.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    authorizer = StandardAuthorizer()
    authorizer.change((), [AccessControlEntry(CLUSTER, CLUSTER_NAME, LITERAL, "User:*", "*", CLUSTER_ACTION, ALLOW)])
    handler = guarded(broker(authorizer), api_key, row.authorization, lambda request, context: "served")
    assert handler(object(), caller(api_key=ApiKey(api_key))) == "served"
