"""Streams groups on a real node: topics are created, a member goes on after a restart, and bad requests change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.api.streams_groups import NAMED_ERRORS_MAX
from ottla.protocol.errors import ErrorCode
from ottla.protocol.features import STREAMS_VERSION
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.shared_structs import KeyValue, Subtopology, TaskIds, TopicInfo
from ottla.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from ottla.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Topology
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.server.authorization import operations
from ottla.server.authorization.authorizer import EVERY_OPERATION
from tests.broker.conftest import Node, eventually, start_node, stop_node
from tests.broker.groups.streams.topologies import chain, stateless, word_count
from tests.broker.wire import Wire

GROUP = "count"
GROUP_RESOURCE, SET, SAFE_DOWNGRADE = 32, 0, 2
MISSING_INTERNAL_TOPICS = 3
MANY = 9_000


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    started = start_node(tmp_path_factory.mktemp("streams"), group_streams_initial_rebalance_delay_ms="0")
    started.create("t", partitions=2)
    with started.wire() as wire:
        wait_for_coordinator(wire, GROUP)
    yield started
    stop_node(started)


def wait_for_coordinator(wire: Wire, group: str) -> None:
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
    eventually(lambda: not wire.request(find).coordinators[0].error_code, "the coordinator")
    eventually(lambda: described(wire, group).error_code != ErrorCode.NOT_COORDINATOR, "the coordinator to be loaded")
    eventually(
        lambda: described(wire, group).error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        "the coordinator to be loaded",
    )
    eventually(lambda: not wire.request(ListGroupsRequest()).error_code, "those of all other groups to be loaded")


def beat(wire: Wire, group: str, epoch: int, **fields: Any) -> Any:
    if epoch == 0:
        joining = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": [], "process_id": "p"}
        fields = joining | {"rebalance_timeout_ms": 60_000, "topology": stateless("t")} | fields
    return wire.request(StreamsGroupHeartbeatRequest(group, "m", epoch, **fields))


def described(wire: Wire, group: str) -> Any:
    request = StreamsGroupDescribeRequest(
        [group], include_authorized_operations=True, include_topology_description=True
    )
    return wire.request(request).groups[0]


def test_internal_topics_are_created_as_the_application_wants_them(node: Node) -> None:
    topology = word_count("t", "words")
    with node.wire() as wire:
        answer = beat(wire, "words", 0, topology=topology)
        assert [status.status_code for status in answer.status] == [MISSING_INTERNAL_TOPICS]
        eventually(lambda: beat(wire, "words", answer.member_epoch).active_tasks, "tasks, once the topics are there")
        names = ["words-repartition", "words-changelog"]
        topics = wire.request(MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])).topics
        assert [(topic.error_code, len(topic.partitions)) for topic in topics] == [(0, 2), (0, 2)]
        group = described(wire, "words")
        assert (group.group_state, group.assignor_name, group.authorized_operations) == (
            "Stable",
            "sticky",
            EVERY_OPERATION[operations.GROUP],
        )
        assert (group.topology_description, group.topology_description_status) == (None, 1)


def test_the_reason_why_an_internal_topic_was_not_created_is_in_the_next_answers(node: Node) -> None:
    wrong = [KeyValue("cleanup.policy", "wrong")]
    changelogs = [TopicInfo(f"never-{index}-changelog", topic_configs=wrong) for index in range(NAMED_ERRORS_MAX + 2)]
    topology = Topology(0, [Subtopology("0", ["t"], state_changelog_topics=changelogs)])
    with node.wire() as wire:
        epoch = beat(wire, "never", 0, topology=topology).member_epoch

        def detail() -> str:
            (status,) = beat(wire, "never", epoch).status
            return str(status.status_detail)

        eventually(lambda: "Creation failed: never-0-changelog (" in detail(), "the controller's answer")
        assert detail().endswith("and 2 more.")


def test_a_group_has_settings_of_its_own_from_the_next_heartbeat_on(node: Node) -> None:
    with node.wire() as wire:
        assert beat(wire, "set", 0).heartbeat_interval_ms == 5_000
        config = AlterableConfig("streams.heartbeat.interval.ms", SET, "7000")
        resource = AlterConfigsResource(GROUP_RESOURCE, "set", [config])
        assert not wire.request(IncrementalAlterConfigsRequest(resources=[resource])).responses[0].error_code
        eventually(lambda: beat(wire, "set", 2).heartbeat_interval_ms == 7_000, "the setting to arrive")


BAD = {
    "an epoch of the future": (99, {}, ErrorCode.FENCED_MEMBER_EPOCH),
    "an epoch below all": (-3, {}, ErrorCode.INVALID_REQUEST),
    "an instance id": (2, {"instance_id": "i"}, ErrorCode.INVALID_REQUEST),
    "a task that does not exist": (
        2,
        {"active_tasks": [TaskIds("0", [2**31 - 1])], "standby_tasks": [], "warmup_tasks": []},
        ErrorCode.INVALID_REQUEST,
    ),
    "a topology later on": (2, {"topology": stateless("t")}, ErrorCode.INVALID_REQUEST),
    "another topology": (0, {"topology": stateless("t", "u")}, ErrorCode.INVALID_REQUEST),
    "a subtopology twice": (
        0,
        {"topology": Topology(0, [Subtopology("0", ["t"]), Subtopology("0", ["t"])])},
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ),
    "Kafka's own topic": (0, {"topology": stateless("__consumer_offsets")}, ErrorCode.STREAMS_INVALID_TOPOLOGY),
    "a name that is none": (0, {"topology": stateless("a b")}, ErrorCode.STREAMS_INVALID_TOPOLOGY),
    "many topic names": (
        0,
        {"topology": stateless(*(f"name{index}" for index in range(MANY)))},
        ErrorCode.INVALID_REQUEST,
    ),
    "many subtopologies": (0, {"topology": chain(3_000, "t", backwards=True)}, ErrorCode.INVALID_REQUEST),
    "the same tag twice": (
        0,
        {"client_tags": [KeyValue("k", "1"), KeyValue("k", "2")]},
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_request_has_kafkas_error_and_changes_nothing(node: Node, name: str) -> None:
    epoch, fields, code = BAD[name]
    with node.wire() as wire:
        assert beat(wire, GROUP, 0).error_code == ErrorCode.NONE
        before = described(wire, GROUP)
        assert beat(wire, GROUP, epoch, **fields).error_code == code
        assert described(wire, GROUP) == before
        assert beat(wire, GROUP, 2).error_code == ErrorCode.NONE


def test_a_topology_of_many_topics_is_answered_and_recorded(node: Node) -> None:
    """A topology of half a megabyte fits into a batch of the log; a larger one is rejected, and no group is made."""
    with node.wire() as wire:
        few = stateless(*(f"name{index:0>60}" for index in range(MANY)))
        (status,) = beat(wire, "many", 0, topology=few).status
        assert status.status_detail.endswith("additional topics are missing.")
        many = stateless(*(f"name{index:0>130}" for index in range(MANY)))
        assert beat(wire, "too-many", 0, topology=many).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert described(wire, "too-many").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_members_of_other_groups_and_unknown_ones_are_not_served(node: Node) -> None:
    with node.wire() as wire:
        assert beat(wire, "nowhere", 5).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        beat(wire, GROUP, 0)
        unknown = StreamsGroupHeartbeatRequest(GROUP, "unknown-id", 2)
        assert wire.request(unknown).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_goes_on_in_its_epoch_after_the_node_was_restarted(tmp_path: Path) -> None:
    first = start_node(tmp_path, group_streams_initial_rebalance_delay_ms="0")
    first.create("t", partitions=2)
    with first.wire() as wire:
        wait_for_coordinator(wire, GROUP)
        joined = beat(wire, GROUP, 0)
        assert [(tasks.subtopology_id, tasks.partitions) for tasks in joined.active_tasks] == [("0", [0, 1])]
        before = described(wire, GROUP)
    stop_node(first)
    second = start_node(tmp_path, port=first.port, group_streams_initial_rebalance_delay_ms="0")
    with second.wire() as wire:
        eventually(lambda: described(wire, GROUP).error_code == ErrorCode.NONE, "the group to be loaded")
        assert described(wire, GROUP) == before
        again = beat(wire, GROUP, joined.member_epoch)
        assert (again.error_code, again.member_epoch, again.active_tasks) == (ErrorCode.NONE, 2, None)
        assert described(wire, GROUP) == before
        update = FeatureUpdateKey(STREAMS_VERSION, 0, upgrade_type=SAFE_DOWNGRADE)
        assert not wire.request(UpdateFeaturesRequest(feature_updates=[update])).error_code
        eventually(lambda: beat(wire, GROUP, 0).error_code == ErrorCode.UNSUPPORTED_VERSION, "the feature to go")
        assert described(wire, GROUP).error_code == ErrorCode.UNSUPPORTED_VERSION
    stop_node(second)
