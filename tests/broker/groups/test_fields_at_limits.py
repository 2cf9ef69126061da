"""Heartbeats of the three kinds of groups with their fields at the limits: Kafka's error code, and nothing changed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from ottla.broker.groups.consumer.consumer_group import ConsumerGroup
from ottla.broker.groups.group_metadata_manager import Client
from ottla.broker.groups.modern.topics import SUBSCRIBED_TOPICS_MAX
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.messages.shared_structs import TaskIds, TopicIdPartitions
from ottla.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from tests.broker.groups.cluster import id_of
from tests.broker.groups.harness import GroupCoordinatorHarness
from tests.broker.groups.share.harness import ShareGroupHarness
from tests.broker.groups.streams.member import StreamsMember
from tests.broker.groups.streams.topologies import stateless

CLIENT = Client(1, "client", "/127.0.0.1")
INT_MIN, INT_MAX = -(2**31), 2**31 - 1
#: The longest name that a topic may have.
LONG = "t" * 243
MANY = [f"{n:06}{LONG}" for n in range(SUBSCRIBED_TOPICS_MAX)]
JOIN = 0
#: Each kind has a group of its name.
KINDS = ("consumer", "share", "streams")


class Groups:
    """A group of each kind, with the member `a`; the consumer group has the static member `s` with the instance id `i`, too."""

    def __init__(self) -> None:
        self.harness = ShareGroupHarness({"t": 3})
        self.consumer("a", JOIN)
        self.consumer("s", JOIN, instance_id="i")
        self.share("a", JOIN)
        self.streams("a", JOIN)
        self.harness.clock.advance(3_000)
        for _ in range(2):
            for member_id in "as":
                self.consumer(member_id, self.epoch_of("consumer", member_id))
        self.share("a", self.epoch_of("share", "a"))
        self.streams("a", self.epoch_of("streams", "a"))

    def epoch_of(self, kind: str, member_id: str) -> int:
        return int(self.harness.shard.groups[kind].members[member_id].current.epoch)

    def consumer(self, member_id: str, epoch: int, **fields: Any) -> Any:
        if epoch == JOIN:
            fields = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"], "topic_partitions": []} | fields
        request = ConsumerGroupHeartbeatRequest("consumer", member_id, epoch, **fields)
        return self.harness.coordinator.consumer_heartbeat(request, CLIENT)

    def share(self, member_id: str, epoch: int, **fields: Any) -> Any:
        if epoch == JOIN:
            fields = {"subscribed_topic_names": ["t"]} | fields
        return self.harness.share.heartbeat(ShareGroupHeartbeatRequest("share", member_id, epoch, **fields), CLIENT)

    def streams(self, member_id: str, epoch: int, **fields: Any) -> Any:
        if epoch == JOIN:
            tasks: dict[str, Any] = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
            fields = {"rebalance_timeout_ms": 60_000, "topology": stateless("t"), "process_id": "p"} | tasks | fields
        request = StreamsGroupHeartbeatRequest("streams", member_id, epoch, **fields)
        answer: Any = self.harness.coordinator.streams_heartbeat(request, CLIENT)
        return answer.response

    def refused(self, beat: Callable[[], Any]) -> ErrorCode:
        before = self.harness.records()
        code = ErrorCode(beat().error_code)
        assert self.harness.records() == before
        for kind in KINDS:
            assert getattr(self, kind)("a", self.epoch_of(kind, "a")).error_code == ErrorCode.NONE
        return code


@pytest.fixture(scope="module")
def groups() -> Groups:
    return Groups()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epoch", [INT_MIN, -3])
def test_an_epoch_below_those_that_leave_is_invalid(groups: Groups, kind: str, epoch: int) -> None:
    assert groups.refused(lambda: getattr(groups, kind)("a", epoch)) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epoch", [100, INT_MAX])
def test_an_epoch_to_come_is_fenced(groups: Groups, kind: str, epoch: int) -> None:
    assert groups.refused(lambda: getattr(groups, kind)("a", epoch)) == ErrorCode.FENCED_MEMBER_EPOCH


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epoch", [-1, 1, INT_MAX])
def test_a_member_that_the_group_does_not_have_is_unknown(groups: Groups, kind: str, epoch: int) -> None:
    assert groups.refused(lambda: getattr(groups, kind)("unknown", epoch)) == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("kind", ["consumer", "streams"])
def test_only_a_static_member_leaves_for_a_while(groups: Groups, kind: str) -> None:
    assert groups.refused(lambda: getattr(groups, kind)("a", -2)) == ErrorCode.INVALID_REQUEST
    assert groups.refused(lambda: groups.share("a", -2)) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("member_id", "epoch", "instance_id", "code"),
    [
        ("b", JOIN, "i", ErrorCode.UNRELEASED_INSTANCE_ID),
        ("a", 1, "i", ErrorCode.FENCED_INSTANCE_ID),
        ("a", -1, "i", ErrorCode.FENCED_INSTANCE_ID),
        ("a", -2, "i", ErrorCode.FENCED_INSTANCE_ID),
        ("a", 1, "unknown", ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_an_instance_id_of_another_member_is_refused(
    groups: Groups, member_id: str, epoch: int, instance_id: str, code: ErrorCode
) -> None:
    assert groups.refused(lambda: groups.consumer(member_id, epoch, instance_id=instance_id)) == code
    # Kafka 4.3.1 has no static members of streams groups.
    assert groups.refused(lambda: groups.streams(member_id, epoch, instance_id="i")) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("kind", ["consumer", "share"])
def test_more_topics_than_a_member_may_name_are_refused(groups: Groups, kind: str) -> None:
    names = [f"{n:06}" for n in range(100_000)]
    for epoch in (JOIN, groups.epoch_of(kind, "a")):
        beat = partial(getattr(groups, kind), "a", epoch, subscribed_topic_names=names)
        assert groups.refused(beat) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("kind", ["consumer", "share"])
def test_names_that_fill_more_than_a_record_change_nothing(groups: Groups, kind: str) -> None:
    """Kafka's log rejects the record, too."""
    beat = partial(getattr(groups, kind), "b", JOIN, subscribed_topic_names=MANY)
    assert groups.refused(beat) == ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_topology_that_fills_more_than_a_record_changes_nothing() -> None:
    harness = GroupCoordinatorHarness()
    assert StreamsMember(harness, "a", stateless(*MANY)).beat().error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert not harness.records()
    assert not harness.shard.groups


@pytest.mark.parametrize("kind", ["consumer", "share"])
def test_a_topic_that_is_named_a_thousand_times_is_one_topic(kind: str) -> None:
    groups = Groups()
    assert not getattr(groups, kind)("b", JOIN, subscribed_topic_names=["t"] * 1_000).error_code
    group = groups.harness.shard.groups[kind]
    assert group.members["b"].metadata.subscribed_topic_names == ["t"]


def test_a_member_has_all_partitions_that_any_entry_of_its_request_names() -> None:
    """If entries were overlooked, another member would get a partition that this member still has."""
    groups = Groups()
    before = groups.harness.shard.group(ConsumerGroup, "consumer").members["a"].current
    held = next(iter(before.assigned.values()))
    first, last = min(held), max(held)
    assert first < last
    groups.consumer("b", JOIN)
    groups.harness.clock.advance(1_000)
    entries = [TopicIdPartitions(id_of("t"), [first, last, INT_MAX, -1]), TopicIdPartitions(id_of("t"), [first, first])]
    for _ in range(2):
        groups.consumer("a", before.epoch, topic_partitions=entries)
    after = groups.harness.shard.group(ConsumerGroup, "consumer").members["a"].current
    assert after.pending_revocation.get(id_of("t"), {}).keys() == {last}
    groups.consumer("a", before.epoch, topic_partitions=[TopicIdPartitions(id_of("t"), [first])])
    assert not groups.harness.shard.group(ConsumerGroup, "consumer").members["a"].current.pending_revocation


@pytest.mark.parametrize(
    "tasks", [[TaskIds("0", [3])], [TaskIds("0", [-1])], [TaskIds("0", [INT_MAX])], [TaskIds("unknown", [0])]]
)
def test_tasks_that_the_topology_does_not_have_are_refused(groups: Groups, tasks: list[TaskIds]) -> None:
    epoch = groups.epoch_of("streams", "a")
    fields: dict[str, Any] = {"active_tasks": tasks, "standby_tasks": [], "warmup_tasks": []}
    assert groups.refused(lambda: groups.streams("a", epoch, **fields)) == ErrorCode.INVALID_REQUEST
