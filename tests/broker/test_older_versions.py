"""Versions that Kafka 4.0 removed (KIP-896), at a node that advertises a release which had them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka.record.memory_records import MemoryRecords

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.fetch import FetchRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.messages.shared_structs import TopicPartitionIndexes
from ottla.protocol.records.compression import CODECS, GZIP, ZSTD
from tests.broker.conftest import Node, eventually, start_node, stop_node
from tests.broker.fetch.test_handler import fetch
from tests.broker.produce.test_handler import request as produce_request
from tests.broker.records import batch
from tests.broker.wire import Wire
from tests.protocol.records.test_message_set import message_set

ROWS: list[tuple[bytes | None, bytes | None, int]] = [(b"k", b"v", 1_600_000_000_000), (None, b"w", 1_600_000_000_001)]
TOPIC, GROUP = "old", "old-group"


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    started = start_node(ottla_advertised_release="3.5")
    started.create(TOPIC)
    yield started
    stop_node(started)


@pytest.fixture
def wire(node: Node) -> Iterator[Wire]:
    with node.wire() as opened:
        yield opened


def produce(wire: Wire, records: bytes, version: int, topic: str = TOPIC) -> Any:
    return wire.request(produce_request(records, name=topic), version).responses[0].partition_responses[0]


def read(wire: Wire, offset: int, version: int, topic: str = TOPIC, **options: Any) -> tuple[Any, list[Any]]:
    found = wire.request(fetch(topic, offset, **options), version).responses[0].partitions[0]
    records, rows = MemoryRecords(bytes(found.records)), []
    while records.has_next():
        part = records.next_batch()
        assert part.validate_crc() and part.__class__.__name__ == (
            "LegacyRecordBatch" if version < 4 else "DefaultRecordBatch"
        )
        rows += list(part)
    return found, rows


@pytest.mark.parametrize("codec", [0, GZIP])
@pytest.mark.parametrize("version", range(3))
def test_a_message_set_is_produced_and_every_version_reads_it(wire: Wire, version: int, codec: int) -> None:
    magic = int(version >= 2)
    answer = produce(wire, message_set(magic, codec, ROWS), version)
    assert answer.error_code == 0
    for fetched in (0, 1, 2, 3, 4, 12):
        found, rows = read(wire, answer.base_offset, fetched)
        assert (found.error_code, found.high_watermark) == (0, answer.base_offset + 2)
        assert [(row.offset - answer.base_offset, row.key, row.value) for row in rows] == [
            (0, b"k", b"v"),
            (1, None, b"w"),
        ]
        if magic and fetched >= 2:
            assert [row.timestamp for row in rows] == [row[2] for row in ROWS]


def test_many_messages_are_produced_and_read_part_by_part(wire: Wire, node: Node) -> None:
    node.create("many")
    rows: list[tuple[bytes | None, bytes | None, int]] = [(None, b"%d" % i, 1) for i in range(20_000)]
    assert produce(wire, message_set(1, 0, rows), 2, "many").error_code == 0
    offset = 0
    while offset < len(rows):
        _, part = read(wire, offset, 3, "many", partition_bytes=1 << 18)
        assert part and part[0].value == b"%d" % offset
        offset = part[-1].offset + 1


@pytest.mark.parametrize("damaged", [message_set(1)[:-1] + b"!", b"", b"\0" * 20, message_set(1)[:-1]])
def test_a_damaged_set_is_answered_with_an_error_that_its_client_knows(wire: Wire, damaged: bytes) -> None:
    assert produce(wire, damaged, 2).error_code == ErrorCode.CORRUPT_MESSAGE
    assert produce(wire, message_set(1), 2).error_code == 0, "the connection goes on"


def test_acks_0_with_a_damaged_set_closes_the_connection(wire: Wire) -> None:
    wire.send(produce_request(b"\0" * 20, name=TOPIC, acks=0), 2)
    assert wire.closed_by_server()


def test_a_consumer_of_messages_passes_over_markers_of_transactions(node: Node, wire: Wire) -> None:
    """The consumer asks from its last message on: a response without messages would hold it there for good."""
    node.create("transactions")
    producer = Producer({"bootstrap.servers": node.bootstrap, "transactional.id": "t"})
    producer.init_transactions(10)
    for value in (b"a", b"b"):
        producer.begin_transaction()
        producer.produce("transactions", value)
        producer.commit_transaction(10)
    offset, values = 0, []
    while len(values) < 2:
        found, rows = read(wire, offset, 3, "transactions", partition_bytes=80)
        assert rows, offset
        values += [row.value for row in rows]
        offset = rows[-1].offset + 1
    assert values == [b"a", b"b"]
    found, rows = read(wire, offset, 3, "transactions")
    assert (found.error_code, rows) == (0, [])


def test_zstd_is_not_read_by_a_client_that_cannot_know_it(node: Node, wire: Wire) -> None:
    node.create("zstd")
    assert produce(wire, batch([b"z"], compression=ZSTD), 7, "zstd").error_code == 0
    assert CODECS[ZSTD].name == "zstd"
    for version in (0, 3):
        assert read(wire, 0, version, "zstd")[0].error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_offsets_are_listed_backwards_in_version_0(node: Node, wire: Wire) -> None:
    node.create("listed")
    for _ in range(3):
        produce(wire, message_set(1, 0, ROWS), 2, "listed")

    def listed(timestamp: int, most: int = 10) -> list[int]:
        asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp, max_num_offsets=most)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic("listed", [asked])])
        answer = wire.request(request, 0).topics[0].partitions[0]
        assert answer.error_code == 0
        return list(answer.old_style_offsets)

    assert (listed(-1), listed(-1, 1), listed(-2), listed(-1, 0)) == ([6, 0], [6], [0], [])
    assert listed(2_000_000_000_000) == [6, 0], "all of it is older"
    assert listed(1_000_000_000_000) == [0]


def test_offsets_of_groups_without_members_are_committed_and_read(wire: Wire) -> None:
    def commit(version: int, offset: int) -> int:
        partition = OffsetCommitRequestPartition(0, offset, committed_metadata="m")
        request = OffsetCommitRequest(
            group_id=GROUP, topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])]
        )
        return int(wire.request(request, version).topics[0].partitions[0].error_code)

    def committed(version: int, *indexes: int) -> list[tuple[int, int]]:
        request = OffsetFetchRequest(group_id=GROUP, topics=[TopicPartitionIndexes(TOPIC, list(indexes))])
        rows = wire.request(request, version).topics[0].partitions
        return [(row.committed_offset, row.error_code) for row in rows]

    wire.request(FindCoordinatorRequest(key=GROUP), 0)
    eventually(lambda: commit(0, 1) == 0, "the coordinator of the group")
    assert committed(0, 0, 1) == [(1, 0), (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert commit(1, 2) == 0
    assert committed(1, 0, 1) == [(2, 0), (-1, 0)]


def test_topics_are_created_described_and_deleted(wire: Wire) -> None:
    def create(version: int) -> list[int]:
        topic = CreatableTopic(name=f"made{version}", num_partitions=1, replication_factor=1)
        return [
            t.error_code for t in wire.request(CreateTopicsRequest(topics=[topic], timeout_ms=5000), version).topics
        ]

    assert [create(0), create(1), create(0)] == [[0], [0], [ErrorCode.TOPIC_ALREADY_EXISTS]]
    resource = DescribeConfigsResource(resource_type=2, resource_name="made0", configuration_keys=["retention.ms"])
    (described,) = wire.request(DescribeConfigsRequest(resources=[resource]), 0).results
    assert [(row.name, row.value, row.is_default) for row in described.configs] == [("retention.ms", "604800000", True)]
    deleted = wire.request(DeleteTopicsRequest(topic_names=["made0", "made1"], timeout_ms=5000), 0)
    assert [each.error_code for each in deleted.responses] == [0, 0]


@pytest.mark.parametrize("version", [0, 1])
def test_the_end_of_an_epoch(wire: Wire, version: int) -> None:
    assert produce(wire, message_set(1, 0, ROWS), 2).error_code == 0
    asked = OffsetForLeaderTopic(TOPIC, [OffsetForLeaderPartition(partition=0, leader_epoch=0)])
    answer = wire.request(OffsetForLeaderEpochRequest(topics=[asked]), version).topics[0].partitions[0]
    assert answer.error_code == 0 and answer.end_offset > 0
    assert answer.leader_epoch == (0 if version else -1), "v0 has no epoch in its response"


@pytest.mark.parametrize(("message", "version"), [(ProduceRequest, 10), (FetchRequest, 16)])
def test_a_version_that_came_later_closes_the_connection(wire: Wire, message: type[Any], version: int) -> None:
    wire.send(message(), version)
    assert wire.closed_by_server()
