"""One share partition at its leader: the pure state (share_partition.py) with its log, its persister, its timer and its fetches.

    LOADING    the persister is asked for the state; fetches wait, acknowledgements are refused
    ACTIVE     records are acquired and released
    ENDED      this broker does not lead the partition in the same epoch any more, or the share coordinator has refused the leader:
               everything is answered with the error, and the next fetch loads the state again

A delayed share fetch watches the share partition; the share partition watches the log while there is one. All are woken when
records come, when records are released, and when the state is loaded or ended. One timer runs for all acquisition locks: it
expires when the first lock does that was held when it was set, and is set again for the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import Protocol

from ottla.broker.replication.partition import Partition
from ottla.broker.replication.wakeups import DelayedOperation, Wakeups
from ottla.broker.share.counts import ShareCounts
from ottla.broker.share.fetched import Acquired, Fetched, Limits
from ottla.broker.share.group_settings import EARLIEST, ShareGroupSettings
from ottla.broker.share.in_flight import Run
from ottla.broker.share.remote_records import RemoteBatches, RemoteRecords, TieredReads
from ottla.broker.share.share_partition import Acknowledgement, SharePartition, Update
from ottla.broker.share.share_state import (
    UNINITIALIZED_START_OFFSET,
    Persister,
    SharePartitionKey,
    ShareState,
    StateBatch,
    StateUpdate,
)
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server.clock import Clock, TimerWheel
from ottla.server.metrics import Histogram
from ottla.server.network.context import Reply
from ottla.server.tasks import isolated
from ottla.storage.log.log import Log, Read

#: The errors that clients get for those of the share coordinator. For every other error clients get UNKNOWN_SERVER_ERROR.
CLIENT_ERRORS = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
#: The errors after which the state in memory is not the share coordinator's any more.
ENDING_ERRORS = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
)

Written = Callable[[KafkaError | None], None]


class DeadLetters(Protocol):
    """The interface to the writer of dead letters (share/dead_letter_queue.py)."""

    def write(
        self,
        group_id: str,
        partition: Partition,
        runs: Sequence[Run],
        settings: Callable[[], ShareGroupSettings],
        done: Callable[[], None],
    ) -> None: ...


class Leadership(Protocol):
    """The interface to the broker that a share partition needs (share/leaders.py)."""

    clock: Clock
    wheel: TimerWheel
    wakeups: Wakeups
    persister: Persister
    counts: ShareCounts
    dead_letters: DeadLetters
    #: None where remote.log.storage.system.enable is false.
    remote_reads: TieredReads | None

    def settings_of(self, group_id: str) -> ShareGroupSettings: ...

    def ended(self, led: LedSharePartition) -> None: ...


class Phase(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    ENDED = "ended"


class LedSharePartition:
    """A share partition from its loading to the end of its leadership."""

    __slots__ = (
        "_is_burying", "_is_watching", "_leadership", "_remote", "_slot", "_timer_ms", "batch_sizes", "error", "key", "leader_epoch", "partition",
        "phase", "state", "timed_out", "waiting",
    )  # fmt: skip

    state: SharePartition  # since it is ACTIVE

    def __init__(self, key: SharePartitionKey, partition: Partition, leadership: Leadership) -> None:
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.phase = Phase.LOADING
        self.error: KafkaError | None = None
        #: The delayed share fetches, in the order in which they came.
        self.waiting: dict[DelayedOperation, None] = {}
        #: Records whose acquisition lock has timed out.
        self.timed_out = 0
        #: The records of each batch at its first delivery.
        self.batch_sizes = Histogram()
        self._leadership = leadership
        reads = leadership.remote_reads
        self._remote = RemoteRecords(reads, partition, partial(leadership.wakeups.schedule, self)) if reads else None
        self._is_burying = False
        self._is_watching = False
        self._timer_ms: int | None = None
        self._slot = -1

    def __repr__(self) -> str:
        return f"{self.key.group_id}:{self.partition}"

    # -- Life --------------------------------------------------------------------------------------------------------

    def load(self, reset: Callable[[Log, str, Callable[[int | KafkaError], None]], None]) -> None:
        """Load the state; `reset` finds the offset of share.auto.offset.reset, for a group that has none yet."""

        begun_ms = self._leadership.clock.mono_ms()

        def loaded(outcome: ShareState | KafkaError) -> None:
            if self.phase != Phase.LOADING:
                return
            self._leadership.counts.load_times.add(self._leadership.clock.mono_ms() - begun_ms)
            if isinstance(outcome, KafkaError):
                self.end(_for_client(outcome))
            elif outcome.start_offset >= 0:
                self._begin(outcome, outcome.start_offset)
            elif (log := self._log()) is not None:
                reset(log, self._settings().offset_reset, partial(self._begin, outcome))

        self._leadership.persister.read(self.key, self.leader_epoch).when_done(loaded)

    def _begin(self, stored: ShareState, start_offset: int | KafkaError) -> None:
        log = self._log()
        if self.phase != Phase.LOADING or log is None:
            return
        try:
            if isinstance(start_offset, KafkaError):
                raise start_offset
            self.state = SharePartition.load(self._settings().partition, stored, start_offset)
        except KafkaError as error:
            self.end(error)
            return
        self.state.move_log_start(log.log_start_offset)
        self.phase = Phase.ACTIVE
        if stored.start_offset < 0 and self._settings().offset_reset != EARLIEST:
            self._keep_start()
        self._bury()
        self._leadership.wakeups.schedule(self)

    def _keep_start(self) -> None:
        """Have the group's first offset written: a group that has no members for a time must not skip the records of that time."""

        def kept(outcome: KafkaError | None) -> None:
            error = None if outcome is None else _for_client(outcome)
            if error is not None and error.code in ENDING_ERRORS:
                self.end(error)

        self._persist([]).when_done(kept)

    def _persist(self, batches: Sequence[StateBatch]) -> Reply[None]:
        state, epoch = self.state, self.leader_epoch
        update = StateUpdate(state.state_epoch, epoch, state.start_offset, batches, state.delivery_complete_count)
        return self._leadership.persister.write(self.key, update)

    def end(self, error: KafkaError) -> None:
        if self.phase == Phase.ENDED:
            return
        self.phase = Phase.ENDED
        self.error = error
        if self._slot >= 0:
            self._leadership.wheel.remove(self, self._slot)
        if self._is_watching:
            self._is_watching = False
            self.partition.watchers.consumers.pop(self, None)
        self._leadership.ended(self)
        self._leadership.wakeups.schedule(self)

    def _log(self) -> Log | None:
        """Return the log while this broker leads the partition in the same epoch; otherwise close the share partition, and return None."""
        log = self.partition.leader_log
        if log is not None and self.partition.leader_epoch == self.leader_epoch:
            return log
        code = ErrorCode.KAFKA_STORAGE_ERROR if self.partition.offline else ErrorCode.NOT_LEADER_OR_FOLLOWER
        self.end(KafkaError(code))
        return None

    def _settings(self) -> ShareGroupSettings:
        return self._leadership.settings_of(self.key.group_id)

    # -- Fetching ----------------------------------------------------------------------------------------------------

    def has_more(self) -> bool:
        """Return whether a fetch could acquire something now. Without leadership of the partition it ends the share partition."""
        log = self._log()
        if self.phase != Phase.ACTIVE or log is None:
            return False
        state, settings = self.state, self._settings()
        state.settings = settings.partition
        state.move_log_start(log.log_start_offset)
        return state.can_acquire and state.next_fetch_offset < self._readable_end(log, settings)

    @staticmethod
    def _readable_end(log: Log, settings: ShareGroupSettings) -> int:
        return log.last_stable_offset if settings.read_committed else log.high_watermark

    def read(self, max_bytes: int, max_records: int) -> Fetched | None:
        """Return the records that could be acquired of a partition that has more.

        None: its offset is in a gap of compaction at the end, or the records are being read from remote storage.
        """
        log, state, settings = self.partition.leader_log, self.state, self._settings()
        assert log is not None
        offset, end = state.next_fetch_offset, self._readable_end(log, settings)
        self.partition.reads += 1
        found: Read | RemoteBatches | None
        if self._remote is not None and offset < log.local_start_offset:
            found = self._remote.read(log, offset, end, max_bytes, read_committed=settings.read_committed)
        else:
            found = log.read(offset, max_bytes=max_bytes, up_to_offset=end)
        if found is None or not found.records:
            return None
        aborted = found.aborted if isinstance(found, RemoteBatches) else None
        fetched = Fetched(offset, found.records, max(offset, state.in_flight.end) + max_records, aborted)
        if found.next_offset < end:
            fetched.counted_bytes = max(max_bytes, len(found.records))
        return fetched

    def acquire(self, member_id: str, fetched: Fetched, max_records: int, limits: Limits) -> list[Acquired]:
        """Acquire the records that were read, in the same turn of the loop."""
        log = self.partition.leader_log
        assert log is not None and fetched.offset == self.state.next_fetch_offset
        aborted = []
        if self._settings().read_committed:
            transactions = fetched.transactions
            if transactions is None:
                transactions = log.segments.aborted_transactions(fetched.offset, fetched.spans[-1].last + 1)
            aborted = fetched.aborted(transactions)
        now_ms = self._leadership.clock.mono_ms()
        acquired = self.state.acquire(
            member_id,
            fetched.offset,
            fetched.spans,
            max_records=max_records,
            batch_size=limits.batch_size,
            now_ms=now_ms,
            strict=limits.strict,
            aborted=aborted,
        )
        for first, last, count in acquired:
            if count == 1:
                self.batch_sizes.add(last - first + 1)
        if acquired:
            self._set_timer(now_ms + self.state.settings.lock_duration_ms)
        return acquired

    # -- Waiting -----------------------------------------------------------------------------------------------------

    def watch(self, fetch: DelayedOperation) -> None:
        """Wake the fetch at each change until it is `unwatch`ed."""
        self.waiting[fetch] = None
        if not self._is_watching and self.phase != Phase.ENDED:
            self._is_watching = True
            self.partition.watchers.consumers[self] = None

    def unwatch(self, fetch: DelayedOperation) -> None:
        self.waiting.pop(fetch, None)

    def changed(self) -> DelayedOperation:
        """Take note of a change of the replica's high watermark, log start or role. The replica calls this once for each watch."""
        self._is_watching = False
        return self

    def wake(self) -> None:
        self._log()
        for fetch in list(self.waiting):
            if self.phase == Phase.ACTIVE and not self._has_records():
                break
            isolated(fetch.wake)
        if self.waiting and self.phase != Phase.ENDED and not self._is_watching:
            self._is_watching = True
            self.partition.watchers.consumers[self] = None

    def _has_records(self) -> bool:
        log = self._log()
        return log is not None and self.state.can_acquire and self.state.next_fetch_offset < log.high_watermark

    # -- Releasing ---------------------------------------------------------------------------------------------------

    def acknowledge(self, member_id: str, acknowledgements: Sequence[Acknowledgement], done: Written) -> None:
        """Acknowledge records. `done` is called once the outcome is on the share coordinator's disk, or at once if nothing has to be written.

        Raises:
            KafkaError: nothing is changed.
        """
        self._log()
        if self.phase != Phase.ACTIVE:
            raise self.error or KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self.state.settings = self._settings().partition
        update = self.state.acknowledge(member_id, acknowledgements, self._leadership.clock.mono_ms())
        self._leadership.counts.acknowledge(acknowledgements)
        if update is None:
            done(None)
        else:
            self._write(update, done)

    def release(self, member_id: str) -> None:
        """The member is gone."""
        self._log()
        if self.phase == Phase.ACTIVE:
            self._write(self.state.release(member_id))

    def _write(self, update: Update | None, done: Written | None = None) -> None:
        if update is not None:
            self._persist(update.batches).when_done(partial(self._written, update, done))

    def _written(self, update: Update, done: Written | None, outcome: KafkaError | None) -> None:
        error = None if outcome is None else _for_client(outcome)
        if error is not None and self.phase == Phase.ENDED:
            error = self.error  # the reason of the end says more: this broker has stopped leading during the write
        if self.phase == Phase.ACTIVE:
            if error is None:
                self.state.written(update)
            elif error.code in ENDING_ERRORS:
                self.end(error)
            else:
                self.state.not_written(update, self._leadership.clock.mono_ms())
                self._set_timer(self.state.next_deadline_ms)
            self._bury()
            self._leadership.wakeups.schedule(self)
        if done is not None:
            isolated(done, error)

    # -- Dead letters ------------------------------------------------------------------------------------------------

    def _bury(self) -> None:
        """Let the dead letters of ARCHIVING records be written. Records that become ARCHIVING meanwhile wait for the next write."""
        if self._is_burying or self.phase != Phase.ACTIVE:
            return
        runs = self.state.take_dead()
        if runs:
            self._is_burying = True
            done = partial(self._buried, runs)
            self._leadership.dead_letters.write(self.key.group_id, self.partition, runs, self._settings, done)

    def _buried(self, runs: list[Run]) -> None:
        self._is_burying = False
        update = self.state.archive(runs)
        if self.phase == Phase.ACTIVE:
            self._write(update)
            self._bury()
        elif update is not None:
            # Leadership or the last member has gone meanwhile. A new leader has fenced this write, and writes the letters again.
            late = StateUpdate(self.state.state_epoch, self.leader_epoch, UNINITIALIZED_START_OFFSET, update.batches)
            self._leadership.persister.write(self.key, late)

    # -- Acquisition locks -------------------------------------------------------------------------------------------

    def _set_timer(self, deadline_ms: int | None) -> None:
        """Set the timer for a lock that times out at `deadline_ms`, unless the timer is set for an earlier lock."""
        if deadline_ms is None or (self._timer_ms is not None and self._timer_ms <= deadline_ms):
            return
        wheel = self._leadership.wheel
        if self._slot >= 0:
            wheel.remove(self, self._slot)
        self._timer_ms = deadline_ms
        self._slot = wheel.add(self, max(0, deadline_ms - self._leadership.clock.mono_ms()))

    def expire(self) -> None:
        self._timer_ms = None
        self._slot = -1
        if self._log() is not None and self.phase == Phase.ACTIVE:
            self.state.settings = self._settings().partition
            update = self.state.time_out(self._leadership.clock.mono_ms())
            self.timed_out += 0 if update is None else sum(run.size for run in update.runs)
            self._write(update)
            self._set_timer(self.state.next_deadline_ms)


def _for_client(error: KafkaError) -> KafkaError:
    return KafkaError(CLIENT_ERRORS.get(error.code, ErrorCode.UNKNOWN_SERVER_ERROR), error.message)
