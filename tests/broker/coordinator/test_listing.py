"""A listing is answered once everything in it is committed: the reply waits for the shards with uncommitted records."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.coordinator.coordinator import partition_for
from ottla.broker.groups.group_coordinator_service import TOPIC
from ottla.protocol.errors import ErrorCode
from tests.broker.groups.harness import PARKED, GroupCoordinatorHarness

PARTITIONS = 3
GROUPS = {partition_for(name, PARTITIONS): name for name in ("a", "b", "c")}


@pytest.fixture
def harness() -> GroupCoordinatorHarness:
    """Return a harness with three shards, each of which has a group."""
    harness = GroupCoordinatorHarness()
    harness.coordinator.partition_count = lambda: PARTITIONS
    for partition in range(1, PARTITIONS):
        harness.coordinator.on_elected(partition, 1)
    for partition in range(PARTITIONS):
        commit(harness, GROUPS[partition])
    return harness


def commit(harness: GroupCoordinatorHarness, group_id: str) -> Any:
    return harness.client("c", group=group_id).commit(offsets={("t", 0): 1})


def listing(harness: GroupCoordinatorHarness, *uncommitted: int) -> list[Any]:
    """Return the response of a listing, if there is one, while the shards `uncommitted` have a record that is not committed."""
    harness.log.hold = True
    for partition in uncommitted:
        assert commit(harness, GROUPS[partition]) == PARKED
    answers: list[Any] = []
    harness.coordinator.list([], []).when_done(answers.append)
    assert not answers
    return answers


def listed(answers: list[Any]) -> tuple[ErrorCode, list[str]]:
    ((error, groups),) = answers
    return error, sorted(group.group_id for group in groups)


def test_the_answer_waits_for_every_shard_and_has_the_groups_of_all(harness: GroupCoordinatorHarness) -> None:
    answers = listing(harness, 0, 2)
    harness.log.release((TOPIC, 2))
    assert not answers
    harness.log.release((TOPIC, 0))
    assert listed(answers) == (ErrorCode.NONE, ["a", "b", "c"])


def test_a_shard_that_another_broker_leads_meanwhile_is_left_to_that_one(harness: GroupCoordinatorHarness) -> None:
    answers = listing(harness, 0)
    harness.coordinator.runtime.on_resigned(0)
    assert listed(answers) == (ErrorCode.NONE, sorted(GROUPS[partition] for partition in (1, 2)))


def test_records_that_are_not_committed_in_time_are_an_error_without_groups(harness: GroupCoordinatorHarness) -> None:
    answers = listing(harness, 0, 1)
    harness.log.release((TOPIC, 1))
    harness.clock.advance(harness.config.offsets_commit_timeout_ms)
    assert listed(answers) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, [])
