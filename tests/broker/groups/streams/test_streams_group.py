"""The answers of a streams group from its records: who may get a task, who may commit, and what older records say."""

from __future__ import annotations

from ottla.broker.groups.group import GroupRecordCodec
from ottla.broker.groups.group_config import GroupSettings
from ottla.broker.groups.modern.modern_group import STABLE, UNKNOWN, UNRELEASED
from ottla.broker.groups.streams.streams_group import (
    CurrentAssignment,
    Holdings,
    StreamsGroup,
    TasksTuple,
    recorded_assignment,
)
from ottla.broker.groups.streams.streams_step import reconciled
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.group_records import (
    CurrentTaskIds,
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
)
from tests.broker.groups.harness import GroupCoordinatorHarness
from tests.broker.groups.streams.member import StreamsMember
from tests.broker.groups.streams.topologies import stateful, stateless

WAIT_MS = 5_000


def two_members(harness: GroupCoordinatorHarness, second_process: str) -> tuple[StreamsMember, StreamsMember]:
    """Return two members: the first one has tasks 0 and 2, the second one 1 and 3."""
    harness.topics = {"t": 4, "store-changelog": 4}
    first = StreamsMember(harness, "a", stateful("t"), process="p")
    second = StreamsMember(harness, "b", stateful("t"), process=second_process)
    for member in (first, second):
        member.beat()
    for _ in range(3):
        harness.clock.advance(WAIT_MS)
        for member in (first, second):
            member.beat()
    assert first.owned.active == {"0": {0, 2}} and second.owned.active == {"0": {1, 3}}
    return first, second


def test_a_process_gets_no_copy_of_a_task_that_one_of_its_threads_has() -> None:
    harness = GroupCoordinatorHarness()
    two_members(harness, "q")
    group = harness.shard.group(StreamsGroup, "g")
    assert [group.is_free_copy(process, "0", 0) for process in "pqr"] == [False, True, True]
    assert [group.is_free_active(process, "0", 0) for process in "pqr"] == [False, False, False]
    assert group.is_free_active("r", "0", 9)


def test_commits_of_an_earlier_epoch_are_taken_for_tasks_held_since_then() -> None:
    harness = GroupCoordinatorHarness()
    first, second = two_members(harness, "q")
    before = second.epoch
    first.leave()
    harness.clock.advance(WAIT_MS)
    second.beat()
    second.beat()
    assert second.owned.active == {"0": {0, 1, 2, 3}}

    def code(topic: str, partition: int, epoch: int) -> ErrorCode:
        return ErrorCode(second.commit(topic, partition, epoch).topics[0].partitions[0].error_code)

    assert code("t", 1, before) == ErrorCode.NONE
    assert code("t", 0, before) == ErrorCode.STALE_MEMBER_EPOCH
    assert code("other", 0, before) == ErrorCode.STALE_MEMBER_EPOCH
    assert code("t", 0, second.epoch) == ErrorCode.NONE
    assert code("t", 0, second.epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH


def test_a_member_in_a_state_of_a_newer_coordinator_begins_again() -> None:
    current = CurrentAssignment(5, 4, UNKNOWN, Holdings({"0": {0: 3}}))

    def step(owned: TasksTuple | None) -> CurrentAssignment:
        return reconciled(
            current, 7, TasksTuple({"0": frozenset({1})}), lambda *task: False, lambda *task: False, owned
        )

    for owned in (None, TasksTuple({"0": frozenset({0})})):
        try:
            step(owned)
        except KafkaError as error:
            assert error.code == ErrorCode.FENCED_MEMBER_EPOCH
        else:
            raise AssertionError("the member was served")
    following = step(TasksTuple())
    assert (following.epoch, following.state, following.assigned) == (7, UNRELEASED, Holdings())


def test_tasks_recorded_without_epochs_of_their_own_have_the_members() -> None:
    value = StreamsGroupCurrentMemberAssignmentValue(7, 6, 1, [CurrentTaskIds("0", [0, 2])])
    codec = GroupRecordCodec()
    decoded = codec.decode(*codec.encode(StreamsGroupCurrentMemberAssignmentKey("g", "m"), value))
    assert decoded is not None
    assert isinstance(decoded[1], StreamsGroupCurrentMemberAssignmentValue)
    recorded = recorded_assignment(decoded[1])
    assert (recorded.state, recorded.assigned.active) == (STABLE, {"0": {0: 7, 2: 7}})


def test_offsets_of_topics_that_the_group_reads_stay() -> None:
    harness = GroupCoordinatorHarness()
    harness.topics = {"t": 1}
    member = StreamsMember(harness, "a", stateless("t"))
    member.beat()
    group = harness.shard.group(StreamsGroup, "g")
    assert group.is_subscribed_to("t") and not group.is_subscribed_to("u")
    member.leave()
    assert not group.is_subscribed_to("t")


def test_a_member_whose_session_has_ended_may_still_shut_the_application_down() -> None:
    harness = GroupCoordinatorHarness(GroupSettings(initial_rebalance_delay_ms=0))
    harness.topics = {"t": 1}
    first, second = (StreamsMember(harness, name, stateless("t")) for name in "ab")
    first.beat()
    assert second.leave(shutdown=True).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    (status,) = first.beat().status
    assert "member b encountered a fatal error" in status.status_detail
    first.leave()
    second.leave(shutdown=True)
    harness.clock.advance(WAIT_MS)
    assert not first.beat(epoch=0).status
