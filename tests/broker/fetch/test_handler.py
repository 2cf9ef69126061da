"""Fetch over the wire: sessions, long polls, limits, isolation of one bad partition from the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records.batch import BatchView
from tests.broker.conftest import Node
from tests.broker.records import batch
from tests.broker.wire import Wire

VERSIONS = range(4, 19)
NAMED = 12  # the last version with topic names
#: A wait that is longer than any test: an operation with it ends only if it is woken. A receive gives up earlier.
FOREVER_MS = 60_000


@pytest.fixture
def wire(node: Node) -> Iterator[Wire]:
    with node.wire() as opened:
        yield opened


def append(node: Node, topic: str, *values: bytes, index: int = 0) -> None:
    with node.wire() as wire:
        for value in values:
            answer = wire.request(
                ProduceRequest(
                    acks=-1,
                    timeout_ms=5000,
                    topic_data=[
                        TopicProduceData(
                            name=topic, partition_data=[PartitionProduceData(index=index, records=batch([value]))]
                        )
                    ],
                ),
                9,
            )
            assert answer.responses[0].partition_responses[0].error_code == 0


def fetch(
    topic: str,
    offset: int = 0,
    *,
    partitions: tuple[int, ...] = (0,),
    id_: bytes = bytes(16),
    partition_bytes: int = 1 << 20,
    **options: Any,
) -> FetchRequest:
    defaults: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1, "session_epoch": -1}
    return FetchRequest(
        topics=[
            FetchTopic(
                topic=topic,
                topic_id=id_,
                partitions=[
                    FetchPartition(partition=i, fetch_offset=offset, partition_max_bytes=partition_bytes)
                    for i in partitions
                ],
            )
        ],
        **defaults | options,
    )


def views(records: Any) -> list[BatchView]:
    data, found, pos = memoryview(bytes(records)), [], 0
    while pos < len(data):
        view = BatchView(data, pos)
        found.append(view)
        pos += view.size
    return found


def topic_id(wire: Wire, name: str) -> bytes:
    found = wire.request(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 12).topics[0].topic_id
    assert isinstance(found, bytes)
    return found


@pytest.fixture(scope="module")
def letters(node: Node) -> str:
    """Create a topic of five batches of one record each."""
    node.create("letters")
    append(node, "letters", *[letter.encode() * 10 for letter in "abcde"])
    return "letters"


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_reads_what_was_written(wire: Wire, letters: str, version: int) -> None:
    options: dict[str, Any] = {"id_": topic_id(wire, letters)} if version > NAMED else {}
    name = letters if version <= NAMED else ""
    answer = wire.request(fetch(name, 1, **options), version)
    partition = answer.responses[0].partitions[0]
    assert (partition.error_code, partition.high_watermark) == (0, 5)
    assert [view.base_offset for view in views(partition.records)] == [1, 2, 3, 4]


def test_the_first_batch_comes_whole_however_small_the_limits(wire: Wire, letters: str) -> None:
    partition = wire.request(fetch(letters, partition_bytes=1, max_bytes=1), NAMED).responses[0].partitions[0]
    assert [view.base_offset for view in views(partition.records)] == [0]


def test_partition_max_bytes_counts_in_whole_batches(wire: Wire, letters: str) -> None:
    one = len(batch([b"a" * 10]))
    for limit, expected in [(one, 1), (2 * one - 1, 1), (2 * one, 2), (3 * one + 5, 3)]:
        partition = wire.request(fetch(letters, partition_bytes=limit), NAMED).responses[0].partitions[0]
        assert len(views(partition.records)) == expected, limit


def test_max_bytes_is_shared_and_the_next_fetch_of_the_session_starts_with_those_that_got_nothing(
    node: Node, wire: Wire
) -> None:
    node.create("shared", partitions=3)
    for index in range(3):
        append(node, "shared", b"x" * 100, index=index)
    one = len(batch([b"x" * 100]))
    first = wire.request(fetch("shared", partitions=(0, 1, 2), max_bytes=one, session_epoch=0), NAMED)
    assert [len(p.records) > 0 for p in first.responses[0].partitions] == [True, False, False]
    seen = [0]
    for epoch in (1, 2):
        # The client does not advance its offset. Partitions that had data went to the end of the queue all the same.
        answer = wire.request(
            FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=one, session_id=first.session_id, session_epoch=epoch),
            NAMED,
        )
        seen += [p.partition_index for t in answer.responses for p in t.partitions if p.records]
    assert seen == [0, 0, 1]


@pytest.mark.parametrize("offset", [-1, 6, 1 << 60])
def test_an_offset_outside_the_log(wire: Wire, letters: str, offset: int) -> None:
    partition = wire.request(fetch(letters, offset), NAMED).responses[0].partitions[0]
    assert (partition.error_code, partition.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


def test_one_bad_partition_does_not_take_the_data_of_the_others(wire: Wire, letters: str) -> None:
    answer = wire.request(fetch(letters, partitions=(0, 9)), NAMED)
    good, bad = answer.responses[0].partitions
    assert len(views(good.records)) == 5
    assert bad.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_unknown_topic_id(wire: Wire) -> None:
    partition = wire.request(fetch("", id_=b"?" * 16), 13).responses[0].partitions[0]
    assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize(("epoch", "expected"), [(99, ErrorCode.UNKNOWN_LEADER_EPOCH)])
def test_a_leader_epoch_that_is_not_the_brokers(wire: Wire, letters: str, epoch: int, expected: ErrorCode) -> None:
    request = fetch(letters)
    request.topics[0].partitions[0].current_leader_epoch = epoch
    assert wire.request(request, NAMED).responses[0].partitions[0].error_code == expected


def test_a_client_that_calls_itself_a_replica_is_not_one(wire: Wire, letters: str) -> None:
    request = fetch("", id_=topic_id(wire, letters))
    request.replica_state = ReplicaState(replica_id=77, replica_epoch=1)
    partition = wire.request(request, 15).responses[0].partitions[0]
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not partition.records


# -- Waiting ----------------------------------------------------------------------------------------------------------


def test_an_empty_fetch_waits_for_max_wait_and_not_longer(node: Node, wire: Wire) -> None:
    node.create("quiet")
    began = time.monotonic()
    partition = wire.request(fetch("quiet", max_wait_ms=150), NAMED).responses[0].partitions[0]
    assert 0.14 <= time.monotonic() - began < 8.0
    assert (partition.error_code, len(partition.records)) == (0, 0)


def test_a_waiting_fetch_is_answered_when_data_arrives(node: Node, wire: Wire) -> None:
    node.create("arriving")
    writer = threading.Timer(0.1, append, (node, "arriving", b"now"))
    writer.start()
    partition = wire.request(fetch("arriving", max_wait_ms=FOREVER_MS), NAMED).responses[0].partitions[0]
    assert len(views(partition.records)) == 1
    writer.join()


def test_min_bytes_holds_the_answer_back_until_there_is_enough(node: Node, wire: Wire) -> None:
    node.create("gathering", partitions=2)
    one = len(batch([b"x"]))
    wire.send(fetch("gathering", partitions=(0, 1), max_wait_ms=FOREVER_MS, min_bytes=3 * one), NAMED)
    append(node, "gathering", b"x")
    append(node, "gathering", b"x", index=1)
    wire.sock.settimeout(0.15)
    with pytest.raises(TimeoutError):
        wire.receive_frame()
    wire.sock.settimeout(10)
    append(node, "gathering", b"x")
    answer = wire.receive(1, NAMED)
    assert [len(views(p.records)) for p in answer.responses[0].partitions] == [2, 1]


def test_requests_behind_a_waiting_fetch_take_effect_and_are_answered_in_order(node: Node, wire: Wire) -> None:
    node.create("pipelined")
    wire.send(fetch("pipelined", max_wait_ms=FOREVER_MS), NAMED)
    wire.send(
        ProduceRequest(
            acks=-1,
            timeout_ms=5000,
            topic_data=[
                TopicProduceData(
                    name="pipelined", partition_data=[PartitionProduceData(index=0, records=batch([b"own"]))]
                )
            ],
        ),
        9,
    )
    fetched = wire.receive(1, NAMED)
    assert len(views(fetched.responses[0].partitions[0].records)) == 1
    produced = wire.receive(0, 9)
    assert produced.responses[0].partition_responses[0].error_code == 0


def test_deleting_the_topic_ends_the_wait(node: Node, wire: Wire) -> None:
    node.create("doomed")
    wire.send(fetch("doomed", max_wait_ms=FOREVER_MS), NAMED)
    with node.wire() as other:
        other.request(DeleteTopicsRequest(topics=[DeleteTopicState(name="doomed")], timeout_ms=5000))
    partition = wire.receive(1, NAMED).responses[0].partitions[0]
    assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_client_that_goes_while_it_waits_leaves_nothing_behind(node: Node) -> None:
    node.create("abandoned")
    for _ in range(20):
        with node.wire() as wire:
            wire.send(fetch("abandoned", max_wait_ms=30_000), NAMED)
    append(node, "abandoned", b"still works")


def test_a_fetch_of_deleted_records_is_out_of_range_and_returns_the_new_log_start(node: Node, wire: Wire) -> None:
    node.create("trimmed")
    append(node, "trimmed", b"1", b"2", b"3")
    deleted = wire.request(
        DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(name="trimmed", partitions=[DeleteRecordsPartition(partition_index=0, offset=2)])
            ],
            timeout_ms=5000,
        )
    )
    assert deleted.topics[0].partitions[0].low_watermark == 2
    assert (
        wire.request(fetch("trimmed", 1), NAMED).responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    )
    partition = wire.request(fetch("trimmed", 2), NAMED).responses[0].partitions[0]
    assert (partition.log_start_offset, len(views(partition.records))) == (2, 1)


# -- Sessions ---------------------------------------------------------------------------------------------------------


def test_a_session_returns_only_the_partitions_that_changed(node: Node, wire: Wire) -> None:
    node.create("watched", partitions=3)
    opened = wire.request(fetch("watched", partitions=(0, 1, 2), session_epoch=0), NAMED)
    session = opened.session_id
    assert session > 0
    assert len(opened.responses[0].partitions) == 3
    idle = wire.request(FetchRequest(max_wait_ms=0, session_id=session, session_epoch=1), NAMED)
    assert idle.responses == []
    append(node, "watched", b"x", index=1)
    changed = wire.request(FetchRequest(max_wait_ms=0, session_id=session, session_epoch=2), NAMED)
    assert [p.partition_index for p in changed.responses[0].partitions] == [1]


def test_a_forgotten_partition_is_not_read_any_more(node: Node, wire: Wire) -> None:
    node.create("forgotten", partitions=2)
    session = wire.request(fetch("forgotten", partitions=(0, 1), session_epoch=0), NAMED).session_id
    append(node, "forgotten", b"x", index=0)
    append(node, "forgotten", b"x", index=1)
    answer = wire.request(
        FetchRequest(
            max_wait_ms=0,
            session_id=session,
            session_epoch=1,
            forgotten_topics_data=[ForgottenTopic(topic="forgotten", partitions=[0])],
        ),
        NAMED,
    )
    assert [p.partition_index for p in answer.responses[0].partitions] == [1]


@pytest.mark.parametrize(
    ("session_id", "epoch", "expected"),
    [
        (123456, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (0, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (0, -2, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (None, 7, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
    ],
)
def test_a_session_that_is_not_there_or_not_at_that_epoch(
    wire: Wire, letters: str, session_id: int | None, epoch: int, expected: ErrorCode
) -> None:
    if session_id is None:
        session_id = wire.request(fetch(letters, session_epoch=0), NAMED).session_id
    answer = wire.request(fetch(letters, session_id=session_id, session_epoch=epoch), NAMED)
    assert (answer.error_code, answer.session_id, answer.responses) == (expected, 0, [])


def test_a_session_may_begin_without_partitions(wire: Wire, letters: str) -> None:
    empty = wire.request(FetchRequest(max_wait_ms=0, session_epoch=0), NAMED)
    assert (empty.error_code, empty.responses) == (0, []) and empty.session_id
    first = wire.request(fetch(letters, session_id=empty.session_id, session_epoch=1), NAMED)
    assert first.session_id == empty.session_id and len(views(first.responses[0].partitions[0].records)) == 5


@pytest.mark.parametrize("limits", [{"max_bytes": -1}, {"partition_bytes": -1}])
def test_a_limit_below_zero_is_an_error_of_the_partition_that_has_records(
    wire: Wire, letters: str, limits: dict[str, Any]
) -> None:
    (found,) = wire.request(fetch(letters, max_wait_ms=FOREVER_MS, **limits), NAMED).responses[0].partitions
    assert (found.error_code, found.records) == (ErrorCode.UNKNOWN_SERVER_ERROR, b"")


@pytest.mark.parametrize("level", [2, 7, -1])
def test_there_are_two_isolation_levels(wire: Wire, letters: str, level: int) -> None:
    answer = wire.request(fetch(letters, isolation_level=level), NAMED)
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    asked = ListOffsetsTopic(name=letters, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    listed = wire.request(ListOffsetsRequest(replica_id=-1, isolation_level=level, topics=[asked]), 7)
    assert listed.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_the_final_epoch_closes_the_session_and_still_answers(wire: Wire, letters: str) -> None:
    session = wire.request(fetch(letters, session_epoch=0), NAMED).session_id
    last = wire.request(fetch(letters, session_id=session, session_epoch=-1), NAMED)
    assert last.session_id == 0
    assert len(views(last.responses[0].partitions[0].records)) == 5
    gone = wire.request(FetchRequest(session_id=session, session_epoch=1), NAMED)
    assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_survives_deletion_and_new_creation_of_its_topic(node: Node, wire: Wire) -> None:
    node.create("reborn")
    append(node, "reborn", b"old")
    old_id = topic_id(wire, "reborn")
    session = wire.request(fetch("", id_=old_id, session_epoch=0), 13).session_id
    wire.request(DeleteTopicsRequest(topics=[DeleteTopicState(name="reborn")], timeout_ms=5000))
    node.create("reborn")
    answer = wire.request(FetchRequest(max_wait_ms=0, session_id=session, session_epoch=1), 13)
    assert answer.responses[0].topic_id == old_id
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
