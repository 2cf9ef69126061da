"""The state topic does not grow without end: redundant records are pruned, and share partitions that do not change do not
prevent that.
"""

from __future__ import annotations

import pytest

from ottla.broker.share.coordinator.share_shard import snapshot_record
from ottla.broker.share.share_state import SharePartitionKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.internal_topics.coordinator_records import ShareSnapshotValue
from tests.broker.coordinator.working_clock import TURN_MAX_NS, WorkingClock, clock
from tests.broker.share.coordinator.harness import ORDERS, ShareCoordinatorHarness

__all__ = ["clock"]

MINUTE_MS = 60_000
SHARE_PARTITIONS = 10_000


@pytest.fixture
def share() -> ShareCoordinatorHarness:
    return ShareCoordinatorHarness(
        updates_per_snapshot=2,
        write_timeout_ms=2 * MINUTE_MS,
        prune_interval_ms=MINUTE_MS,
        cold_snapshot_interval_ms=MINUTE_MS,
    )


def test_records_before_the_oldest_snapshot_are_pruned(share: ShareCoordinatorHarness) -> None:
    share.initialize()
    for _ in range(3):
        share.write()
    assert [offset for offset, _, _ in share.records()] == [0, 1, 2, 3]
    share.clock.advance(MINUTE_MS)
    assert share.pruned == [3]


def test_a_cold_share_partition_gets_a_new_snapshot_when_others_have_written_since(
    share: ShareCoordinatorHarness,
) -> None:
    share.initialize(partition=1)
    share.initialize(partition=0)
    for _ in range(3):
        share.write(partition=0)
    share.clock.advance(2 * MINUTE_MS)
    # The snapshot at offset 4 was as old as the other one. The second minute prunes after both new snapshots.
    assert share.pruned == [5]
    assert share.read(partition=1).error_code == ErrorCode.NONE


def test_share_partitions_that_all_are_cold_are_written_once_and_not_again(share: ShareCoordinatorHarness) -> None:
    share.initialize(partition=0)
    share.initialize(partition=1)
    share.clock.advance(10 * MINUTE_MS)
    assert len(share.records()) == 2


def test_uncommitted_snapshots_prune_nothing(share: ShareCoordinatorHarness) -> None:
    share.initialize()
    share.log.hold = True
    share.send_initialize(state_epoch=2)
    share.clock.advance(MINUTE_MS)
    assert share.pruned == []
    share.log.release(share.tp)
    assert share.pruned == [1]


def test_the_states_of_a_deleted_topic_go(share: ShareCoordinatorHarness) -> None:
    share.initialize()
    share.topics.clear()
    share.coordinator.on_topics_deleted(frozenset({ORDERS}))
    share.clock.advance(1)
    assert not share.shard.states
    share.restart()
    share.clock.advance(1)
    assert not share.shard.states


def test_the_states_of_a_topic_that_was_deleted_while_no_coordinator_was_at_work_go_when_one_is(
    share: ShareCoordinatorHarness,
) -> None:
    share.initialize()
    share.topics.clear()
    share.restart()
    share.clock.advance(1)
    assert not share.shard.states
    assert share.records()[-1][2] is None


def many_share_partitions(clock: WorkingClock) -> ShareCoordinatorHarness:
    share = ShareCoordinatorHarness(cold_snapshot_interval_ms=MINUTE_MS)
    state = ShareSnapshotValue(0, 0, 0, 0, 0, clock.wall_ms(), clock.wall_ms(), [])
    for partition in range(SHARE_PARTITIONS):
        share.shard.replay(partition, -1, *snapshot_record(SharePartitionKey("g", ORDERS, partition), state))
    share.shard.newest_offset = 2 * SHARE_PARTITIONS
    clock.longest_ns = 0
    return share


def test_many_cold_share_partitions_get_their_snapshots_in_turns(clock: WorkingClock) -> None:
    share = many_share_partitions(clock)
    clock.advance(MINUTE_MS + 1_000)
    assert len(share.records()) == SHARE_PARTITIONS
    assert clock.longest_ns < TURN_MAX_NS // 2


def test_the_states_of_a_deleted_topic_of_many_partitions_go_in_turns(clock: WorkingClock) -> None:
    share = many_share_partitions(clock)
    clock.run(lambda: share.coordinator.on_topics_deleted({ORDERS}))
    clock.advance(1_000)
    assert not share.shard.states
    assert clock.longest_ns < TURN_MAX_NS // 2
