"""Large targets of the three kinds of groups are computed by a worker, and counted only while they fit the group's members."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.groups.consumer.state import GroupState
from ottla.broker.groups.target import WORK_ON_LOOP_MAX
from tests.broker.groups.consumer.member import ConsumerMember
from tests.broker.groups.harness import GroupCoordinatorHarness
from tests.broker.groups.share.harness import ShareGroupHarness
from tests.broker.groups.streams.member import StreamsMember
from tests.broker.groups.streams.topologies import stateless

LARGE = WORK_ON_LOOP_MAX + 2


def two_members() -> tuple[GroupCoordinatorHarness, ConsumerMember, ConsumerMember]:
    """Of a group whose target is large; the first one has everything, and the interval until the next target has passed."""
    harness = GroupCoordinatorHarness()
    harness.topics = {"t": LARGE}
    first, second = ConsumerMember(harness, "a"), ConsumerMember(harness, "b")
    first.beat()
    first.beat()
    second.beat()
    harness.clock.advance(1_000)
    return harness, first, second


def group_of(harness: GroupCoordinatorHarness) -> Any:
    return harness.shard.consumer_groups["g"]


def test_the_first_member_has_a_large_target_at_once() -> None:
    harness = GroupCoordinatorHarness()
    harness.topics = {"t": LARGE}
    member = ConsumerMember(harness, "a")
    assert member.beat().member_epoch == 2
    assert len(member.owned["t"]) == LARGE


def test_a_target_of_the_limit_is_in_the_answer_to_the_heartbeat_that_wanted_it() -> None:
    harness = GroupCoordinatorHarness()
    harness.topics = {"t": WORK_ON_LOOP_MAX - 2}
    first, second = ConsumerMember(harness, "a"), ConsumerMember(harness, "b")
    first.beat()
    second.beat()
    harness.clock.advance(1_000)
    assert first.beat().member_epoch == 2
    assert len(first.owned["t"]) == LARGE / 2 - 2


def test_a_large_target_is_computed_beside_the_heartbeats() -> None:
    harness, first, second = two_members()
    assert second.beat().member_epoch == 2
    assert second.beat().member_epoch == 2
    assert group_of(harness).state is GroupState.ASSIGNING
    harness.clock.advance(1)
    assert first.beat().assignment is not None
    first.beat()
    assert second.beat().member_epoch == 3
    assert len(first.owned["t"]) == len(second.owned["t"]) == LARGE / 2


def test_a_member_that_joins_meanwhile_gets_its_partitions_with_the_next_target() -> None:
    harness, first, second = two_members()
    first.beat()
    third = ConsumerMember(harness, "c")
    third.beat()
    harness.clock.advance(1)
    group = group_of(harness)
    assert (group.assignment_epoch, group.epoch, set(group.targets)) == (3, 4, {"a", "b"})
    harness.clock.advance(1_000)
    for _ in range(2):
        for member in (first, second, third):
            member.beat()
            member.beat()
        harness.clock.advance(1)
    assert group.state is GroupState.STABLE
    assert sum(len(member.owned["t"]) for member in (first, second, third)) == LARGE


@pytest.mark.parametrize("epoch", [-1, -2])
def test_the_target_is_dropped_when_a_member_has_gone_meanwhile(epoch: int) -> None:
    """A static member that is replaced at once (-2) hands its old target on, which the new one knows nothing of."""
    harness = GroupCoordinatorHarness()
    harness.topics = {"t": LARGE}
    first, second = ConsumerMember(harness, "a"), ConsumerMember(harness, "b", instance="i")
    for member in (first, second, first):
        member.beat()
    harness.clock.advance(1_000)
    first.beat()
    second.leave(epoch)
    again = ConsumerMember(harness, "again", instance="i")
    again.beat()
    harness.clock.advance(1)
    assert group_of(harness).assignment_epoch == 2
    for _ in range(3):
        harness.clock.advance(1_000)
        for member in (first, again):
            member.beat()
            member.beat()
    assert group_of(harness).state is GroupState.STABLE
    assert first.owned["t"] | again.owned["t"] == set(range(LARGE))
    assert not first.owned["t"] & again.owned["t"]


def test_a_coordinator_that_moves_meanwhile_has_the_target_computed_again() -> None:
    harness, first, second = two_members()
    first.beat()
    harness.restart()
    harness.clock.advance(1_000)
    second.beat()
    harness.clock.advance(1)
    assert group_of(harness).assignment_epoch == 3


def test_a_large_target_of_a_streams_group_is_computed_beside_the_heartbeats() -> None:
    harness = GroupCoordinatorHarness()
    harness.topics = {"words": LARGE}
    first, second = (StreamsMember(harness, name, stateless("words")) for name in "ab")
    first.beat()
    second.beat()
    # The first assignment follows the initial rebalance delay, without a heartbeat.
    harness.clock.advance(3_000)
    harness.clock.advance(1)
    for member in (first, second):
        member.beat()
    assert [len(member.owned.active["0"]) for member in (first, second)] == [LARGE / 2] * 2


def test_a_large_target_of_a_share_group_is_computed_beside_the_heartbeats() -> None:
    harness = ShareGroupHarness()
    harness.topics = {"orders": 4}
    first = harness.join("a")
    harness.advance()
    # Names count, too: the topics of most of them do not exist.
    second = harness.join("b", "orders", *(f"t{n}" for n in range(LARGE)))
    assert not second.assigned
    harness.advance(1)
    for member in (first, second):
        member.beat()
    assert [len(member.assigned["orders"]) for member in (first, second)] == [2, 2]
