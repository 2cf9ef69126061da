"""Errors of the APIs of consumer, share and streams groups: the code, and no message that only repeats it; Kafka 4.3.1 sends null, too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.describe_producers import DescribeProducersRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.messages.shared_structs import TopicPartitionIndexes
from ottla.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from ottla.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from tests.broker.conftest import Node, start_node, stop_node
from tests.broker.wire import Wire

MEMBER = {"group_id": "g", "member_id": "m"}
REFUSED = {
    "the group's protocol is not enabled here": (
        ErrorCode.UNSUPPORTED_VERSION,
        [
            ConsumerGroupHeartbeatRequest(**MEMBER),
            ConsumerGroupDescribeRequest(group_ids=["g"]),
            StreamsGroupHeartbeatRequest(**MEMBER),
            StreamsGroupDescribeRequest(group_ids=["g"]),
        ],
    ),
    "the offsets topic cannot be created": (
        ErrorCode.NOT_COORDINATOR,
        [
            ShareGroupHeartbeatRequest(subscribed_topic_names=["t"], **MEMBER),
            ShareGroupDescribeRequest(group_ids=["g"]),
            AlterShareGroupOffsetsRequest(group_id="g"),
        ],
    ),
    "there is no group without an id": (
        ErrorCode.INVALID_GROUP_ID,
        [ShareGroupDescribeRequest(group_ids=[""]), AlterShareGroupOffsetsRequest(group_id="")],
    ),
}


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    started = start_node(group_coordinator_rebalance_protocols="classic", offsets_topic_replication_factor="3")
    yield started
    stop_node(started)


@pytest.fixture
def wire(node: Node) -> Iterator[Wire]:
    with node.wire() as opened:
        yield opened


@pytest.mark.parametrize("why", REFUSED)
def test_the_error_of_a_group_has_a_code_and_no_message(wire: Wire, why: str) -> None:
    code, requests = REFUSED[why]
    for request in requests:
        answer: Any = wire.request(request)
        answer = answer.groups[0] if hasattr(answer, "groups") else answer
        assert (answer.error_code, answer.error_message) == (code, None), request


def test_an_offsets_topic_that_cannot_be_created_is_no_coordinator(wire: Wire) -> None:
    """Kafka 4.3.1 gives the same answer if there are fewer brokers than offsets.topic.replication.factor."""
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    assert wire.request(find).coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    topic = MetadataRequestTopic(name="__consumer_offsets")
    assert (
        wire.request(MetadataRequest(topics=[topic]), 12).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    assert wire.request(HeartbeatRequest(group_id="g", member_id="m")).error_code == ErrorCode.NOT_COORDINATOR


def test_a_message_that_says_more_is_kafkas(wire: Wire) -> None:
    asked = DescribeProducersRequest(topics=[TopicPartitionIndexes(name="t", partition_indexes=[8])])
    partition = wire.request(asked).topics[0].partitions[0]
    assert (partition.error_code, partition.error_message) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
    answer = wire.request(DescribeClusterRequest(endpoint_type=2))
    assert answer.error_message == (
        "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
    )
    assert wire.request(DescribeClusterRequest(endpoint_type=9)).error_message == "Unsupported endpoint type 9"
