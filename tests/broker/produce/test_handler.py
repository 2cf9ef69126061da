"""Produce over the wire: the requests that are acknowledged, those that are rejected, and the messages (invariant 14)."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from ottla.protocol.records.batch import crc32c
from tests.broker.conftest import Node
from tests.broker.records import TIMESTAMP_MS, batch
from tests.broker.wire import Wire

TOPIC = "produced"
VERSIONS = range(3, 14)


@pytest.fixture(scope="module", autouse=True)
def topic(node: Node) -> None:
    node.create(TOPIC)
    node.create("small", max_message_bytes="200")
    node.create("stamped", message_timestamp_type="LogAppendTime")
    node.create("compacted", cleanup_policy="compact")
    node.create("durable", flush_messages="1")


@pytest.fixture
def wire(node: Node) -> Iterator[Wire]:
    with node.wire() as opened:
        yield opened


def topic_id(wire: Wire, name: str) -> bytes:
    found = wire.request(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 12).topics[0].topic_id
    assert isinstance(found, bytes)
    return found


def request(
    records: bytes | None, *, name: str = TOPIC, id_: bytes = bytes(16), acks: int = -1, index: int = 0
) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=5_000,
        topic_data=[
            TopicProduceData(
                name=name, topic_id=id_, partition_data=[PartitionProduceData(index=index, records=records)]
            )
        ],
    )


def produce(wire: Wire, records: bytes | None, version: int = 9, **options: object) -> PartitionProduceResponse:
    response = wire.request(request(records, **options), version)
    answer = response.responses[0].partition_responses[0]
    assert isinstance(answer, PartitionProduceResponse)
    return answer


def end_offset(wire: Wire, name: str = TOPIC) -> int:
    asked = FetchRequest(
        max_wait_ms=0,
        topics=[
            FetchTopic(topic=name, partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)])
        ],
    )
    return int(wire.request(asked, 11).responses[0].partitions[0].high_watermark)


def resealed(changed: bytearray) -> bytes:
    """Return the changed batch with a valid CRC, so that it can only be rejected for the change."""
    struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
    return bytes(changed)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_appends_one_after_the_other(wire: Wire, version: int) -> None:
    options = {"name": "", "id_": topic_id(wire, TOPIC)} if version >= 13 else {}
    before = end_offset(wire)
    answer = produce(wire, batch([b"a", b"b"]), version, **options)
    assert (answer.error_code, answer.base_offset) == (0, before)
    assert end_offset(wire) == before + 2


def test_acks_0_is_not_answered_and_the_next_request_is(wire: Wire) -> None:
    before = end_offset(wire)
    wire.send(request(batch([b"quiet"]), acks=0), 9)
    assert end_offset(wire) == before + 1


def test_acks_0_that_fails_closes_the_connection(wire: Wire) -> None:
    wire.send(request(batch([b"x"]), name="nowhere", acks=0), 9)
    assert wire.closed_by_server()


@pytest.mark.parametrize("acks", [-2, 2, 32767])
def test_other_numbers_of_acks_are_refused(wire: Wire, acks: int) -> None:
    before = end_offset(wire)
    assert produce(wire, batch([b"a"]), acks=acks).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert end_offset(wire) == before


def damaged_crc() -> bytes:
    changed = bytearray(batch([b"abc"]))
    changed[-2] ^= 1
    return bytes(changed)


def magic(number: int) -> bytes:
    changed = bytearray(batch([b"abc"]))
    changed[16] = number
    return resealed(changed)


def count(number: int) -> bytes:
    changed = bytearray(batch([b"abc"]))
    struct.pack_into(">i", changed, 57, number)
    return resealed(changed)


def control() -> bytes:
    changed = bytearray(batch([b"abc"]))
    struct.pack_into(">h", changed, 21, 0x20)
    return resealed(changed)


def length(number: int) -> bytes:
    changed = bytearray(batch([b"abc"]))
    struct.pack_into(">i", changed, 8, number)
    return bytes(changed)


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        pytest.param(None, ErrorCode.INVALID_RECORD, id="null"),
        pytest.param(b"", ErrorCode.INVALID_RECORD, id="empty"),
        pytest.param(batch([b"a"])[:40], ErrorCode.INVALID_RECORD, id="cut short"),
        pytest.param(damaged_crc(), ErrorCode.CORRUPT_MESSAGE, id="wrong CRC"),
        pytest.param(magic(0), ErrorCode.INVALID_RECORD, id="magic 0"),
        pytest.param(magic(1), ErrorCode.INVALID_RECORD, id="magic 1"),
        pytest.param(magic(9), ErrorCode.CORRUPT_MESSAGE, id="magic 9"),
        pytest.param(count(5), ErrorCode.INVALID_RECORD, id="count that is not in the batch"),
        pytest.param(count(-1), ErrorCode.INVALID_RECORD, id="negative count"),
        pytest.param(control(), ErrorCode.INVALID_RECORD, id="control batch of a client"),
        pytest.param(length(-1), ErrorCode.CORRUPT_MESSAGE, id="negative length"),
        pytest.param(batch([b"a"]) * 2, ErrorCode.INVALID_RECORD, id="two batches"),
        pytest.param(b"\xff" * 200, ErrorCode.CORRUPT_MESSAGE, id="garbage"),
    ],
)
def test_a_batch_that_cannot_be_is_refused_and_nothing_is_appended(
    wire: Wire, records: bytes | None, expected: ErrorCode
) -> None:
    before = end_offset(wire)
    answer = produce(wire, records)
    assert (answer.error_code, answer.base_offset) == (expected, -1)
    assert end_offset(wire) == before
    assert produce(wire, batch([b"after"])).error_code == 0  # nothing else is disturbed


def test_a_batch_over_max_message_bytes_is_too_large(wire: Wire) -> None:
    assert produce(wire, batch([b"x" * 500]), name="small").error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert produce(wire, batch([b"x" * 50]), name="small").error_code == 0


def test_an_error_that_its_code_says_has_no_message_which_clients_would_log(wire: Wire) -> None:
    for answer in (
        produce(wire, batch([b"x" * 500]), name="small"),
        produce(wire, batch([b"x"]), name="no-such-topic"),
    ):
        assert answer.error_code != ErrorCode.NONE
        assert answer.error_message is None


def test_a_compacted_topic_wants_keys_and_says_which_record_has_none(wire: Wire) -> None:
    answer = produce(wire, batch([b"no key", b"either"]), name="compacted")
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [each.batch_index for each in answer.record_errors] == [0, 1]
    assert answer.error_message


def test_log_append_time_is_returned(wire: Wire) -> None:
    answer = produce(wire, batch([b"a"], timestamp=1), name="stamped")
    assert answer.error_code == 0
    assert answer.log_append_time_ms > TIMESTAMP_MS
    assert produce(wire, batch([b"a"])).log_append_time_ms == -1


@pytest.mark.parametrize(
    ("options", "version", "expected"),
    [
        ({"name": "nowhere"}, 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"index": 7}, 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"index": -1}, 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"name": "", "id_": b"?" * 16}, 13, ErrorCode.UNKNOWN_TOPIC_ID),
    ],
)
def test_a_partition_that_is_not_there(
    wire: Wire, options: dict[str, object], version: int, expected: ErrorCode
) -> None:
    assert produce(wire, batch([b"a"]), version, **options).error_code == expected


def test_internal_topics_are_not_for_clients(node: Node, wire: Wire) -> None:
    wire.request(
        MetadataRequest(topics=[MetadataRequestTopic(name="__consumer_offsets")], allow_auto_topic_creation=True), 9
    )
    assert produce(wire, batch([b"a"]), name="__consumer_offsets").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_retried_batch_of_an_idempotent_producer_is_answered_with_its_first_offset(wire: Wire) -> None:
    batches = [batch([b"v"], producer_id=4711, producer_epoch=0, base_sequence=i) for i in range(6)]
    offsets = [produce(wire, each).base_offset for each in batches]
    before = end_offset(wire)
    again = produce(wire, batches[1])  # within the window of five batches
    assert (again.error_code, again.base_offset) == (0, offsets[1])
    assert end_offset(wire) == before


def test_a_gap_in_the_sequence_and_an_old_epoch_are_refused(wire: Wire) -> None:
    def send(sequence: int, epoch: int = 1) -> int:
        return produce(wire, batch([b"v"], producer_id=4712, producer_epoch=epoch, base_sequence=sequence)).error_code

    assert send(0) == 0
    assert send(2) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(1, epoch=0) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert send(1) == 0


def test_a_new_partition_refuses_what_came_before_the_first_batch_and_takes_both_in_order(
    node: Node, wire: Wire
) -> None:
    """KAFKA-15591: the first of several requests to a new topic was rejected, because the leader did not know the topic yet."""

    def send(sequence: int, producer_id: int = 4714) -> int:
        first = batch([b"v"], producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        return produce(wire, first, name="made-now").error_code

    node.create("made-now")
    assert send(1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [send(0), send(1), send(2)] == [0, 0, 0]
    deleted = DeleteRecordsPartition(partition_index=0, offset=-1)
    wire.request(DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="made-now", partitions=[deleted])]), 2)
    assert send(17, producer_id=4715) == 0, "empty is not new: its producer may be one that was forgotten"


def test_a_gap_in_the_sequence_is_refused_with_the_start_of_the_log_and_damaged_records_without(wire: Wire) -> None:
    first, gap = [
        produce(wire, batch([b"v"], producer_id=4713, producer_epoch=0, base_sequence=sequence)) for sequence in (0, 2)
    ]
    assert first.error_code == 0
    assert (gap.error_code, gap.log_start_offset) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0)
    damaged = produce(wire, bytes(batch([b"v"])[:-1]) + b"?")
    assert (damaged.error_code, damaged.log_start_offset) == (ErrorCode.CORRUPT_MESSAGE, -1)


@pytest.mark.parametrize("acks", [-1, 1])
def test_a_topic_that_flushes_every_record_is_answered_all_the_same(wire: Wire, acks: int) -> None:
    before = end_offset(wire, "durable")
    assert [produce(wire, batch([b"a"]), name="durable", acks=acks).error_code for _ in range(3)] == [0, 0, 0]
    assert end_offset(wire, "durable") == before + 3


def test_partitions_fail_one_by_one(wire: Wire) -> None:
    mixed = request(batch([b"good"]))
    mixed.topic_data[0].partition_data.append(PartitionProduceData(index=99, records=batch([b"a"])))
    good, bad = wire.request(mixed, 9).responses[0].partition_responses
    assert (good.error_code, bad.error_code) == (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
