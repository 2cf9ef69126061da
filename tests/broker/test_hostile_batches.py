"""Batches that claim or hold more than their size: the work of a node with default settings for one such request is counted."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from time import time_ns
from typing import Any

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.primitives import varint
from ottla.protocol.records.builder import build_batch, pack_batch
from ottla.protocol.records.compression import DECOMPRESSED_BYTES_MAX, GZIP, LZ4, SNAPPY, ZSTD, compress
from ottla.protocol.records.record import encode_record
from ottla.protocol.records.validate import RECORD_ERRORS_MAX, RECORDS_MAX, RecordRules
from ottla.protocol.work import BYTES_A_TURN, RECORDS_A_TURN
from tests.broker.conftest import eventually
from tests.broker.counted_node import CountedNode
from tests.broker.wire import Wire

NOW = time_ns() // 1_000_000
DAY_MS = 86_100_000
MB = 1024 * 1024
PLAIN, COMPACTED, PACKED, STAMPED = "plain", "compacted", "packed", "stamped"
TOPICS = {
    PLAIN: {},
    COMPACTED: {"cleanup.policy": "compact"},
    PACKED: {"compression.type": "gzip"},
    STAMPED: {"message.timestamp.type": "LogAppendTime"},
    "bounded": {"cleanup.policy": "compact", "max.decompressed.message.bytes": str(MB)},
}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CountedNode]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        started = CountedNode(tmp_path_factory.mktemp("data"), monkeypatch)
        with started.wire() as wire:
            for name, configs in TOPICS.items():
                create(wire, name, configs)
        yield started
        started.stop()


@pytest.fixture
def wire(node: CountedNode) -> Iterator[Wire]:
    node.work.clear()
    with node.wire() as opened:
        opened.sock.settimeout(60)
        yield opened


def create(wire: Wire, name: str, configs: dict[str, str]) -> None:
    rows = [CreatableTopicConfig(name=config, value=value) for config, value in configs.items()]
    topic = CreatableTopic(name=name, num_partitions=2, replication_factor=1, configs=rows)
    assert wire.request(CreateTopicsRequest(topics=[topic], timeout_ms=10_000)).topics[0].error_code == 0

    def has_leaders() -> bool:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        found = wire.request(asked, 12).topics[0]
        return not found.error_code and not any(p.error_code for p in found.partitions)

    eventually(has_leaders, f"{name} to have leaders")


_names = (f"topic-{number}" for number in itertools.count())


def fresh(wire: Wire, **configs: str) -> str:
    name = next(_names)
    create(wire, name, {config.replace("_", "."): value for config, value in configs.items()})
    return name


def claiming(payload: bytes, count: int, **fields: int) -> bytes:
    """Return a batch with the given header fields, over any payload."""
    header: dict[str, int] = {
        "base_offset": 0, "leader_epoch": -1, "attributes": 0, "last_offset_delta": count - 1, "base_timestamp": NOW,
        "max_timestamp": NOW, "producer_id": -1, "producer_epoch": -1, "base_sequence": -1, "count": count,
    }  # fmt: skip
    return pack_batch(payload, **{**header, **fields})


@cache
def many(count: int, codec: int, **fields: int) -> bytes:
    """Return a batch of `count` records of the smallest size, with keys."""
    payload = b"".join(encode_record(delta, 0, b"", None) for delta in range(count))
    return claiming(payload, count, compression=codec, **fields)


def request(topic: str, *batches: bytes, acks: int = -1) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=records) for index, records in enumerate(batches)]
    return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=data)])


def produce(wire: Wire, topic: str, *batches: bytes, version: int = 9) -> Any:
    answers = wire.request(request(topic, *batches), version).responses[0].partition_responses
    return answers if len(batches) > 1 else answers[0]


def find(wire: Wire, topic: str, timestamp: int) -> Any:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topics = [ListOffsetsTopic(name=topic, partitions=[asked])]
    return wire.request(ListOffsetsRequest(replica_id=-1, topics=topics), 10).topics[0].partitions[0]


# What a header claims


@pytest.mark.parametrize("count", [1_000, 1_000_000, 2**31 - 1])
@pytest.mark.parametrize("topic", [PLAIN, COMPACTED, PACKED, STAMPED])
@pytest.mark.parametrize("fields", [{}, {"attributes": 8, "max_timestamp": -1}, {"max_timestamp": NOW + DAY_MS}])
def test_61_bytes_may_not_claim_any_records(
    node: CountedNode, wire: Wire, topic: str, count: int, fields: dict[str, int]
) -> None:
    end = find(wire, topic, -1).offset
    answer = produce(wire, topic, claiming(b"", count, **fields))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert len(answer.record_errors) <= RECORD_ERRORS_MAX
    assert (node.work.records_in_all, node.work.expanded) == (0, [])
    assert find(wire, topic, -1).offset == end


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_compressed_batch_may_claim_no_more_records_than_its_codec_can_hold(wire: Wire, codec: int) -> None:
    payload = compress(codec, encode_record(0, 0, b"k", b"v"))
    answer = produce(wire, PLAIN, claiming(payload, 2**31 - 1, attributes=codec))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    answer = produce(wire, PLAIN, claiming(bytes(1000), RECORDS_MAX + 1, attributes=codec))
    assert answer.error_code == ErrorCode.INVALID_RECORD


def test_a_batch_full_of_the_smallest_records_is_accepted(wire: Wire) -> None:
    topic = fresh(wire)
    for codec in (0, GZIP, SNAPPY, LZ4, ZSTD):
        assert produce(wire, topic, many(2_000, codec)).error_code == 0
    assert find(wire, topic, -1).offset == 10_000


def test_of_records_that_are_refused_a_hundred_are_named(wire: Wire) -> None:
    late = claiming(b"".join(encode_record(i, 0, b"k", b"v") for i in range(1000)), 1000,
                    base_timestamp=NOW + DAY_MS, max_timestamp=NOW + DAY_MS)  # fmt: skip
    answer = produce(wire, PLAIN, late)
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in answer.record_errors] == list(range(RECORD_ERRORS_MAX))
    stamped = claiming(b"".join(encode_record(i, 0, b"k", b"v") for i in range(1000)), 1000, attributes=8)
    answer = produce(wire, STAMPED, stamped)
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert len(answer.record_errors) == RECORD_ERRORS_MAX


def test_a_future_timestamp_in_the_header_of_a_bomb_is_refused_without_its_records(
    node: CountedNode, wire: Wire
) -> None:
    answer = produce(wire, PLAIN, many(100_000, ZSTD, max_timestamp=NOW + DAY_MS))
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert node.work.records_in_all == 0 and node.work.most_bytes_at_once <= BYTES_A_TURN


def test_a_base_timestamp_whose_records_would_leave_64_bits_is_refused(wire: Wire) -> None:
    answer = produce(wire, PLAIN, claiming(encode_record(0, 1, b"k", b"v"), 1, base_timestamp=2**63 - 1))
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP


def test_where_any_time_is_allowed_a_sum_beyond_64_bits_wraps_as_in_java(wire: Wire) -> None:
    topic = fresh(wire, message_timestamp_after_max_ms=str(2**63 - 1))
    assert produce(wire, topic, claiming(encode_record(0, 1, b"k", b"v"), 1, base_timestamp=2**63 - 1)).error_code == 0
    assert find(wire, topic, 0).offset == -1  # -2^63 is before any offset that exists
    assert produce(wire, topic, claiming(encode_record(0, 0, b"k", b"v"), 1)).error_code == 0
    assert (find(wire, topic, 0).timestamp, find(wire, topic, 0).offset) == (NOW, 1)


# What a payload holds


def test_more_than_256_mib_are_refused_whatever_the_topic_allows(
    node: CountedNode, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    bomb = claiming(encode_record(0, 0, b"k", bytes(DECOMPRESSED_BYTES_MAX)), 1, compression=ZSTD)
    assert len(bomb) < 20_000
    for topic in (COMPACTED, PACKED, PLAIN):
        answer = produce(wire, topic, bomb)
        assert answer.error_code == ErrorCode.INVALID_RECORD
        assert f"over {DECOMPRESSED_BYTES_MAX} bytes" in answer.error_message
    assert node.work.expanded == []
    with monkeypatch.context() as earlier:  # a version that did not look into it has stored one
        earlier.setattr(RecordRules, "asks", lambda *_: False)
        assert produce(wire, PLAIN, bomb).error_code == 0
    assert find(wire, PLAIN, NOW).error_code == ErrorCode.INVALID_RECORD
    assert node.work.expanded == []


def test_a_topics_own_limit_is_kept(wire: Wire) -> None:
    value = bytes(MB + 1)
    assert produce(wire, COMPACTED, build_batch([(b"k", value, NOW)], compression=ZSTD)).error_code == 0
    answer = produce(wire, "bounded", build_batch([(b"k", value, NOW)], compression=ZSTD))
    assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert f"over {MB} bytes" in answer.error_message


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize("topic", [COMPACTED, PACKED, PLAIN])
def test_a_large_record_is_expanded_beside_the_loop(node: CountedNode, wire: Wire, topic: str, codec: int) -> None:
    answer = produce(wire, topic, build_batch([(b"k", bytes(8 * MB), NOW)], compression=codec))
    assert node.work.most_bytes_at_once > 8 * MB
    assert node.work.most_bytes_on_the_loop <= BYTES_A_TURN
    assert answer.error_code == 0


def test_many_tiny_records_are_checked_a_few_in_each_turn(node: CountedNode, wire: Wire) -> None:
    assert produce(wire, COMPACTED, many(100_000, ZSTD)).error_code == 0
    assert node.work.records_in_all == 100_000
    assert node.work.most_records_in_a_turn <= RECORDS_A_TURN
    assert node.work.most_bytes_on_the_loop == 0


def test_others_are_served_while_a_large_batch_is_checked(node: CountedNode, wire: Wire) -> None:
    """The client shares two cores and the interpreter's lock with the node, and may be late: it asks until the work is done."""
    count = 400_000
    with node.wire() as other:
        sent = wire.send(request(COMPACTED, many(count, ZSTD)), 9)
        checked_at_an_answer = set[int]()
        while node.work.records_in_all < count:
            assert other.request(MetadataRequest(topics=[]), 9).brokers
            checked_at_an_answer.add(node.work.records_in_all)
        assert checked_at_an_answer - {0, count}, "no answer came while the batch was checked"
        assert wire.receive(*sent).responses[0].partition_responses[0].error_code == 0


def test_checking_stops_at_the_first_fault(node: CountedNode, wire: Wire) -> None:
    records = [encode_record(delta, 0, b"k", b"v") for delta in range(3000)]
    records[2500] = b"\xff" * 20
    answer = produce(wire, COMPACTED, claiming(b"".join(records), 3000))
    assert answer.error_code == ErrorCode.INVALID_RECORD and "record 2500" in answer.error_message
    assert node.work.records_in_all == 2500
    assert node.work.most_records_in_a_turn <= RECORDS_A_TURN


def test_millions_of_headers_in_one_record_are_work_in_turns_and_bounded(
    node: CountedNode, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.protocol.records.validate.RECORDS_MAX", 200_000)
    header = b"\x00\x01"  # an empty key, no value

    def with_headers(count: int) -> bytes:
        body = b"\x00\x00\x00\x00\x01" + varint(count) + header * count
        return claiming(varint(len(body)) + body, 1, compression=ZSTD)

    assert produce(wire, COMPACTED, with_headers(100_000)).error_code == 0
    turns = len(node.work.records)
    assert turns >= 100_000 // RECORDS_A_TURN
    answer = produce(wire, COMPACTED, with_headers(205_000))
    assert answer.error_code == ErrorCode.INVALID_RECORD and "headers" in answer.error_message


def test_many_middling_batches_of_one_request_share_a_turn(node: CountedNode, wire: Wire) -> None:
    topic = next(_names)
    count = 12
    created = CreatableTopic(
        name=topic, num_partitions=count, replication_factor=1,
        configs=[CreatableTopicConfig(name="cleanup.policy", value="compact")],
    )  # fmt: skip
    wire.request(CreateTopicsRequest(topics=[created], timeout_ms=10_000))
    one = [many(1, 0)] * count
    eventually(
        lambda: not any(each.error_code for each in produce(wire, topic, *one)), "all partitions to have leaders"
    )
    node.work.clear()
    answers = produce(wire, topic, *[many(1_000, LZ4)] * count)
    assert [answer.error_code for answer in answers] == [0] * count
    assert [answer.index for answer in answers] == list(range(count))
    # The batches that fit are appended at once, and the others begin in the same turn.
    assert node.work.most_records_in_a_turn <= 2 * RECORDS_A_TURN


@pytest.mark.parametrize("topic", [PLAIN, STAMPED, COMPACTED])
def test_a_thousand_bad_batches_in_one_request_share_a_turn(node: CountedNode, wire: Wire, topic: str) -> None:
    """A request may name the same partition a thousand times. Each batch is small, and its last record is invalid."""
    late = many(1_500, ZSTD, base_timestamp=NOW + DAY_MS, max_timestamp=NOW + DAY_MS)
    stamped = claiming(b"".join(encode_record(i, 0, b"", None) for i in range(100)), 100, attributes=8)
    keyless = build_batch([(b"", None, NOW)] * 1_500 + [(None, b"", NOW)], compression=ZSTD)
    broken = claiming(compress(GZIP, bytes(100_000))[:-4] + b"\xff" * 4, 5, attributes=GZIP)
    bad = {PLAIN: [late], STAMPED: [stamped], COMPACTED: [late, keyless, broken]}[topic]
    data = [PartitionProduceData(index=0, records=bad[number % len(bad)]) for number in range(1_000)]
    topics = [TopicProduceData(name=topic, partition_data=data)]
    answers = wire.request(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics), 9).responses[0]
    assert len(answers.partition_responses) == 1_000
    assert all(answer.error_code and answer.base_offset == -1 for answer in answers.partition_responses)
    assert answers.partition_responses[0].record_errors, "the first are still explained"
    assert node.work.most_records_in_a_turn <= 2 * RECORDS_A_TURN
    assert sum(len(answer.record_errors) for answer in answers.partition_responses) <= 4 * 1_000


# Order and answers


def test_requests_of_one_connection_take_effect_in_their_order(wire: Wire) -> None:
    topic = fresh(wire, cleanup_policy="compact")
    sent = [many(count, ZSTD) for count in (50_000, 1, 20_000, 2, 3)]
    asked = [wire.send(request(topic, records), 9) for records in sent]
    asked.append(wire.send(ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(timestamp=-1)])]), 10)
    )  # fmt: skip
    answers = [wire.receive(*one) for one in asked]
    offsets = [answer.responses[0].partition_responses[0].base_offset for answer in answers[:-1]]
    assert offsets == [0, 50_000, 50_001, 70_001, 70_003]
    assert answers[-1].topics[0].partitions[0].offset == 70_006


def test_an_idempotent_producers_sequence_is_kept_behind_a_large_batch(wire: Wire) -> None:
    topic = fresh(wire, cleanup_policy="compact")
    asked, sequence = [], 0
    for count in (30_000, 5, 30_000, 1):
        records = many(count, LZ4, producer_id=77, producer_epoch=0, base_sequence=sequence)
        asked.append(wire.send(request(topic, records), 9))
        sequence += count
    codes = [wire.receive(*one).responses[0].partition_responses[0].error_code for one in asked]
    assert codes == [0, 0, 0, 0]


def test_the_batches_of_a_transaction_keep_their_order_whatever_their_size(wire: Wire) -> None:
    topic = fresh(wire, cleanup_policy="compact")
    name = f"transaction on {topic}"
    producer: Any = None

    def initialized() -> bool:
        nonlocal producer
        wire.request(FindCoordinatorRequest(key_type=1, coordinator_keys=[name]), 4)
        producer = wire.request(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000), 5)
        return not producer.error_code

    eventually(initialized, "the coordinator")
    asked, sequence = [], 0
    for count in (3, 30_000, 2, 30_000, 1):
        payload = b"".join(encode_record(delta, 0, b"", None) for delta in range(count))
        records = claiming(
            payload, count, compression=LZ4, attributes=0x10, producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch, base_sequence=sequence,
        )  # fmt: skip
        sent = request(topic, records)
        sent.transactional_id = name
        asked.append(wire.send(sent, 12))
        sequence += count
    answers = [wire.receive(*one).responses[0].partition_responses[0] for one in asked]
    assert [(a.error_code, a.base_offset) for a in answers] == [(0, 0), (0, 3), (0, 30_003), (0, 30_005), (0, 60_005)]
    end = EndTxnRequest(
        transactional_id=name, producer_id=producer.producer_id, producer_epoch=producer.producer_epoch, committed=True
    )
    assert wire.request(end, 5).error_code == 0
    eventually(lambda: find(wire, topic, -1).offset == 60_007, "the marker")


def test_one_answer_covers_what_was_appended_at_once_and_what_later(wire: Wire) -> None:
    topic = fresh(wire, cleanup_policy="compact")
    bad = build_batch([(None, b"no key", NOW)])
    for batches, codes in (
        ((many(1, 0), many(50_000, ZSTD)), [0, 0]),
        ((many(50_000, ZSTD), many(1, 0)), [0, 0]),
        ((bad, many(50_000, ZSTD)), [ErrorCode.INVALID_RECORD, 0]),
        ((many(50_000, ZSTD), bad), [0, ErrorCode.INVALID_RECORD]),
    ):
        answers = produce(wire, topic, *batches)
        assert [(answer.index, answer.error_code) for answer in answers] == list(enumerate(codes))


def test_acks_0_with_a_large_batch_is_not_answered_and_the_next_request_is(wire: Wire) -> None:
    topic = fresh(wire, cleanup_policy="compact")
    wire.send(request(topic, many(50_000, ZSTD), acks=0), 9)
    assert find(wire, topic, -1).offset == 50_000
    wire.send(request(topic, claiming(b"\xff" * 40_000, 5_000), acks=0), 9)
    assert wire.closed_by_server()


def test_a_large_batch_is_appended_though_its_sender_has_gone(node: CountedNode, wire: Wire) -> None:
    topic = fresh(wire, cleanup_policy="compact")
    with node.wire() as gone:
        gone.send(request(topic, many(50_000, ZSTD), acks=0), 9)
    eventually(lambda: find(wire, topic, -1).offset == 50_000, "the batch")


def test_zstd_is_for_produce_from_version_7_on(wire: Wire) -> None:
    topic = fresh(wire)
    records = build_batch([(b"k", b"v", NOW)], compression=ZSTD)
    for version in range(3, 7):
        answer = produce(wire, topic, records, version=version)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, -1)
    assert produce(wire, topic, records, version=7).base_offset == 0
    assert produce(wire, topic, build_batch([(b"k", b"v", NOW)], compression=LZ4), version=6).base_offset == 1


# Searches by time


def test_a_search_by_time_looks_at_a_few_records_in_each_turn_and_stops_at_the_first_hit(
    node: CountedNode, wire: Wire
) -> None:
    topic = fresh(wire)
    payload = b"".join(encode_record(delta, delta, None, None) for delta in range(100_000))
    records = claiming(payload, 100_000, compression=ZSTD, max_timestamp=NOW + 99_999)
    assert produce(wire, topic, records).error_code == 0
    node.work.clear()
    assert find(wire, topic, NOW + 5).offset == 5
    assert node.work.records_in_all == 6
    node.work.clear()
    assert find(wire, topic, NOW + 99_990).offset == 99_990
    assert node.work.records_in_all == 99_991
    assert node.work.most_records_in_a_turn <= RECORDS_A_TURN
    assert node.work.most_bytes_on_the_loop == 0
    node.work.clear()
    assert find(wire, topic, -3).offset == 99_999
    assert node.work.most_records_in_a_turn <= RECORDS_A_TURN


def test_headers_that_lie_about_their_time_do_not_hold_the_loop(node: CountedNode, wire: Wire) -> None:
    topic = fresh(wire)
    liar = claiming(b"".join(encode_record(i, 0, None, b"") for i in range(10)), 10, max_timestamp=NOW + 1000)
    for _ in range(1000):
        assert produce(wire, topic, liar).error_code == 0
    node.work.clear()
    assert find(wire, topic, NOW + 1).offset == -1
    assert node.work.records_in_all == 10_000
    assert node.work.most_records_in_a_turn <= RECORDS_A_TURN
    # The largest timestamp is that of a record, even if a header claims a larger one.
    answer = find(wire, topic, -3)
    assert (answer.timestamp, answer.offset) == (NOW, 0)
    assert produce(wire, topic, build_batch([(None, b"", NOW + 500)])).base_offset == 10_000
    answer = find(wire, topic, -3)
    assert (answer.timestamp, answer.offset) == (NOW + 500, 10_000)
    assert node.work.most_records_in_a_turn <= RECORDS_A_TURN


def test_the_largest_timestamp_is_of_a_record_that_was_not_deleted(wire: Wire) -> None:
    topic = fresh(wire)
    for at in (10, 90, 30, 50, 40):
        assert produce(wire, topic, build_batch([(b"k", b"v", NOW - 100 + at)])).error_code == 0
    assert find(wire, topic, -3).offset == 1
    for before, offset, timestamp in ((2, 3, 50), (4, 4, 40), (5, -1, None)):
        partition = DeleteRecordsPartition(partition_index=0, offset=before)
        wire.request(
            DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=5000)
        )
        answer = find(wire, topic, -3)
        assert (answer.error_code, answer.offset) == (0, offset)
        assert answer.timestamp == (-1 if timestamp is None else NOW - 100 + timestamp)


def test_a_batch_that_was_deleted_in_part_names_the_largest_of_the_rest(wire: Wire) -> None:
    topic = fresh(wire)
    assert produce(wire, topic, build_batch([(b"k", b"v", NOW - at) for at in (0, 5, 3, 9)])).error_code == 0
    partition = DeleteRecordsPartition(partition_index=0, offset=1)
    wire.request(DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=5000))
    answer = find(wire, topic, -3)
    assert (answer.offset, answer.timestamp) == (2, NOW - 3)


def test_twenty_poison_batches_make_no_files(node: CountedNode, wire: Wire) -> None:
    topic = fresh(wire)
    assert produce(wire, topic, many(1, 0)).error_code == 0
    for _ in range(20):
        assert produce(wire, topic, claiming(b"", 2**31 - 1)).error_code == ErrorCode.INVALID_RECORD
    directory = Path(node.properties["log.dirs"]) / f"{topic}-0"
    assert len(list(directory.glob("*.log"))) == 1


def test_a_segment_that_cannot_be_read_fails_a_search_of_its_partition_only(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        first = CountedNode(tmp_path, monkeypatch)
        with first.wire() as wire:
            create(wire, "two", {"internal.segment.bytes": "1000"})
            for _ in range(5):
                produce(wire, "two", build_batch([(b"k", bytes(600), NOW)]), build_batch([(b"k", bytes(600), NOW)]))
        first.stop()
        second = CountedNode(tmp_path, monkeypatch)
        with second.wire() as wire:
            eventually(lambda: find(wire, "two", -1).offset == 5, "the topic to be led again")
            sealed = min((tmp_path / "two-0").glob("*.log"))
            sealed.unlink()
            partitions = [ListOffsetsPartition(partition_index=index, timestamp=NOW - 5) for index in (0, 1)]
            asked = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="two", partitions=partitions)])
            bad, good = wire.request(asked, 10).topics[0].partitions
            assert (bad.error_code, bad.offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
            assert (good.error_code, good.offset) == (0, 0)
        second.stop()
