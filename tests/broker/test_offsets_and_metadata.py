"""ListOffsets, Metadata, and the APIs that describe topics, configs, producers, directories and the cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.controller.metadata.topic_names import NAME_LENGTH_MAX
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from ottla.protocol.messages.describe_producers import DescribeProducersRequest
from ottla.protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.list_config_resources import ListConfigResourcesRequest
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.shared_structs import TopicNamePartitions
from ottla.protocol.messages.shared_structs import TopicPartitionIndexes as ProducersTopic
from ottla.protocol.messages.unregister_controller import UnregisterControllerRequest
from tests.broker.conftest import Node
from tests.broker.records import batch
from tests.broker.wire import Wire

T = 1_700_000_000_000
TOPIC = "times"


@pytest.fixture
def wire(node: Node) -> Iterator[Wire]:
    with node.wire() as opened:
        yield opened


def append(wire: Wire, topic: str, records: bytes) -> None:
    answer = wire.request(
        ProduceRequest(
            acks=-1,
            timeout_ms=5000,
            topic_data=[TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])],
        ),
        9,
    )
    assert answer.responses[0].partition_responses[0].error_code == 0


@pytest.fixture(scope="module", autouse=True)
def times(node: Node) -> None:
    """Create a topic with offsets 0 to 4 and timestamps out of order, and a topic with its first three records deleted."""
    node.create(TOPIC)
    node.create("trimmed")
    with node.wire() as wire:
        for at in (10, 30, 20, 50, 40):
            append(wire, TOPIC, batch([b"x"], timestamp=T + at))
        append(wire, "trimmed", batch([b"x"] * 3))
        append(wire, "trimmed", batch([b"x"] * 2, producer_id=99, producer_epoch=3, base_sequence=0))
        wire.request(
            DeleteRecordsRequest(
                topics=[
                    DeleteRecordsTopic(name="trimmed", partitions=[DeleteRecordsPartition(partition_index=0, offset=3)])
                ],
                timeout_ms=5000,
            )
        )


def offset_at(wire: Wire, timestamp: int, version: int = 11, topic: str = TOPIC, **options: int) -> Any:
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp, **options)]
            )
        ],
    )
    return wire.request(request, version).topics[0].partitions[0]


@pytest.mark.parametrize("version", range(1, 12))
def test_every_version_knows_both_ends(wire: Wire, version: int) -> None:
    assert offset_at(wire, -1, version).offset == 5
    assert offset_at(wire, -2, version).offset == 0
    assert offset_at(wire, -2, version, "trimmed").offset == 3


@pytest.mark.parametrize(
    ("at", "offset", "found"), [(0, 0, 10), (10, 0, 10), (11, 1, 30), (31, 3, 50), (50, 3, 50), (51, -1, None)]
)
def test_the_first_offset_at_or_after_a_time(wire: Wire, at: int, offset: int, found: int | None) -> None:
    answer = offset_at(wire, T + at)
    assert (answer.error_code, answer.offset) == (0, offset)
    assert answer.timestamp == (-1 if found is None else T + found)


def test_the_record_with_the_largest_timestamp(wire: Wire) -> None:
    answer = offset_at(wire, -3)
    assert (answer.offset, answer.timestamp) == (3, T + 50)
    assert offset_at(wire, -3, 6).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_named_places_of_tiered_storage(wire: Wire) -> None:
    assert offset_at(wire, -4, topic="trimmed").offset == 3
    assert offset_at(wire, -5).offset == -1
    assert offset_at(wire, -6).offset == -1
    assert offset_at(wire, -4, 7).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert offset_at(wire, -77).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_leader_epochs_are_checked(wire: Wire) -> None:
    assert offset_at(wire, -1, current_leader_epoch=5).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert offset_at(wire, -1, current_leader_epoch=0).error_code == 0
    assert offset_at(wire, -1, topic="nowhere").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_partition_asked_for_twice_is_refused(wire: Wire) -> None:
    one = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=[one, one])])
    codes = [p.error_code for p in wire.request(request).topics[0].partitions]
    assert codes == [ErrorCode.INVALID_REQUEST] * 2


def test_the_end_of_a_leader_epoch(wire: Wire) -> None:
    def ask(epoch: int, **options: int) -> Any:
        asked = OffsetForLeaderPartition(partition=0, leader_epoch=epoch, **options)
        request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=TOPIC, partitions=[asked])])
        return wire.request(request).topics[0].partitions[0]

    assert (ask(0).leader_epoch, ask(0).end_offset) == (0, 5)
    assert (ask(7).leader_epoch, ask(7).end_offset) == (-1, -1)
    assert ask(0, current_leader_epoch=4).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


# -- Metadata ---------------------------------------------------------------------------------------------------------


def metadata(wire: Wire, version: int, *names: str, create: bool = False) -> Any:
    return wire.request(
        MetadataRequest(topics=[MetadataRequestTopic(name=n) for n in names], allow_auto_topic_creation=create), version
    )


@pytest.mark.parametrize("version", range(4, 14))
def test_every_version_returns_brokers_and_leaders(node: Node, wire: Wire, version: int) -> None:
    answer = metadata(wire, version, TOPIC)
    assert [(b.node_id, b.host, b.port) for b in answer.brokers] == [(1, "127.0.0.1", node.port)]
    assert answer.controller_id == 1
    (topic,) = answer.topics
    (partition,) = topic.partitions
    assert (topic.error_code, partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (0, 1, [1], [1])
    assert (topic.topic_id != bytes(16)) == (version >= 10)


def test_no_topics_and_all_topics_are_distinguished_by_version(wire: Wire) -> None:
    assert len(wire.request(MetadataRequest(topics=[]), 0).topics) >= 2
    assert wire.request(MetadataRequest(topics=[]), 1).topics == []
    assert len(wire.request(MetadataRequest(topics=None), 1).topics) >= 2


def test_mentioning_a_topic_creates_it_only_if_the_client_allows_it(wire: Wire) -> None:
    assert metadata(wire, 9, "not-yet").topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert metadata(wire, 9, "not-yet", create=True).topics[0].error_code == 0
    assert metadata(wire, 9, "not-yet").topics[0].error_code == 0


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "x" * (NAME_LENGTH_MAX + 1), "a/b"])
def test_an_illegal_name_is_neither_found_nor_created(wire: Wire, name: str) -> None:
    assert metadata(wire, 9, name, create=True).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_topics_by_id(wire: Wire) -> None:
    topic_id = metadata(wire, 12, TOPIC).topics[0].topic_id
    by_id = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=topic_id)])
    assert wire.request(by_id, 12).topics[0].name == TOPIC
    unknown = wire.request(MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=b"?" * 16)]), 12).topics[0]
    assert (unknown.error_code, unknown.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)


@pytest.mark.parametrize("version", [12, 13])
def test_a_request_with_a_topic_id_is_for_ids_and_has_no_rows_for_its_names(wire: Wire, version: int) -> None:
    topic_id = metadata(wire, 12, TOPIC).topics[0].topic_id
    by_id = MetadataRequestTopic(name=None, topic_id=topic_id)
    by_name, unknown = MetadataRequestTopic(name=TOPIC), MetadataRequestTopic(name="unheard-of")
    both = MetadataRequestTopic(name="unheard-of", topic_id=topic_id)
    for asked in ([by_id, by_name], [by_name, by_id], [by_id, unknown], [both], [both, by_id], [by_name, by_name]):
        topics = wire.request(MetadataRequest(topics=asked), version).topics
        assert [(topic.name, topic.topic_id, topic.error_code) for topic in topics] == [(TOPIC, topic_id, 0)]
    assert metadata(wire, version, "unheard-of").topics[0].error_code, "it was not created"


def test_a_client_is_answered_with_the_address_it_dialled(node: Node) -> None:
    with Wire(node.port, host="127.0.0.1") as wire:
        assert wire.request(MetadataRequest(topics=[]), 9).brokers[0].host == "127.0.0.1"


def test_the_cluster_describes_itself(node: Node, wire: Wire) -> None:
    answer = wire.request(DescribeClusterRequest(include_cluster_authorized_operations=True), 2)
    assert [(b.broker_id, b.port, b.is_fenced) for b in answer.brokers] == [(1, node.port, False)]
    assert answer.cluster_authorized_operations > 0
    assert wire.request(DescribeClusterRequest(endpoint_type=2), 1).error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
    assert wire.request(DescribeClusterRequest(endpoint_type=9), 1).error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE


def test_topics_are_described_page_by_page(node: Node, wire: Wire) -> None:
    node.create("paged-a", partitions=3)
    node.create("paged-b", partitions=2)
    names = [TopicRequest(name="paged-b"), TopicRequest(name="paged-a")]
    cursor, pages = None, []
    while True:
        page = wire.request(DescribeTopicPartitionsRequest(topics=names, response_partition_limit=2, cursor=cursor))
        pages.append([(t.name, p.partition_index) for t in page.topics for p in t.partitions])
        cursor = page.next_cursor
        if cursor is None:
            break
    assert pages == [
        [("paged-a", 0), ("paged-a", 1)],
        [("paged-a", 2), ("paged-b", 0)],
        [("paged-b", 1)],
    ]
    bad = wire.request(DescribeTopicPartitionsRequest(cursor=Cursor(topic_name="paged-a", partition_index=-1)))
    assert all(t.error_code == ErrorCode.INVALID_REQUEST for t in bad.topics)


# -- Configs ----------------------------------------------------------------------------------------------------------


def configs(wire: Wire, kind: int, name: str, *keys: str) -> Any:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
    return wire.request(request).results[0]


def test_a_topics_config_says_where_its_value_is_from(node: Node, wire: Wire) -> None:
    node.create("configured", retention_ms="5000")
    (own,) = configs(wire, 2, "configured", "retention.ms").configs
    assert (own.value, own.config_source, own.config_type) == ("5000", 1, 5)
    assert [(s.name, s.source) for s in own.synonyms] == [("retention.ms", 1)]
    assert own.documentation
    (default,) = configs(wire, 2, TOPIC, "retention.ms").configs
    assert (default.value, default.config_source) == ("604800000", 5)


def test_a_brokers_config_is_described_by_that_broker_only(wire: Wire) -> None:
    answer = configs(wire, 4, "1", "log.dirs", "node.id")
    assert answer.error_code == 0
    assert {c.name: c.config_source for c in answer.configs} == {"log.dirs": 4, "node.id": 4}
    assert configs(wire, 4, "2").error_code == ErrorCode.INVALID_REQUEST
    assert configs(wire, 4, "one").error_code == ErrorCode.INVALID_REQUEST
    assert configs(wire, 4, "").error_code == 0


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        (2, "nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (2, "not legal", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (8, "1", ErrorCode.NONE),
        (8, "", ErrorCode.INVALID_REQUEST),
        (16, "nothing", ErrorCode.NONE),
        (32, "some-group", ErrorCode.NONE),
        (32, "", ErrorCode.INVALID_REQUEST),
        (3, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_every_kind_of_resource(wire: Wire, kind: int, name: str, expected: ErrorCode) -> None:
    assert configs(wire, kind, name).error_code == expected


@pytest.mark.parametrize(
    ("name", "text"), [("nowhere", ""), ("not legal", "Topic name is invalid: 'not legal' contains")]
)
def test_the_words_about_a_topic_that_is_none_are_kafkas(wire: Wire, name: str, text: str) -> None:
    said = configs(wire, 2, name).error_message
    assert said.startswith(text) and bool(said) == bool(text)


def test_resources_with_configs_are_listed(wire: Wire) -> None:
    listed = wire.request(ListConfigResourcesRequest(resource_types=[2, 4]), 1).config_resources
    assert (TOPIC, 2) in [(r.resource_name, r.resource_type) for r in listed]
    assert ("1", 4) in [(r.resource_name, r.resource_type) for r in listed]
    bad = wire.request(ListConfigResourcesRequest(resource_types=[99]), 1)
    assert bad.error_code == ErrorCode.UNSUPPORTED_VERSION


# -- The rest ---------------------------------------------------------------------------------------------------------


def test_producers_of_a_partition(wire: Wire) -> None:
    request = DescribeProducersRequest(topics=[ProducersTopic(name="trimmed", partition_indexes=[0, 5])])
    here, missing = wire.request(request).topics[0].partitions
    (producer,) = here.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (99, 3, 1)
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_log_directories_and_what_is_in_them(wire: Wire) -> None:
    asked = DescribeLogDirsRequest(topics=[TopicNamePartitions(topic=TOPIC, partitions=[0])])
    (result,) = wire.request(asked).results
    ((topic,), total) = (result.topics, result.total_bytes)
    assert (topic.name, topic.partitions[0].partition_index) == (TOPIC, 0)
    assert topic.partitions[0].partition_size == 5 * len(batch([b"x"]))
    assert 0 < result.usable_bytes <= total
    assert len(wire.request(DescribeLogDirsRequest(topics=None)).results[0].topics) >= 2


def test_producer_ids_are_never_given_twice(wire: Wire) -> None:
    ids = [wire.request(InitProducerIdRequest(transactional_id=None), 4).producer_id for _ in range(2_500)]
    assert len(set(ids)) == len(ids)
    assert min(ids) >= 0


def test_internal_settings_that_a_topic_was_created_with_are_described(node: Node, wire: Wire) -> None:
    node.create("small", internal_segment_bytes="5000")
    rows = [DescribeConfigsResource(resource_type=2, resource_name=name) for name in ("small", TOPIC)]
    small, other = wire.request(DescribeConfigsRequest(resources=rows)).results
    assert [row.value for row in small.configs if row.name == "internal.segment.bytes"] == ["5000"]
    assert "internal.segment.bytes" not in {row.name for row in other.configs}


def test_unregister_controller_reaches_the_controller(wire: Wire) -> None:
    answer = wire.request(UnregisterControllerRequest(controller_id=9))
    assert answer.error_code == ErrorCode.CONTROLLER_ID_NOT_REGISTERED


def test_records_are_deleted_for_a_client_that_does_not_want_to_wait(node: Node, wire: Wire) -> None:
    """librdkafka's operation timeout is 0 by default. With one replica the response waits only for this broker's disk."""
    node.create("purged")
    append(wire, "purged", batch([b"x"] * 3))
    asked = DeleteRecordsTopic(name="purged", partitions=[DeleteRecordsPartition(partition_index=0, offset=2)])
    found = wire.request(DeleteRecordsRequest(topics=[asked], timeout_ms=0)).topics[0].partitions[0]
    assert (found.error_code, found.low_watermark) == (0, 2)
