"""A request of a recording becomes one for each broker that leads or coordinates some of it, and a fetch session one for each leader."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from ottla.protocol.api import APIS, ApiKey
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.describe_producers import DescribeProducersRequest
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.protocol.messages.shared_structs import TopicPartitionIndexes
from ottla.protocol.schema import ZERO_UUID
from ottla.traffic.fetch_sessions import ReplayedSession, ReplayedSessions
from ottla.traffic.routing import (
    BY_COORDINATOR,
    BY_LEADER,
    GROUP,
    KEY_OF_ITEM,
    TRANSACTION,
    RoutedPart,
    Routes,
    Topic,
    merge,
)

OTHERWISE = 9
TOPIC_ID = b"0123456789abcdef"


class Known:
    """A cluster whose leaders and coordinators a test sets."""

    def __init__(self) -> None:
        self.nodes: Iterable[int] = (1, 2, 3)
        self.led: dict[Topic, dict[int, int]] = {"t": {0: 1, 1: 2, 2: 1}, "u": {0: 2}}
        self.coordinated = {(GROUP, "g"): 1, (GROUP, "h"): 2, (TRANSACTION, "x"): 3}
        self.asked = 0

    async def leaders(self, topic: Topic) -> Mapping[int, int]:
        self.asked += 1
        return dict(self.led.get(topic, {}))

    async def coordinator(self, kind: int, key: str) -> int | None:
        self.asked += 1
        return self.coordinated.get((kind, key))


@pytest.fixture
def known() -> Known:
    return Known()


@pytest.fixture
def routes(known: Known) -> Routes:
    return Routes(known)


def offsets_of(topics: Mapping[str, list[int]]) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        topics=[
            ListOffsetsTopic(name, [ListOffsetsPartition(partition_index=number) for number in numbers])
            for name, numbers in topics.items()
        ]
    )


def asked(part: RoutedPart) -> dict[str, list[int]]:
    return {topic.name: [each.partition_index for each in topic.partitions] for topic in part.body.topics}


async def test_partitions_are_asked_of_their_leaders(routes: Routes, known: Known) -> None:
    request = offsets_of({"t": [0, 1, 2], "u": [0], "not there": [0]})
    parts = {part.node: asked(part) for part in await routes.parts(ApiKey.LIST_OFFSETS, request, OTHERWISE)}
    assert parts == {1: {"t": [0, 2]}, 2: {"t": [1], "u": [0]}, OTHERWISE: {"not there": [0]}}
    assert [len(topic.partitions) for topic in request.topics] == [3, 1, 1], "the request itself stays whole"
    once = known.asked
    await routes.parts(ApiKey.LIST_OFFSETS, offsets_of({"t": [1]}), OTHERWISE)
    assert known.asked == once
    numbers = DescribeProducersRequest([TopicPartitionIndexes("t", [0, 1])])
    found = {each.node: each.body.topics for each in await routes.parts(ApiKey.DESCRIBE_PRODUCERS, numbers, OTHERWISE)}
    assert found == {1: [TopicPartitionIndexes("t", [0])], 2: [TopicPartitionIndexes("t", [1])]}


async def test_a_leader_that_has_changed_is_found_when_the_old_one_refuses(routes: Routes, known: Known) -> None:
    request = offsets_of({"t": [0]})
    assert [part.node for part in await routes.parts(ApiKey.LIST_OFFSETS, request, OTHERWISE)] == [1]
    known.led["t"][0] = 3
    assert [part.node for part in await routes.parts(ApiKey.LIST_OFFSETS, request, OTHERWISE)] == [1]
    routes.forget()
    assert [part.node for part in await routes.parts(ApiKey.LIST_OFFSETS, request, OTHERWISE)] == [3]


async def test_groups_and_transactions_are_asked_of_their_coordinators(routes: Routes) -> None:
    async def nodes(api_key: ApiKey, body: object) -> list[int]:
        return [part.node for part in await routes.parts(api_key, body, OTHERWISE)]

    assert await nodes(ApiKey.HEARTBEAT, HeartbeatRequest("h")) == [2]
    assert await nodes(ApiKey.HEARTBEAT, HeartbeatRequest("not there")) == [OTHERWISE]
    assert await nodes(ApiKey.END_TXN, EndTxnRequest("x")) == [3]
    assert await nodes(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(coordinator_keys=["g"])) == [OTHERWISE]
    deleted = await routes.parts(ApiKey.DELETE_GROUPS, DeleteGroupsRequest(["g", "h", "i"]), OTHERWISE)
    assert {part.node: part.body.groups_names for part in deleted} == {1: ["g"], 2: ["h"], OTHERWISE: ["i"]}
    groups = [OffsetFetchRequestGroup("g"), OffsetFetchRequestGroup("h")]
    assert await nodes(ApiKey.OFFSET_FETCH, OffsetFetchRequest(groups=groups)) == [1, 2]
    assert await nodes(ApiKey.OFFSET_FETCH, OffsetFetchRequest(group_id="h")) == [2]


async def test_one_broker_is_asked_everything(routes: Routes, known: Known) -> None:
    known.nodes = (OTHERWISE,)
    request = offsets_of({"t": [0, 1]})
    assert await routes.parts(ApiKey.LIST_OFFSETS, request, OTHERWISE) == [RoutedPart(OTHERWISE, request)]
    assert known.asked == 0
    routes.forget()
    assert [part.node for part in await routes.parts(ApiKey.LIST_OFFSETS, request, OTHERWISE)] == [1, 2]
    assert known.asked, "it was not the one, so another has joined meanwhile"


def test_responses_of_several_brokers_become_one() -> None:
    def response(**topics: list[int]) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(name, [ListOffsetsPartitionResponse(number) for number in numbers])
                for name, numbers in topics.items()
            ]
        )

    whole = response(t=[0, 2])
    merge(whole, response(t=[1], u=[0]))
    assert whole == response(t=[0, 2, 1], u=[0])


def test_each_field_of_the_tables_is_one_of_its_request() -> None:
    for api_key, fields in BY_LEADER.items():
        names = APIS[ApiKey(api_key)].request.__field_names__
        assert fields.topics in names
    for api_key, (kind, keys) in BY_COORDINATOR.items():
        names = APIS[ApiKey(api_key)].request.__field_names__
        assert set(keys) <= set(names) and KEY_OF_ITEM[kind]


# -- Fetch sessions --------------------------------------------------------------------------------------------------


def fetch(session_id: int, epoch: int, *numbers: int, forgotten: tuple[int, ...] = ()) -> FetchRequest:
    topics = [FetchTopic("t", ZERO_UUID, [FetchPartition(number, fetch_offset=epoch) for number in numbers])]
    gone = [ForgottenTopic("t", ZERO_UUID, list(forgotten))]
    return FetchRequest(
        max_wait_ms=500,
        session_id=session_id,
        session_epoch=epoch,
        topics=topics if numbers else [],
        forgotten_topics_data=gone if forgotten else [],
    )


async def sent(
    routes: Routes, session: ReplayedSession, request: FetchRequest, ids: Mapping[int, int]
) -> dict[int, tuple[int, int, list[int]]]:
    """Return session, epoch and partitions that each broker is asked for; they answer with the ids."""
    found = {}
    for part in await session.parts(routes, request, OTHERWISE):
        numbers = [each.partition for topic in part.body.topics for each in topic.partitions]
        found[part.node] = (part.body.session_id, part.body.session_epoch, numbers)
        session.answered(part, ids.get(part.node, 0))
    return found


async def test_each_leader_has_a_session_with_epochs_of_its_own(routes: Routes) -> None:
    sessions = ReplayedSessions()
    session, ids = sessions.of(0), {1: 11, 2: 22}
    assert await sent(routes, session, fetch(0, 0, 0), ids) == {1: (0, 0, [0])}
    sessions.learn(77, session)
    assert sessions.of(77) is session
    # Partition 1 has another leader, which has no session yet.
    assert await sent(routes, session, fetch(77, 1, 1), ids) == {1: (11, 1, []), 2: (0, 0, [1])}
    assert await sent(routes, session, fetch(77, 2, 0), ids) == {1: (11, 2, [0]), 2: (22, 1, [])}
    request = fetch(77, 3, forgotten=(1,))
    parts = {part.node: part.body for part in await session.parts(routes, request, OTHERWISE)}
    assert [each.partitions for each in parts[2].forgotten_topics_data] == [[1]]
    assert parts[1].forgotten_topics_data == [] and parts[1].max_wait_ms == 0
    assert await sent(routes, session, fetch(77, -1), ids) == {1: (11, -1, []), 2: (22, -1, [])} and not session.own


async def test_a_broker_without_room_for_a_session_is_asked_for_all_its_partitions_each_time(routes: Routes) -> None:
    session = ReplayedSession()
    for epoch in (0, 1):
        assert await sent(routes, session, fetch(epoch and 77, epoch, *() if epoch else (0, 2)), {}) == {
            1: (0, 0, [0, 2])
        }


async def test_a_session_begins_again_where_leaders_have_changed(routes: Routes, known: Known) -> None:
    session, ids = ReplayedSession(), {1: 11, 2: 22, 3: 33}
    await sent(routes, session, fetch(0, 0, 0, 1, 2), ids)
    known.led["t"][0] = 3
    routes.forget()
    session.begin_again()
    assert await sent(routes, session, fetch(77, 1), ids) == {3: (0, 0, [0]), 2: (0, 0, [1]), 1: (0, 0, [2])}
