"""One partition of `__share_group_state` as state: the share partitions whose keys hash to it.

`replay` is where hard state changes. Decisions are functions on the shard in share_coordinator.py, and those of no request at the end
of this module.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from ottla.broker.coordinator.outcome import CoordinatorRecord, Outcome, Unasked
from ottla.broker.coordinator.shard import RecordCodec
from ottla.broker.coordinator.timers import Timers, sweep_soon
from ottla.broker.share.share_state import UNINITIALIZED_START_OFFSET, UNKNOWN_COUNT, SharePartitionKey, StateBatch
from ottla.controller.metadata.topics import TopicsImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.coordinator_records import (
    SHARE_RECORDS,
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from ottla.protocol.messages import shared_structs
from ottla.protocol.slotted import frozen
from ottla.server.config.settings import setting


@frozen
class ShareCoordinatorConfig:
    updates_per_snapshot: int = setting("share.coordinator.snapshot.update.records.per.snapshot")
    write_timeout_ms: int = setting("share.coordinator.write.timeout.ms")
    prune_interval_ms: int = setting("share.coordinator.state.topic.prune.interval.ms")
    cold_snapshot_interval_ms: int = setting("share.coordinator.cold.partition.snapshot.interval.ms")


ShareKey: TypeAlias = ShareSnapshotKey | ShareUpdateKey

UNKNOWN_LEADER_EPOCH = -1
#: The writing of a record counts as this many looks of a sweep. A sweep has a bounded number of looks in each turn.
RECORD_LOOKS = 10


class ShareRecordCodec(RecordCodec):
    types = SHARE_RECORDS


def partition_of(key: ShareKey) -> SharePartitionKey:
    return SharePartitionKey(key.group_id, key.topic_id, key.partition)


def snapshot_record(key: SharePartitionKey, value: ShareSnapshotValue | None) -> CoordinatorRecord:
    """Return the snapshot record of a share partition; its tombstone if there is no value."""
    return ShareSnapshotKey(*key), value


class PartitionState(NamedTuple):
    """The newest snapshot of a share partition, and the updates since."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]
    created_ms: int
    written_ms: int
    #: Updates in the log since the snapshot, and the snapshot's offset: all before it is redundant.
    updates: int = 0
    snapshot_offset: int = -1

    def updated(self, value: ShareUpdateValue) -> PartitionState:
        """Return the state after an update. A start offset or leader epoch of -1 changes nothing; the state epoch is raised by snapshots alone."""
        start_offset = self.start_offset if value.start_offset == UNINITIALIZED_START_OFFSET else value.start_offset
        return self._replace(
            leader_epoch=max(self.leader_epoch, value.leader_epoch),
            start_offset=start_offset,
            delivery_complete_count=value.delivery_complete_count,
            batches=combine(self.batches, [_batch(batch) for batch in value.state_batches], start_offset),
            updates=self.updates + 1,
        )

    def snapshot(self, now_ms: int) -> ShareSnapshotValue:
        """Return the value of a record with the whole state."""
        return ShareSnapshotValue(
            snapshot_epoch=self.snapshot_epoch + 1,
            state_epoch=self.state_epoch,
            leader_epoch=self.leader_epoch,
            start_offset=self.start_offset,
            delivery_complete_count=self.delivery_complete_count,
            create_timestamp=self.created_ms,
            write_timestamp=now_ms,
            state_batches=[shared_structs.StateBatch(*batch) for batch in self.batches],
        )


#: The state before an update whose snapshot compaction or deletion has removed.
NO_STATE = PartitionState(0, 0, UNKNOWN_LEADER_EPOCH, UNINITIALIZED_START_OFFSET, UNKNOWN_COUNT, (), 0, 0)


class ShareShard:
    """The share states of one partition; `topics()` are those of the newest metadata."""

    def __init__(self, timers: Timers, config: ShareCoordinatorConfig, topics: Callable[[], TopicsImage]) -> None:
        self.timers = timers
        self.config = config
        self.topics = topics
        self.states: dict[SharePartitionKey, PartitionState] = {}
        #: Share partitions with a record that could not be replayed, until a later snapshot or tombstone.
        self.unreadable: set[SharePartitionKey] = set()
        #: The offset of the newest replayed record.
        self.newest_offset = -1

    def replay(self, offset: int, producer_id: int, key: ShareKey, value: object) -> None:
        self.newest_offset = offset
        partition = partition_of(key)
        if value is None:
            self.states.pop(partition, None)
            self.unreadable.discard(partition)
        elif isinstance(value, ShareSnapshotValue):
            self.states[partition] = _recorded(value, offset)
            self.unreadable.discard(partition)
        elif isinstance(value, ShareUpdateValue):
            known = self.states.get(partition)
            if known is None:
                known = NO_STATE._replace(snapshot_epoch=value.snapshot_epoch, snapshot_offset=offset)
            self.states[partition] = known.updated(value)

    def replay_failed(self, key: ShareKey) -> None:
        self.unreadable.add(partition_of(key))

    def replay_end_transaction_marker(self, producer_id: int, committed: bool) -> None:
        """Do nothing: no record of share partitions is part of a transaction."""

    def on_loaded(self, now_ms: int) -> Unasked:
        """Topics may have been deleted while no coordinator was at work."""
        topics = self.topics()
        return self.forget("gone", lambda key: topics.by_id(key.topic_id) is None)

    def on_unloaded(self) -> Unasked:
        return Outcome()

    def check_readable(self, key: SharePartitionKey) -> None:
        """Raise KafkaError NOT_COORDINATOR for a partition that cannot be loaded. Initialization and deletion are the remedies."""
        if key in self.unreadable:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)

    def forget(self, work: Hashable, is_gone: Callable[[SharePartitionKey], bool]) -> Unasked:
        """Write tombstones of the share partitions that are gone, some in each turn."""

        def look(key: SharePartitionKey, records: list[CoordinatorRecord]) -> int:
            if key not in self.states or not is_gone(key):
                return 1
            records.append(snapshot_record(key, None))
            return RECORD_LOOKS

        return sweep_soon(self.timers, work, lambda: [*self.states], look)

    def redundant_before(self) -> int:
        """Return the offset below which no share partition needs a record; 0 while one is unreadable, because nothing is known
        of it.
        """
        if self.unreadable:
            return 0
        return min((state.snapshot_offset for state in self.states.values()), default=self.newest_offset + 1)


def _recorded(value: ShareSnapshotValue, offset: int) -> PartitionState:
    return PartitionState(
        value.snapshot_epoch,
        value.state_epoch,
        value.leader_epoch,
        value.start_offset,
        value.delivery_complete_count,
        combine((), [_batch(batch) for batch in value.state_batches], UNINITIALIZED_START_OFFSET),
        value.create_timestamp,
        value.write_timestamp,
        snapshot_offset=offset,
    )


def _batch(batch: shared_structs.StateBatch) -> StateBatch:
    return StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)


def delete_of_topics(shard: ShareShard, now_ms: int, topic_ids: frozenset[bytes]) -> Unasked:
    """Tombstones of the share partitions of deleted topics."""
    return shard.forget(("topics-deleted", topic_ids), lambda key: key.topic_id in topic_ids)


def snapshot_cold(shard: ShareShard, now_ms: int) -> Unasked:
    """Write snapshots of share partitions that do not change, so that the log can be pruned.

    The log can lose only a prefix, and the snapshot of a share partition that does not change would keep all that other share
    partitions write after it. Nothing is written while the log holds no more than one record of each share partition.
    """
    if shard.newest_offset + 1 - shard.redundant_before() <= len(shard.states):
        return Outcome()

    def look(key: SharePartitionKey, records: list[CoordinatorRecord]) -> int:
        state = shard.states.get(key)
        if state is None or now_ms - state.written_ms < shard.config.cold_snapshot_interval_ms:
            return 1
        records.append(snapshot_record(key, state.snapshot(now_ms)))
        return RECORD_LOOKS

    return sweep_soon(shard.timers, "cold", lambda: [*shard.states], look)


def combine(so_far: Sequence[StateBatch], new: Sequence[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """Return the batches of a state, combined with newer ones. `so_far` is a result of this function, or empty.

    The records before `start_offset` are over; with -1 for it, none are. For each offset the batch with the highest delivery count
    counts, and of those the one with the highest delivery state: a count never falls, and of one count the terminal states are the
    highest numbers (2 acknowledged, 4 archived). So the order in which updates arrive does not matter. The result is sorted, does
    not overlap, and neighbours differ.
    """
    pruned = list(so_far if start_offset == UNINITIALIZED_START_OFFSET else _from(so_far, start_offset))
    if not new:
        return tuple(pruned)
    pruned += new if start_offset == UNINITIALIZED_START_OFFSET else _from(new, start_offset)
    return _highest(sorted(pruned))


def _from(batches: Sequence[StateBatch], start_offset: int) -> list[StateBatch]:
    return [
        batch if batch.first_offset >= start_offset else batch._replace(first_offset=start_offset)
        for batch in batches
        if batch.last_offset >= start_offset
    ]


def _highest(batches: list[StateBatch]) -> tuple[StateBatch, ...]:
    """Return batches that do not overlap: each record has the state of the batch with the most deliveries. A heap holds the open batches."""
    bounds = sorted({offset for batch in batches for offset in (batch.first_offset, batch.last_offset + 1)})
    runs: list[StateBatch] = []
    open_batches: list[tuple[int, int, int]] = []  # -(delivery count), -(delivery state), last offset
    beginning = 0
    for first, end in pairwise(bounds):
        while beginning < len(batches) and batches[beginning].first_offset == first:
            batch = batches[beginning]
            heappush(open_batches, (-batch.delivery_count, -batch.delivery_state, batch.last_offset))
            beginning += 1
        while open_batches and open_batches[0][2] < first:
            heappop(open_batches)
        if not open_batches:
            continue
        count, state, _ = open_batches[0]
        run = StateBatch(first, end - 1, -state, -count)
        if runs and runs[-1].last_offset + 1 == first and runs[-1][2:] == run[2:]:
            run = runs.pop()._replace(last_offset=end - 1)
        runs.append(run)
    return tuple(runs)
