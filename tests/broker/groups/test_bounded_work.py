"""However many groups a coordinator has, work that concerns all of them takes a bounded part of one turn of the loop."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ottla.broker.coordinator import listing, timers
from ottla.broker.groups import group_descriptions as describe
from ottla.broker.groups.classic.classic_member import PREPARING_REBALANCE, STABLE
from ottla.broker.groups.group_coordinator_shard import SESSION_LOOKS
from ottla.protocol.errors import ErrorCode
from tests.broker.groups.harness import TP, GroupClient, GroupCoordinatorHarness

GROUPS, LOOKS = 100, 20
#: A group with its one offset, and the last group of a turn.
GROUPS_PER_TURN = LOOKS // 2 + 1
DAY_MS = 24 * 3_600_000


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> GroupCoordinatorHarness:
    """Return a harness in which every group has committed one offset."""
    monkeypatch.setattr(timers, "LOOKS_PER_TURN", LOOKS)
    harness = GroupCoordinatorHarness(offsets_retention_check_interval_ms=600_000)
    harness.topic_ids.add(bytes(15) + b"t")
    for number in range(GROUPS):
        client(harness, number).commit(offsets={("t", 0): number}, topic_id=bytes(15) + b"t")
    return harness


def client(harness: GroupCoordinatorHarness, number: int) -> GroupClient:
    return harness.client("c", group=f"g{number}")


def tombstones_by_turn(harness: GroupCoordinatorHarness, turns: int) -> list[int]:
    """Return how many offsets are deleted in each millisecond."""
    counts = []
    for _ in range(turns):
        before = harness.log.end_offset(TP)
        harness.clock.advance(1)
        counts.append(sum(value is None and hasattr(key, "topic") for _, key, value in harness.records(before)))
    return counts


def test_offsets_expire_some_in_a_turn(harness: GroupCoordinatorHarness) -> None:
    harness.clock.advance(7 * DAY_MS - 1)
    assert len(harness.shard.offsets.groups) == GROUPS
    counts = tombstones_by_turn(harness, 2 * GROUPS // LOOKS + 5)
    assert sum(counts) == GROUPS
    assert 0 < max(counts) <= GROUPS_PER_TURN
    assert not harness.shard.groups


def test_offsets_of_a_deleted_topic_go_some_in_a_turn_and_those_of_a_new_one_stay(
    harness: GroupCoordinatorHarness,
) -> None:
    before = harness.log.end_offset(TP)
    harness.coordinator.on_topics_deleted(["t"])
    harness.clock.turn()
    assert 0 < harness.log.end_offset(TP) - before <= GROUPS_PER_TURN
    last = client(harness, GROUPS - 1)
    assert last.commit(offsets={("t", 0): 7}).topics[0].partitions[0].error_code == ErrorCode.NONE
    counts = tombstones_by_turn(harness, 2 * GROUPS // LOOKS + 5)
    assert 0 < max(counts) <= GROUPS_PER_TURN
    assert list(harness.shard.offsets.groups) == [last.group]
    assert last.fetch(partitions=[("t", 0)]).topics[0].partitions[0].committed_offset == 7


def test_offsets_of_topics_that_are_no_more_go_some_in_a_turn_after_loading(harness: GroupCoordinatorHarness) -> None:
    harness.topic_ids.clear()
    before = harness.log.end_offset(TP)
    harness.restart()
    assert 0 < harness.log.end_offset(TP) - before <= GROUPS_PER_TURN
    assert max(tombstones_by_turn(harness, 2 * GROUPS // LOOKS + 5)) <= GROUPS_PER_TURN
    assert not harness.shard.offsets.groups


def sessions(harness: GroupCoordinatorHarness) -> int:
    return sum(
        ("session", group.group_id, member) in harness.shard.timers
        for group in harness.shard.groups.values()
        for member in group.members
    )


def test_sessions_begin_for_some_members_in_a_turn_after_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Session timers after loading are set for current members, some in each turn: 50,000 in one turn held the event loop for 0.07 s."""
    monkeypatch.setattr(timers, "LOOKS_PER_TURN", LOOKS)
    harness = GroupCoordinatorHarness(group_initial_rebalance_delay_ms=0)
    members = [harness.client("c", group=f"g{number}", version=3) for number in range(GROUPS)]
    for member in members:
        member.join()
        harness.clock.advance(1)
        assert member.sync().error_code == ErrorCode.NONE
    harness.restart()
    begun = [sessions(harness)]
    members[-1].leave()
    while sum(begun) < GROUPS - 1:
        harness.clock.advance(1)
        begun.append(sessions(harness) - sum(begun))
        assert len(begun) < GROUPS
    assert max(begun) <= LOOKS // SESSION_LOOKS + 1
    harness.clock.advance(9_000)
    assert all(member.heartbeat().error_code == ErrorCode.NONE for member in members[:10])
    harness.clock.advance(1_100)
    left = {group.group_id for group in harness.shard.groups.values() if group.members}
    assert left == {member.group for member in members[:10]}, "the others sent no heartbeat in a whole session"


def test_a_group_over_a_lowered_max_size_rebalances_in_a_turn_after_loading() -> None:
    harness = GroupCoordinatorHarness(group_initial_rebalance_delay_ms=0)
    first = harness.client("a", version=3)
    first.join()
    harness.clock.advance(1)
    first.sync()
    second = harness.client("b", version=3)
    second.join()
    first.join()
    first.sync()
    second.sync()
    assert harness.shard.groups["g"].state is STABLE
    harness.config = replace(harness.config, group_max_size=1)
    harness.restart()
    harness.clock.advance(1)
    assert harness.shard.groups["g"].state is PREPARING_REBALANCE


def test_groups_are_listed_some_in_a_turn_whatever_shard_they_are_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "LOOKS_PER_TURN", 10)
    harness = GroupCoordinatorHarness()
    harness.coordinator.partition_count = lambda: 3
    for partition in (1, 2):
        harness.coordinator.on_elected(partition, 1)
    for number in range(GROUPS):
        client(harness, number).commit(offsets={("t", 0): number})
    looks = []
    look = describe.listed

    def counted(*args: Any) -> Any:
        looks.append(args)
        return look(*args)

    monkeypatch.setattr(describe, "listed", counted)
    answers: list[Any] = []
    harness.coordinator.list([], []).when_done(answers.append)
    while not answers:
        assert len(looks) == 10
        looks.clear()
        harness.clock.turn()
    error, groups = answers[0]
    assert error == ErrorCode.NONE
    assert {group.group_id for group in groups} == {f"g{number}" for number in range(GROUPS)}
