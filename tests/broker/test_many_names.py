"""Requests that name many things, or one thing many times: the amount of work, and the waits of other clients."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ottla.broker.api.write_txn_markers import MARKERS_A_TURN
from ottla.broker.api_row import Answered
from ottla.broker.long_work import RESOURCES_AT_ONCE
from ottla.broker.routes import ROUTES
from ottla.protocol.api import APIS, ApiKey
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.protocol.messages.shared_structs import TopicPartitionIndexes
from ottla.protocol.messages.write_txn_markers import WritableTxnMarker, WriteTxnMarkersRequest
from ottla.protocol.schema import fields
from tests.broker.counted_node import CountedNode
from tests.broker.test_files_off_the_loop import create

TOPIC, BROKER = 2, 4
#: The mean of the turns that one request takes.
TURN_CPU_SECONDS_MAX = 0.05


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CountedNode]:
    with pytest.MonkeyPatch.context() as patch:
        started = CountedNode(Path(tmp_path_factory.mktemp("node")), patch)
        with started.wire() as wire:
            create(wire, "t")
            deadline = time.monotonic() + 20
            while any(each.error_code for each in wire.request(asked("FIND_COORDINATOR", ["g"])).coordinators):
                assert time.monotonic() < deadline
            while wire.request(ListGroupsRequest()).error_code:  # while the shards are loading
                assert time.monotonic() < deadline
        yield started
        started.stop()


ALL_ROWS = {row.api_key.name: row.names for row in ROUTES if isinstance(row, Answered) and row.names is not None}
ROWS = {kind: many for kind, many in ALL_ROWS.items() if many.key is not None}


def asked(kind: str, names: list[str]) -> Any:
    request = APIS[ApiKey[kind]].request()
    resources = [DescribeConfigsResource(TOPIC, name) for name in names]
    setattr(request, ROWS[kind].field, resources if kind == "DESCRIBE_CONFIGS" else names)
    return request


def name_of(row: Any) -> str:
    for field in ("group_id", "transactional_id", "resource_name", "key"):
        if hasattr(row, field):
            return str(getattr(row, field))
    raise AssertionError(row)


@pytest.mark.parametrize("kind", ROWS)
def test_each_of_many_names_is_answered_in_order_and_a_repeated_one_once(node: CountedNode, kind: str) -> None:
    many = ROWS[kind]
    count = 3 * many.at_once + 2
    names = [f"n{number}" for number in range(count)]
    with node.wire() as wire:
        whole = wire.request(asked(kind, ["n0", *names, "n1", "n0"]))
        rows = getattr(whole, many.answers)
        if kind in ("DESCRIBE_TRANSACTIONS", "FIND_COORDINATOR", "DESCRIBE_CONFIGS"):
            assert [name_of(row) for row in rows] == names
        else:  # the names of one shard of the coordinator, then of the next
            assert sorted(map(name_of, rows)) == sorted(names)
        few = wire.request(asked(kind, ["n0", "n1", "n0"]))
        assert sorted(map(name_of, getattr(few, many.answers))) == ["n0", "n1"]
        assert repr(sorted(getattr(few, many.answers), key=name_of)) == repr(
            sorted((row for row in rows if name_of(row) in ("n0", "n1")), key=name_of)
        )


class Cost(NamedTuple):
    """The time of the node's event loop that a request took."""

    turns: int
    cpu_seconds: float


def cost_of(node: CountedNode, request: Any) -> Cost:
    clock = time.pthread_getcpuclockid(node.loop_thread)
    with node.wire() as wire:
        gc.disable()  # a collection would look at all objects of other tests
        try:
            turns, seconds = node.loop.turn, time.clock_gettime(clock)
            wire.request(request)
            return Cost(node.loop.turn - turns, time.clock_gettime(clock) - seconds)
        finally:
            gc.enable()


@pytest.mark.parametrize("kind", ROWS)
def test_many_names_take_many_turns_of_the_loop(node: CountedNode, kind: str) -> None:
    count = 2_000 if kind == "DESCRIBE_CONFIGS" else 10_000
    cost = cost_of(node, asked(kind, [f"n{number}" for number in range(count)]))
    assert cost.turns >= count // ROWS[kind].at_once
    assert cost.cpu_seconds / cost.turns < TURN_CPU_SECONDS_MAX


def test_a_broker_that_is_named_2_000_times_is_described_once(node: CountedNode) -> None:
    resource = DescribeConfigsResource(BROKER, "1")
    request = DescribeConfigsRequest(resources=[resource] * 2_000)
    with node.wire() as wire:
        assert len(wire.request(request).results) == 1
    assert cost_of(node, request).cpu_seconds < 0.5, "6.7 s when it was described as often"
    keys = [DescribeConfigsResource(BROKER, "1", [f"k{number}"]) for number in range(5 * RESOURCES_AT_ONCE)]
    assert cost_of(node, DescribeConfigsRequest(resources=keys)).turns >= 5


# Topics with partitions


def topics_asked(kind: str, sizes: list[int]) -> Any:
    """Return a request for topics with these numbers of partitions, which are numbered from 0."""
    cls = APIS[ApiKey[kind]].request
    inside = ALL_ROWS[kind].inside
    assert inside is not None
    topics = next(field for field in fields(cls) if field.name == "topics").type.item
    assert topics is not None and topics.struct is not None
    partitions = next(field for field in fields(topics.struct) if field.name == inside[0]).type.item
    assert partitions is not None
    request = cls(group_id="g") if hasattr(cls, "group_id") else cls()
    for number, size in enumerate(sizes):
        topic: Any = topics.struct()
        if hasattr(topic, "topic_id"):
            topic.topic_id = number.to_bytes(16, "big")
        else:
            setattr(topic, "topic" if kind == "OFFSET_FOR_LEADER_EPOCH" else "name", f"n{number}")
        if partitions.struct is None:
            rows: list[Any] = list(range(size))
        else:
            index = next(field.name for field in fields(partitions.struct) if field.name.startswith("partition"))
            rows = [partitions.struct(**{index: each}) for each in range(size)]
        setattr(topic, inside[0], rows)
        request.topics.append(topic)
    return request


def indexes(row: Any) -> list[int]:
    return [getattr(each, "partition_index", getattr(each, "partition", -1)) for each in row.partitions]


BY_TOPIC = [kind for kind, many in ALL_ROWS.items() if many.field == "topics"]


@pytest.mark.parametrize("kind", BY_TOPIC)
def test_topics_are_cut_between_their_partitions_and_answered_whole(node: CountedNode, kind: str) -> None:
    at_once = ALL_ROWS[kind].at_once
    sizes = [1, 2 * at_once + 5, 3, at_once]
    with node.wire() as wire:
        rows = getattr(wire.request(topics_asked(kind, sizes)), ALL_ROWS[kind].answers)
    assert [indexes(row) for row in rows] == [list(range(size)) for size in sizes]
    assert cost_of(node, topics_asked(kind, [15_000])).turns >= 15_000 // at_once


def test_groups_that_are_asked_for_many_topics_are_answered_whole(node: CountedNode) -> None:
    many = ALL_ROWS["OFFSET_FETCH"].at_once
    topics = [OffsetFetchRequestTopics(name=f"n{number}", partition_indexes=[0]) for number in range(2 * many + 1)]
    groups = [
        OffsetFetchRequestGroup(group_id=name, topics=asked)
        for name, asked in (("a", topics), ("b", topics[:1]), ("b", topics[:1]))
    ]
    with node.wire() as wire:
        answered = wire.request(OffsetFetchRequest(groups=groups), 9).groups
    assert [(group.group_id, len(group.topics)) for group in answered] == [("a", len(topics)), ("b", 1), ("b", 1)]
    assert [topic.name for topic in answered[0].topics] == [topic.name for topic in topics]


def test_many_markers_are_written_in_turns_and_a_producer_is_answered_once(node: CountedNode) -> None:
    topics = [TopicPartitionIndexes(name="unknown", partition_indexes=[0])]
    markers = [WritableTxnMarker(producer_id=number % 2, topics=topics) for number in range(2 * MARKERS_A_TURN)]
    request = WriteTxnMarkersRequest(markers=markers)
    with node.wire() as wire:
        assert [each.producer_id for each in wire.request(request).markers] == [0, 1]
    assert cost_of(node, request).turns >= 4
