"""Known mistakes of share and streams groups that seeds of whole clusters notice, with the invariants that they break."""

from __future__ import annotations

from typing import Any

from ottla.broker.groups import heartbeats
from ottla.broker.groups.share import share_heartbeat
from ottla.broker.groups.streams import streams_heartbeat, streams_step
from ottla.broker.groups.streams.streams_group import StreamsGroup, TasksTuple
from ottla.broker.share import share_partition
from ottla.broker.share.coordinator.share_shard import PartitionState, ShareShard
from ottla.broker.share.dead_letter_queue import DeadLetterQueue
from ottla.broker.share.in_flight import TERMINAL, InFlightRecords, RecordState, released
from ottla.broker.share.led_partition import LedSharePartition
from ottla.broker.share.share_partition import SharePartition, ShareSettings, Update
from ottla.broker.share.share_state import ShareState, StateUpdate
from ottla.protocol.internal_topics.coordinator_records import ShareSnapshotValue

_load = vars(SharePartition)["load"].__func__
_read_led = LedSharePartition.read
_acknowledge = SharePartition.acknowledge
_time_out = SharePartition.time_out
_begin = SharePartition._begin
_snapshot = PartitionState.snapshot
_replay = ShareShard.replay
_check_held = share_partition._check_held


def answer_before_the_write(self: LedSharePartition, update: Update | None, done: Any = None) -> None:
    """The members get their responses, and the next fetch depends on the change, while it is still being written."""
    if update is None:
        return
    state = self.state
    to_write = StateUpdate(
        state.state_epoch, self.leader_epoch, state.start_offset, update.batches, state.delivery_complete_count
    )
    self._leadership.persister.write(self.key, to_write)
    self._written(update, done, None)


def load_the_start_alone(cls: Any, settings: ShareSettings, state: ShareState, start_offset: int) -> SharePartition:
    loaded: SharePartition = _load(cls, settings, state._replace(batches=[]), start_offset)
    return loaded


def begin_at_the_first_batch(cls: Any, settings: ShareSettings, state: ShareState, start_offset: int) -> SharePartition:
    """Skip records that an earlier leader had delivered, and that were not released."""
    first = state.batches[0].first_offset if state.batches else start_offset
    loaded: SharePartition = _load(cls, settings, state, max(start_offset, first))
    return loaded


def pass_what_is_held(self: InFlightRecords) -> bool:
    """The start offset moves past records that a member still holds."""
    passed = TERMINAL | {RecordState.ACQUIRED}
    index = next(
        (i for i, run in enumerate(self.runs) if run.state not in passed or run.target is not None), len(self.runs)
    )
    index = index if any(run.state in TERMINAL for run in self.runs[:index]) else 0
    if not index:
        return False
    self.start = self.runs[index].first if index < len(self.runs) else self.end
    self.finished -= sum(run.size for run in self.runs[:index] if run.state in TERMINAL)
    del self.runs[:index], self._firsts[:index]
    return True


def count_less(self: SharePartition, changes: Any) -> Update | None:
    update = _begin(self, changes)
    if update is not None:
        update.batches[:] = [
            batch._replace(delivery_count=max(0, batch.delivery_count - 1)) for batch in update.batches
        ]
    return update


def time_out_early(self: SharePartition, now_ms: int) -> Update | None:
    """The first lock that times out ends all other locks, too."""
    return _time_out(self, now_ms + 10_000)


def snapshot_without_batches(self: PartitionState, now_ms: int) -> ShareSnapshotValue:
    return _snapshot(self._replace(batches=()), now_ms)


def prune_everything(self: ShareShard) -> int:
    return self.newest_offset + 1


def read_to_the_end(self: LedSharePartition, max_bytes: int, max_records: int) -> Any:
    log = self.partition.leader_log
    if log is None:
        return _read_led(self, max_bytes, max_records)
    high_watermark = log.high_watermark
    log.high_watermark = log.log_end_offset
    try:
        return _read_led(self, max_bytes, max_records)
    finally:
        log.high_watermark = high_watermark


def bury_nothing(self: DeadLetterQueue, group_id: str, partition: Any, runs: Any, settings: Any, done: Any) -> None:
    async def later() -> None:
        done()

    self.world.spawn(later(), "buries nothing")


def load_nothing_dead(cls: Any, settings: ShareSettings, state: ShareState, start_offset: int) -> SharePartition:
    loaded: SharePartition = _load(cls, settings, state, start_offset)
    loaded._dead.clear()
    return loaded


def nothing(*given: Any, **named: Any) -> None:
    return None


def always(*given: Any, **named: Any) -> bool:
    return True


#: Name: text, invariants, patches.
Rows = dict[str, tuple[str, str, tuple[tuple[Any, str, Any], ...]]]

SHARE: Rows = {
    "share-answered-before-the-write": (
        "an acknowledgement is answered before the share coordinator has it",
        "58",
        ((LedSharePartition, "_write", answer_before_the_write),),
    ),
    "share-state-not-loaded": (
        "a new leader takes the start offset from the share coordinator, and no records",
        "58",
        ((SharePartition, "load", classmethod(load_the_start_alone)),),
    ),
    "share-gaps-not-loaded": (
        "a new leader begins at the first record that was released",
        "56 57",
        ((SharePartition, "load", classmethod(begin_at_the_first_batch)),),
    ),
    "share-start-passes-held-records": (
        "the start offset moves past a record that a member holds",
        "55 56 57",
        ((InFlightRecords, "drop_finished", pass_what_is_held),),
    ),
    "share-counts-fall": (
        "the delivery count that is written is one too low",
        "58",
        ((SharePartition, "_begin", count_less),),
    ),
    "dead-letters-not-written": (
        "records that are given up are archived without a dead letter",
        "57",
        ((DeadLetterQueue, "write", bury_nothing),),
    ),
    "dead-letters-left-after-load": (
        "a new leader does not write the dead letters of ARCHIVING records",
        "56",
        ((SharePartition, "load", classmethod(load_nothing_dead)),),
    ),
    "share-locks-end-early": (
        "all locks of a share partition time out with the first",
        "55",
        ((SharePartition, "time_out", time_out_early),),
    ),
    "share-anyone-acknowledges": (
        "a member may acknowledge what another one holds",
        "55 58",
        ((share_partition, "_check_held", lambda run, member_id: _check_held(run, run.member)),),
    ),
    "share-given-up-early": (
        "a record is archived with one delivery left",
        "57",
        ((share_partition, "released", lambda count, limit: released(count, limit - 1)),),
    ),
    "share-delivered-without-end": (
        "no delivery is the last one",
        "57",
        ((share_partition, "released", lambda count, limit: RecordState.AVAILABLE),),
    ),
    "share-snapshot-without-records": (
        "a snapshot of share state has the start offset alone",
        "58",
        ((PartitionState, "snapshot", snapshot_without_batches),),
    ),
    "share-state-pruned": (
        "records of share state are deleted that no snapshot has replaced",
        "0 13 42 56 57 58",
        ((ShareShard, "redundant_before", prune_everything),),
    ),
    "share-reads-beyond-the-watermark": (
        "members of a share group are given records that are not committed",
        "2 31 56 58",
        ((LedSharePartition, "read", read_to_the_end),),
    ),
    "share-aborted-records": (
        "a share group with read_committed is given records of aborted transactions",
        "31",
        ((SharePartition, "_without_aborted", lambda self, runs, aborted: runs),),
    ),
    "share-heartbeats-of-any-epoch": (
        "a member of a share group is served in an epoch that is over",
        "38",
        ((share_heartbeat, "_validate_epoch", nothing),),
    ),
    "share-target-not-computed": (
        "members of a share group get no partitions",
        "42",
        ((heartbeats, "assign_if_due", lambda shard, now_ms, group, plan, go_on, *, may_change=False: go_on()),),
    ),
}
STREAMS: Rows = {
    "task-with-two-members": (
        "an active task is given to a member before another one has closed it",
        "37",
        ((StreamsGroup, "is_free_active", always),),
    ),
    "removed-member-keeps-its-tasks": (
        "the tasks of a member that is removed are never free again",
        "42",
        ((StreamsGroup, "_release", nothing),),
    ),
    "streams-heartbeats-of-any-epoch": (
        "a member of a streams group is served in an epoch that is over",
        "38",
        ((streams_heartbeat, "_validate_epoch", nothing),),
    ),
    "streams-target-not-computed": (
        "a streams group never gets a new target",
        "42",
        ((heartbeats, "target_records", lambda *given: []),),
    ),
    "closed-tasks-not-given": (
        "tasks that others have closed are never given",
        "42",
        ((streams_step, "_given", lambda target, kept, active, copy: (TasksTuple(), True)),),
    ),
}
