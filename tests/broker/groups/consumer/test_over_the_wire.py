"""Consumer groups on a real node: a member goes on at the node's next start, and a group has settings of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.features import GROUP_VERSION
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.server.authorization import operations
from ottla.server.authorization.authorizer import EVERY_OPERATION
from tests.broker.conftest import Node, eventually, start_node, stop_node
from tests.broker.wire import Wire

GROUP = "shop"
GROUP_RESOURCE, SET, SAFE_DOWNGRADE = 32, 0, 2


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def nodes(directory: Path) -> Iterator[list[Node]]:
    """Yield the list of started nodes, of which the last one runs."""
    started = [start_node(directory)]
    started[0].create("t", partitions=2)
    with started[0].wire() as wire:
        find = FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP])
        eventually(lambda: not wire.request(find).coordinators[0].error_code, "the coordinator")
        eventually(lambda: described(wire).error_code == ErrorCode.GROUP_ID_NOT_FOUND, "the coordinator to be loaded")
    yield started
    stop_node(started[-1])


def heartbeat(wire: Wire, epoch: int, **fields: Any) -> Any:
    if epoch == 0:
        fields = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"], "topic_partitions": []} | fields
    return wire.request(ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="m", member_epoch=epoch, **fields))


def described(wire: Wire) -> Any:
    return wire.request(ConsumerGroupDescribeRequest(group_ids=[GROUP], include_authorized_operations=True)).groups[0]


def test_a_member_goes_on_in_its_epoch_after_the_node_was_restarted(nodes: list[Node], directory: Path) -> None:
    with nodes[0].wire() as wire:
        joined = heartbeat(wire, 0)
        assert (joined.error_code, joined.member_epoch) == (ErrorCode.NONE, 2)
        assert [topic.partitions for topic in joined.assignment.topic_partitions] == [[0, 1]]
        before = described(wire)
        assert before.authorized_operations == EVERY_OPERATION[operations.GROUP]
    stop_node(nodes[0])
    nodes.append(start_node(directory, port=nodes[0].port))
    with nodes[1].wire() as wire:
        eventually(lambda: described(wire).error_code == ErrorCode.NONE, "the group to be loaded")
        assert described(wire) == before
        again = heartbeat(wire, 2)
        assert (again.error_code, again.member_epoch, again.assignment) == (ErrorCode.NONE, 2, joined.assignment)
        assert heartbeat(wire, 2).assignment is None, "once is enough"


def test_a_group_has_settings_of_its_own_from_the_next_heartbeat_on(nodes: list[Node]) -> None:
    with nodes[0].wire() as wire:
        assert heartbeat(wire, 0).heartbeat_interval_ms == 5_000
        config = AlterableConfig("consumer.heartbeat.interval.ms", SET, "7000")
        resource = AlterConfigsResource(GROUP_RESOURCE, GROUP, [config])
        assert not wire.request(IncrementalAlterConfigsRequest(resources=[resource])).responses[0].error_code
        eventually(lambda: heartbeat(wire, 2).heartbeat_interval_ms == 7_000, "the setting to arrive")


def test_without_the_feature_there_are_no_consumer_groups(nodes: list[Node]) -> None:
    with nodes[0].wire() as wire:
        update = FeatureUpdateKey(GROUP_VERSION, 0, upgrade_type=SAFE_DOWNGRADE)
        assert not wire.request(UpdateFeaturesRequest(feature_updates=[update])).error_code
        eventually(lambda: heartbeat(wire, 0).error_code == ErrorCode.UNSUPPORTED_VERSION, "the feature to go")
        assert described(wire).error_code == ErrorCode.UNSUPPORTED_VERSION
