"""However many groups a coordinator has, what concerns all of them takes a bounded part of one turn of the loop."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ottla.broker.coordinator import sweep
from ottla.broker.groups import listing
from ottla.broker.groups.classic.state import PREPARING_REBALANCE, STABLE
from ottla.broker.groups.shard import SESSION_LOOKS
from ottla.protocol.errors import ErrorCode
from tests.broker.groups.lab import TP, Lab, LabClient

GROUPS, LOOKS = 100, 20
#: A group with its one offset, and the last group of a turn.
GROUPS_PER_TURN = LOOKS // 2 + 1
DAY_MS = 24 * 3_600_000


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Lab:
    """Every group has committed one offset."""
    monkeypatch.setattr(sweep, "LOOKS_PER_TURN", LOOKS)
    lab = Lab(offsets_retention_check_interval_ms=600_000)
    lab.topic_ids.add(bytes(15) + b"t")
    for number in range(GROUPS):
        client(lab, number).commit(offsets={("t", 0): number}, topic_id=bytes(15) + b"t")
    return lab


def client(lab: Lab, number: int) -> LabClient:
    return lab.client("c", group=f"g{number}")


def tombstones_by_turn(lab: Lab, turns: int) -> list[int]:
    """How many offsets each millisecond takes away."""
    counts = []
    for _ in range(turns):
        before = lab.log.end_offset(TP)
        lab.clock.advance(1)
        counts.append(sum(value is None and hasattr(key, "topic") for _, key, value in lab.records(before)))
    return counts


def test_offsets_expire_some_in_a_turn(lab: Lab) -> None:
    lab.clock.advance(7 * DAY_MS - 1)
    assert len(lab.shard.offsets.groups) == GROUPS
    counts = tombstones_by_turn(lab, 2 * GROUPS // LOOKS + 5)
    assert sum(counts) == GROUPS
    assert 0 < max(counts) <= GROUPS_PER_TURN
    assert not lab.shard.groups


def test_offsets_of_a_deleted_topic_go_some_in_a_turn_and_those_of_a_new_one_stay(lab: Lab) -> None:
    before = lab.log.end_offset(TP)
    lab.coordinator.on_topics_deleted(["t"])
    assert 0 < lab.log.end_offset(TP) - before <= GROUPS_PER_TURN
    last = client(lab, GROUPS - 1)
    assert last.commit(offsets={("t", 0): 7}).topics[0].partitions[0].error_code == ErrorCode.NONE
    counts = tombstones_by_turn(lab, 2 * GROUPS // LOOKS + 5)
    assert 0 < max(counts) <= GROUPS_PER_TURN
    assert list(lab.shard.offsets.groups) == [last.group]
    assert last.fetch(partitions=[("t", 0)]).topics[0].partitions[0].committed_offset == 7


def test_offsets_of_topics_that_are_no_more_go_some_in_a_turn_after_loading(lab: Lab) -> None:
    lab.topic_ids.clear()
    before = lab.log.end_offset(TP)
    lab.restart()
    assert 0 < lab.log.end_offset(TP) - before <= GROUPS_PER_TURN
    assert max(tombstones_by_turn(lab, 2 * GROUPS // LOOKS + 5)) <= GROUPS_PER_TURN
    assert not lab.shard.offsets.groups


def sessions(lab: Lab) -> int:
    return sum(
        ("session", group.group_id, member) in lab.shard.timers
        for group in lab.shard.groups.values()
        for member in group.members
    )


def test_sessions_begin_for_some_members_in_a_turn_after_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of whoever is a member by then: 50,000 timers in one turn held the event loop for 0.07 s."""
    monkeypatch.setattr(sweep, "LOOKS_PER_TURN", LOOKS)
    lab = Lab(group_initial_rebalance_delay_ms=0)
    members = [lab.client("c", group=f"g{number}", version=3) for number in range(GROUPS)]
    for member in members:
        member.join()
        lab.clock.advance(1)
        assert member.sync().error_code == ErrorCode.NONE
    lab.restart()
    begun = [sessions(lab)]
    members[-1].leave()
    while sum(begun) < GROUPS - 1:
        lab.clock.advance(1)
        begun.append(sessions(lab) - sum(begun))
        assert len(begun) < GROUPS
    assert max(begun) <= LOOKS // SESSION_LOOKS + 1
    lab.clock.advance(9_000)
    assert all(member.heartbeat().error_code == ErrorCode.NONE for member in members[:10])
    lab.clock.advance(1_100)
    left = {group.group_id for group in lab.shard.groups.values() if group.members}
    assert left == {member.group for member in members[:10]}, "the others were not heard of in a whole session"


def test_a_group_over_a_lowered_max_size_rebalances_in_a_turn_after_loading() -> None:
    lab = Lab(group_initial_rebalance_delay_ms=0)
    first = lab.client("a", version=3)
    first.join()
    lab.clock.advance(1)
    first.sync()
    second = lab.client("b", version=3)
    second.join()
    first.join()
    first.sync()
    second.sync()
    assert lab.shard.groups["g"].state is STABLE
    lab.config = replace(lab.config, group_max_size=1)
    lab.restart()
    lab.clock.advance(1)
    assert lab.shard.groups["g"].state is PREPARING_REBALANCE


def test_groups_are_listed_some_shards_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "GROUPS_PER_TURN", 10)
    lab = Lab()
    lab.coordinator.partition_count = lambda: 20
    for partition in range(1, 20):
        lab.coordinator.on_elected(partition, 1)
    for number in range(GROUPS):
        client(lab, number).commit(offsets={("t", 0): number})
    listed: list[int] = []
    look = listing.describe.list_groups

    def counted(*args: Any) -> Any:
        found = look(*args)
        listed.append(len(found))
        return found

    monkeypatch.setattr(listing.describe, "list_groups", counted)
    answers: list[Any] = []
    lab.coordinator.list([], []).when_done(answers.append)
    largest = max(len(lab.coordinator.runtime.shard(partition).groups) for partition in range(20))
    while not answers:
        assert sum(listed) < 10 + largest
        listed.clear()
        lab.clock.turn()
    error, groups = answers[0]
    assert error == ErrorCode.NONE
    assert {group.group_id for group in groups} == {f"g{number}" for number in range(GROUPS)}
