"""Share groups of a node whose persister keeps nothing (`group.share.persister.class.name=`): they work without `__share_group_state`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.controller.metadata.topic_names import SHARE_GROUP_STATE_TOPIC
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.server.config.broker import BROKER_CONFIGS
from ottla.server.config.key import ConfigError
from tests.broker.conftest import Node, eventually, start_node, stop_node
from tests.broker.groups.share.wire_member import WireMember
from tests.broker.records import batch
from tests.broker.share.member import ACCEPT, ShareMember, set_group
from tests.broker.wire import Wire

NAME = "group.share.persister.class.name"


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    started = start_node(group_share_persister_class_name="")
    started.create("orders")
    yield started
    stop_node(started)


def topics(wire: Wire) -> dict[str, bytes]:
    return {topic.name: topic.topic_id for topic in wire.request(MetadataRequest(topics=None), 12).topics}


def test_a_group_consumes_and_begins_again_when_its_last_member_has_left(node: Node) -> None:
    with node.wire() as wire:
        set_group(wire, "g", share_auto_offset_reset="earliest")
        data = TopicProduceData("orders", partition_data=[PartitionProduceData(0, batch([b"a", b"b"]))])
        produced = wire.request(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data]), 9)
        assert produced.responses[0].partition_responses[0].error_code == 0
        member = WireMember(wire, "g")
        eventually(lambda: member.joins("orders"), "the group coordinator")
        eventually(lambda: member.has([0]), "its assignment")
        at = (topics(wire)["orders"], 0)
        for _ in range(2):
            with node.wire() as own:
                session = ShareMember(own, "g", [at])
                found = session.fetch()
                while at not in found:  # at first the partition is being loaded
                    found = session.fetch()
                assert found[at].counts == {0: 1, 1: 1}
                assert session.acknowledge(at, (0, 1, [ACCEPT])) == ErrorCode.NONE
                session.leave()
        asked = DescribeShareGroupOffsetsRequest(groups=[DescribeShareGroupOffsetsRequestGroup("g", None)])
        [described] = wire.request(asked).groups[0].topics
        assert (described.topic_name, described.partitions[0].start_offset) == ("orders", -1)
        assert member.beat(epoch=-1).error_code == ErrorCode.NONE
        assert wire.request(DeleteGroupsRequest(groups_names=["g"])).results[0].error_code == ErrorCode.NONE
        assert SHARE_GROUP_STATE_TOPIC not in topics(wire)


def test_a_persister_that_is_not_kafkas_is_refused() -> None:
    with pytest.raises(ConfigError, match="String must be one of"):
        BROKER_CONFIGS[NAME].parse("com.acme.Ours")
