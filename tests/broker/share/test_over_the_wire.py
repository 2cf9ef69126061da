"""Share groups and the states of their partitions on a real node, which is stopped and started: all is in the logs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.features import SHARE_VERSION
from ottla.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from ottla.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.protocol.primitives import uuid_to_str
from tests.broker.conftest import Node, eventually, start_node, stop_node
from tests.broker.groups.share.wire_member import WireMember
from tests.broker.share.state_client import StateClient
from tests.broker.wire import Wire

SHARE = 2
GROUP_RESOURCE, SET, SAFE_DOWNGRADE = 32, 0, 2


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("share") / "data"


@pytest.fixture(scope="module")
def nodes(directory: Path) -> Iterator[list[Node]]:
    """Yield the list of started nodes, of which the last one runs."""
    started = [start_node(directory, share_coordinator_state_topic_num_partitions="3")]
    started[0].create("orders", 2)
    yield started
    stop_node(started[-1])


@pytest.fixture
def wire(nodes: list[Node]) -> Iterator[Wire]:
    with nodes[-1].wire() as opened:
        yield opened


def topic_id(wire: Wire) -> bytes:
    found = wire.request(MetadataRequest(topics=[MetadataRequestTopic(name="orders")]), 12).topics[0].topic_id
    assert isinstance(found, bytes)
    return found


def find(wire: Wire, key: str, version: int = 6) -> ErrorCode:
    request = FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[key])
    return ErrorCode(wire.request(request, version).coordinators[0].error_code)


def coordinated(wire: Wire, group_id: str, partition: int = 0) -> StateClient:
    """Return a client of a share partition whose coordinator is there."""
    id_ = topic_id(wire)
    key = f"{group_id}:{uuid_to_str(id_)}:{partition}"
    eventually(lambda: find(wire, key) == ErrorCode.NONE, "the share coordinator")
    client = StateClient(wire, group_id, id_, partition)
    eventually(lambda: client.summary().error_code == ErrorCode.NONE, "its shard to be loaded")
    return client


def test_a_state_survives_a_restart_with_its_epochs(nodes: list[Node], directory: Path) -> None:
    with nodes[-1].wire() as wire:
        state = coordinated(wire, "durable")
        assert state.initialize(state_epoch=4).error_code == ErrorCode.NONE
        assert state.read(leader_epoch=2).start_offset == -1
        assert state.write((5, 9, 2, 1), state_epoch=4, leader_epoch=2, start_offset=5).error_code == ErrorCode.NONE
    stop_node(nodes[-1])
    nodes.append(start_node(directory, nodes[-1].port))
    with nodes[-1].wire() as wire:
        state = coordinated(wire, "durable")
        assert state.write(state_epoch=4, leader_epoch=1).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert state.write(state_epoch=3, leader_epoch=2).error_code == ErrorCode.FENCED_STATE_EPOCH
        found = state.read(leader_epoch=2)
        (batch,) = found.state_batches
        assert (found.state_epoch, found.start_offset) == (4, 5)
        assert (batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count) == (5, 9, 2, 1)
        assert state.delete().error_code == ErrorCode.NONE
        assert state.read(leader_epoch=2).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("key", ["", "g", "g:short:0", "g:AAAAAAAAAAAAAAAAAAAAAQ:x"])
def test_a_key_that_is_none_of_a_share_partition_is_refused(wire: Wire, key: str) -> None:
    assert find(wire, key) == ErrorCode.INVALID_REQUEST


def test_share_coordinators_are_found_since_v6_only(wire: Wire) -> None:
    assert find(wire, "g:AAAAAAAAAAAAAAAAAAAAAQ:0", version=5) == ErrorCode.INVALID_REQUEST


def test_a_topic_that_does_not_exist_is_unknown(wire: Wire) -> None:
    coordinated(wire, "g")
    unknown = StateClient(wire, "g", b"\1" * 16)
    for answer in (unknown.initialize(), unknown.delete(), unknown.summary()):
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for answer in (unknown.read(), unknown.write()):
        assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_a_request_without_a_group_has_no_results(wire: Wire) -> None:
    nameless = StateClient(wire, "", topic_id(wire))
    for answer in (nameless.initialize(), nameless.read(), nameless.write(), nameless.delete(), nameless.summary()):
        assert answer.results == []


# ---- share groups


def offsets_of(wire: Wire, group_id: str) -> dict[int, int]:
    request = DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(group_id, None)])
    (group,) = wire.request(request).groups
    return {row.partition_index: row.start_offset for topic in group.topics for row in topic.partitions}


def test_a_share_group_lives_through_a_restart_and_is_deleted_with_its_states(
    nodes: list[Node], directory: Path
) -> None:
    with nodes[-1].wire() as wire:
        member = WireMember(wire, "shop")
        eventually(lambda: member.joins("orders"), "the group coordinator")
        eventually(lambda: member.has([0, 1]), "the share partitions to be initialized")
    stop_node(nodes[-1])
    nodes.append(start_node(directory, nodes[-1].port))
    with nodes[-1].wire() as wire:
        member.wire = wire
        eventually(lambda: member.beat().error_code == ErrorCode.NONE, "the group to be loaded")
        assert member.partitions == [0, 1]
        (described,) = wire.request(ShareGroupDescribeRequest(["shop"])).groups
        assert (described.group_state, described.assignor_name, len(described.members)) == ("Stable", "simple", 1)
        assert alter(wire, {0: 7}).error_code == ErrorCode.NON_EMPTY_GROUP
        member.beat(epoch=-1)
        assert alter(wire, {0: 7}).error_code == ErrorCode.NONE
        assert offsets_of(wire, "shop") == {0: 7, 1: -1}
        topics = [DeleteShareGroupOffsetsRequestTopic("orders"), DeleteShareGroupOffsetsRequestTopic("no")]
        deleted = wire.request(DeleteShareGroupOffsetsRequest("shop", topics)).responses
        assert [row.error_code for row in deleted] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert offsets_of(wire, "shop") == {}
        listed = wire.request(ListGroupsRequest(types_filter=["share"])).groups
        assert [(group.group_id, group.group_state, group.group_type) for group in listed] == [
            ("shop", "Empty", "share")
        ]
        assert wire.request(DeleteGroupsRequest(["shop"])).results[0].error_code == ErrorCode.NONE
        (described,) = wire.request(ShareGroupDescribeRequest(["shop"])).groups
        assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def alter(wire: Wire, offsets: dict[int, int]) -> Any:
    rows = [AlterShareGroupOffsetsRequestPartition(partition, offset) for partition, offset in offsets.items()]
    return wire.request(AlterShareGroupOffsetsRequest("shop", [AlterShareGroupOffsetsRequestTopic("orders", rows)]))


def test_a_group_has_settings_of_its_own_from_the_next_heartbeat_on(wire: Wire) -> None:
    member = WireMember(wire, "settings")
    eventually(lambda: member.joins("orders"), "the group coordinator")
    assert member.beat().heartbeat_interval_ms == 5_000
    config = AlterableConfig("share.heartbeat.interval.ms", SET, "7000")
    resource = AlterConfigsResource(GROUP_RESOURCE, "settings", [config])
    assert not wire.request(IncrementalAlterConfigsRequest(resources=[resource])).responses[0].error_code
    eventually(lambda: member.beat().heartbeat_interval_ms == 7_000, "the setting to arrive")


def test_without_the_feature_there_are_no_share_groups(wire: Wire) -> None:
    """This is the last test, because the node has no share groups after it."""
    member = WireMember(wire, "feature")
    state = coordinated(wire, "feature")
    update = FeatureUpdateKey(SHARE_VERSION, 0, upgrade_type=SAFE_DOWNGRADE)
    assert not wire.request(UpdateFeaturesRequest(feature_updates=[update])).error_code
    eventually(lambda: member.beat("orders", epoch=0).error_code == ErrorCode.UNSUPPORTED_VERSION, "the feature to go")
    assert state.read().error_code == ErrorCode.UNSUPPORTED_VERSION
    assert find(wire, f"feature:{uuid_to_str(topic_id(wire))}:0") == ErrorCode.INVALID_REQUEST
