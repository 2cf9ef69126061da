"""One replica of a partition on this node: its role, epochs, watermarks and the operations that wait for them.

The role comes from the metadata image only (`become_leader`, `become_follower`); nothing here asks the controller.

    leader      appends, advances the high watermark over the maximal ISR, answers every read
    follower    is appended to by the fetcher; answers consumers that fetch from followers (KIP-392), up to its watermark
    offline     its log directory failed: KAFKA_STORAGE_ERROR to everybody until the node is restarted

Delayed produces are kept here in two lists by offset: `_committing` is completed from its head by the high watermark, `_flushing`
by the flush. Fetches watch (replication/watchers.py): those of followers the log's end, of consumers the high watermark;
each is notified of the next change once, and delayed fetches are woken once per turn of the loop (wakeups.py).
Not handled here: sockets, timeouts (delayed_produce.py, server/timer_wheel.py), and the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ottla.broker.replication import state_changes
from ottla.broker.replication.delayed_produce import OffsetWait, OffsetWaits
from ottla.broker.replication.group_flush import GroupFlush
from ottla.broker.replication.isr import (
    ANY_EPOCH,
    NEVER_MS,
    OVERTAKEN,
    IsrProposals,
    ReplicaProgress,
    effective_min_isr,
    joinable,
    may_join,
    next_high_watermark,
    out_of_sync,
)
from ottla.broker.replication.throttle import Throttle
from ottla.broker.replication.wakeups import DelayedOperation, Wakeups
from ottla.broker.replication.watchers import Watchers
from ottla.controller.metadata.topic_names import INTERNAL_TOPICS
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.work import Turn
from ottla.server.isolation import isolated
from ottla.storage.log.log import CLIENT, Appended, Log, Origin
from ottla.storage.log.preparation import Prepared
from ottla.storage.log.truncate import truncate_to
from ottla.storage.log.trusted_append import append_trusted
from ottla.storage.log_config import NEVER
from ottla.storage.producers.producer_snapshots import Decoded

NO_LEADER = -1
#: The value of flush.messages with which each append is flushed before it counts.
EVERY_RECORD = 1


class Partition:
    """One replica of a partition. Its state lies in it alone: access through another object would slow down every append."""

    __slots__ = (
        "_committing", "_flushing", "_group_flush", "_isr_proposals", "_wakeups", "alone", "appends", "bytes_in", "bytes_out",
        "delayed_deletes", "epoch_start_offset", "failed_appends", "failed_reads", "flush_messages", "follower_throttle", "followers",
        "index", "is_batched", "isr", "lag_time_ms_max", "leader_epoch", "leader_id", "leader_log", "leader_throttle", "log",
        "maximal_isr", "messages_in", "min_isr", "node_id", "offline", "partition_epoch", "proposed_isr", "reads", "replicas",
        "replication_bytes_out", "topic", "topic_id", "watchers",
    )  # fmt: skip

    def __init__(
        self,
        node_id: int,
        topic: str,
        index: int,
        topic_id: bytes,
        wakeups: Wakeups,
        group_flush: GroupFlush,
        lag_time_ms_max: int,
        isr_proposals: IsrProposals[Partition] | None = None,
    ) -> None:
        self.node_id = node_id
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.lag_time_ms_max = lag_time_ms_max
        self.log: Log | None = None
        #: The log if this replica leads and its directory is online, else None, so that the hot path has one check.
        self.leader_log: Log | None = None
        self.offline = False
        self.leader_id = NO_LEADER
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.epoch_start_offset = -1
        self.replicas: tuple[int, ...] = ()
        self.isr: frozenset[int] = frozenset()
        self.maximal_isr: frozenset[int] = frozenset()
        #: The ISR proposal that the controller has not answered yet.
        self.proposed_isr: frozenset[int] | None = None
        self.min_isr = 1
        self.followers: dict[int, ReplicaProgress] = {}
        #: True if there is no other replica, so that an append is committed at once.
        self.alone = True
        #: Whether followers' fetches of it may be delayed (wakeups.py).
        self.is_batched = topic not in INTERNAL_TOPICS
        batching = wakeups.batching if self.is_batched else wakeups.no_batching
        self.watchers = Watchers(wakeups, batching)
        #: DeleteRecords that wait for other replicas' log starts (delayed_delete_records.py).
        self.delayed_deletes: list[DelayedOperation] = []
        #: Set where this replica is throttled, as a leader or as a follower (replication/throttle.py).
        self.leader_throttle: Throttle | None = None
        self.follower_throttle: Throttle | None = None
        #: flush.messages: the append that reaches this number of records is answered after a flush.
        self.flush_messages = NEVER
        self._committing = OffsetWaits(batching)
        self._flushing = OffsetWaits(batching)
        self._wakeups = wakeups
        self._group_flush = group_flush
        self._isr_proposals = isr_proposals
        # Counted in plain ints, read at a scrape.
        self.appends = self.failed_appends = self.messages_in = self.bytes_in = 0
        self.reads = self.failed_reads = self.bytes_out = self.replication_bytes_out = 0

    def __repr__(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def is_leader(self) -> bool:
        return self.leader_id == self.node_id

    @property
    def wants_flush(self) -> bool:
        log = self.leader_log
        return log is not None and log.log_end_offset - log.recovery_point >= self.flush_messages

    def is_committed(self, last_offset: int) -> bool:
        return self.log is not None and self.log.high_watermark > last_offset

    # -- Roles ------------------------------------------------------------------------------------------------------

    def become_leader(
        self,
        log: Log,
        leader_epoch: int,
        partition_epoch: int,
        replicas: Sequence[int],
        isr: Sequence[int],
        now_ms: int,
    ) -> None:
        """Become the leader, or take over a new ISR or new replicas in the same leader epoch."""
        assert leader_epoch >= self.leader_epoch, f"{self}: leader epoch would go back from {self.leader_epoch}"
        new_epoch = leader_epoch > self.leader_epoch or not self.is_leader
        if not new_epoch and partition_epoch < self.partition_epoch:
            return  # the controller's response to AlterPartition came before the metadata did
        proposed, previous, isr_before = self.proposed_isr, self.leader_id, self.isr
        # The response to AlterPartition came before its metadata, and the next proposal was based on it. The
        # controller may commit that one any moment, so the high watermark has to go on waiting for all of its members.
        keeps_proposal = (
            not new_epoch
            and proposed is not None
            and partition_epoch == self.partition_epoch
            and self.isr == frozenset(isr)
            # Otherwise the controller rejects it as invalid, and no later metadata would end the proposal.
            and proposed.issubset(replicas)
        )
        self.log = log
        log.producers.requires_verification = True
        self._assign(leader_epoch, partition_epoch, replicas, isr)
        if keeps_proposal and proposed is not None:
            self.propose_isr(proposed)
        self.leader_id = self.node_id
        if new_epoch:
            self.epoch_start_offset = log.log_end_offset
            log.epochs.begin(leader_epoch, self.epoch_start_offset)
            state_changes.leader(self, leader_epoch, partition_epoch, log, self.isr, previous)
        elif self.isr != isr_before:
            state_changes.isr_updated(self, self.isr, partition_epoch, self.min_isr)
        known = {} if new_epoch else self.followers
        self.followers = {
            replica: known.get(replica)
            or ReplicaProgress(replica, last_caught_up_ms=now_ms if replica in self.isr else NEVER_MS)
            for replica in replicas
            if replica != self.node_id
        }
        self.alone = not self.followers
        self.leader_log = None if self.offline else log
        self._maybe_flush()
        self.advance_high_watermark()
        if new_epoch:
            self.watchers.fire()
        else:
            self.note_followers()

    def become_follower(
        self,
        log: Log | None,
        leader_id: int,
        leader_epoch: int,
        partition_epoch: int,
        replicas: Sequence[int],
        isr: Sequence[int],
    ) -> None:
        self.leader_log = None
        self.log = log
        if log is not None and (leader_id, leader_epoch) != (self.leader_id, self.leader_epoch):
            state_changes.follower(self, leader_epoch, partition_epoch, log, leader_id, self.leader_id)
        self._assign(leader_epoch, partition_epoch, replicas, isr)
        self.leader_id = leader_id
        self.followers = {}
        self.epoch_start_offset = -1
        self.fail_waiting(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def resign(self) -> None:
        """Called when the replica is removed from this node, or the node stops: the replica has no role and no leader."""
        self.leader_log = None
        self.leader_id = NO_LEADER

    def _assign(self, leader_epoch: int, partition_epoch: int, replicas: Sequence[int], isr: Sequence[int]) -> None:
        assert leader_epoch >= self.leader_epoch, f"{self}: leader epoch would go back from {self.leader_epoch}"
        self.leader_epoch = leader_epoch
        self.replicas = tuple(replicas)
        self.set_isr(partition_epoch, isr)
        self.update_config()

    def update_config(self) -> None:
        if self.log is not None:
            self.min_isr = effective_min_isr(self.log.config.min_insync_replicas, max(1, len(self.replicas)))
            self.flush_messages = self.log.config.flush_messages

    def log_replaced(self, log: Log) -> None:
        """The log has moved to another directory. It has the same batches, offsets and high watermark."""
        self.log = log
        if self.leader_log is not None:
            self.leader_log = log
            self._maybe_flush()
        self.watchers.fire()

    def _maybe_flush(self) -> None:
        if self.flush_messages != NEVER and self.wants_flush:
            self._group_flush.request(self)

    def go_offline(self) -> None:
        """The log directory has failed. Nothing is retried; responses have KAFKA_STORAGE_ERROR from now on."""
        self.offline = True
        self.leader_log = None
        self.fail_waiting(ErrorCode.KAFKA_STORAGE_ERROR)

    def fail_waiting(self, error: ErrorCode) -> None:
        for commit in [*self._committing.take_all(), *self._flushing.take_all()]:
            if commit.callback is not None:
                isolated(commit.callback, error)
        self.watchers.fire()
        self.look_at_starts()

    # -- Appending ---------------------------------------------------------------------------------------------------

    def append(
        self,
        records: bytes | memoryview,
        required_acks: int,
        now_ms: int,
        origin: Origin = CLIENT,
        transaction_version: int = 0,
        prepared: Prepared | Turn | None = None,
    ) -> Appended:
        """Append as the leader. The caller waits with `when_committed` if it asked for all replicas.

        Raises:
            TooLong: the batch has to be prepared first, see `Log.append`.
        """
        log = self.leader_log
        if log is None:
            raise self._not_leader()
        if required_acks == -1 and len(self.isr) < self.min_isr:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self} has {len(self.isr)} replicas in sync, min.insync.replicas asks for {self.min_isr}",
            )
        epoch = self.leader_epoch
        if origin is CLIENT:
            appended = log.append(records, leader_epoch=epoch, now_ms=now_ms, prepared=prepared)
        else:
            appended = append_trusted(log, records, epoch, now_ms, origin, transaction_version)
        self.appends += 1
        self.bytes_in += len(records)
        self.messages_in += appended.last_offset - appended.first_offset + 1
        if self.flush_messages != NEVER and self.wants_flush:
            self._group_flush.request(self)
        if self.alone and self.flush_messages != EVERY_RECORD:
            self._raise_high_watermark(log, log.log_end_offset, within_append=True)
        else:
            self.advance_high_watermark(within_append=True)
            if self.watchers.followers:
                self.watchers.appended(appended.first_offset, appended.last_offset, self.followers)
        return appended

    def advance_high_watermark(self, *, within_append: bool = False) -> None:
        log = self.leader_log
        if log is None or len(self.isr) < self.min_isr:
            # KIP-966: under min ISR the watermark stands still, so that an acknowledged record always has min ISR copies.
            return
        own_end = log.log_end_offset if self.flush_messages != EVERY_RECORD else log.recovery_point
        if self.alone:
            high_watermark = own_end
        else:
            joining = joinable(self.followers.values(), self.maximal_isr, self._isr_proposals)
            now_ms = self._wakeups.clock.mono_ms() if joining else 0
            high_watermark = next_high_watermark(
                own_end, self.followers.values(), self.maximal_isr, joining, now_ms, self.lag_time_ms_max
            )
        self._raise_high_watermark(log, high_watermark, within_append)

    def _raise_high_watermark(self, log: Log, high_watermark: int, within_append: bool = False) -> None:
        if high_watermark <= log.high_watermark:
            return
        log.advance_high_watermark(high_watermark)
        if self._committing.waiting:
            if within_append:
                # A coordinator that appends has not replayed its records yet: no callback may make it decide again (Kafka's
                # ActionQueue). The watermark jumps here when a replica that could join has been late for too long.
                self._wakeups.schedule(self)
            else:
                self.wake()
        watchers = self.watchers
        if watchers.followers or watchers.consumers:
            watchers.watermark_raised()

    def wake(self) -> None:
        """Call back the appends that the high watermark has passed."""
        if self.leader_log is not None:
            self._committing.reached(self.leader_log.high_watermark, self._commit_result())

    def _commit_result(self) -> ErrorCode:
        if len(self.isr) < self.min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    def when_committed(self, last_offset: int, callback: Callable[[ErrorCode], None]) -> OffsetWait:
        """Call back when the high watermark is past `last_offset`: at once if it already is."""
        wait, log = OffsetWait(last_offset + 1, callback), self.leader_log
        if log is None:
            callback(self._not_leader().code)
        elif log.high_watermark > last_offset:
            callback(self._commit_result())
        else:
            self._committing.add(wait)
        return wait

    def when_flushed(self, last_offset: int, callback: Callable[[ErrorCode], None]) -> OffsetWait:
        """Call back when everything up to `last_offset` is on the disk: at once if it already is."""
        wait, log = OffsetWait(last_offset + 1, callback), self.leader_log
        if log is None:
            callback(self._not_leader().code)
        elif log.recovery_point > last_offset:
            callback(ErrorCode.NONE)
        else:
            self._flushing.add(wait)
        return wait

    def _not_leader(self) -> KafkaError:
        if self.offline:
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log directory of {self} is offline")
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def flushed(self, failed: bool) -> None:
        """A flush has ended. A failed one is not repeated: the log directory is given up."""
        log = self.leader_log
        if failed or log is None:
            self.fail_waiting(ErrorCode.KAFKA_STORAGE_ERROR if failed else ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        self._flushing.reached(log.recovery_point, ErrorCode.NONE)
        self.advance_high_watermark()

    # -- Fetching ----------------------------------------------------------------------------------------------------

    def record_follower_fetch(
        self, replica_id: int, offset: int, log_start_offset: int, now_ms: int, broker_epoch: int
    ) -> None:
        """A follower fetched at `offset`, so it has everything before. Delayed operations that wait for that are called back."""
        log = self.leader_log
        follower = self.followers.get(replica_id)
        assert log is not None and follower is not None
        follower.record_fetch(offset, log_start_offset, log.log_end_offset, now_ms, broker_epoch)
        if replica_id not in self.maximal_isr:
            self._maybe_expand_isr(follower)
        self.advance_high_watermark()
        if self.delayed_deletes:
            self.look_at_starts()

    def look_at_starts(self) -> None:
        for waiting in list(self.delayed_deletes):
            isolated(waiting.wake)

    # -- The in-sync replicas: isr.py has the rules. One proposal is under way at a time --------------------------------

    def set_isr(self, partition_epoch: int, isr: Iterable[int]) -> None:
        """The controller has made this the ISR. A proposal on an older partition epoch fails, or is what is read here."""
        self.partition_epoch = partition_epoch
        self.isr = self.maximal_isr = frozenset(isr)
        self.proposed_isr = None

    def propose_isr(self, isr: frozenset[int]) -> None:
        """From now on the high watermark waits for the members of the proposal, too."""
        self.proposed_isr, self.maximal_isr = isr, self.isr | isr

    def _maybe_expand_isr(self, follower: ReplicaProgress) -> None:
        log, proposals = self.leader_log, self._isr_proposals
        if log is None or proposals is None or self.proposed_isr is not None:
            return
        eligible = proposals.may_be_in_sync(follower.broker_id, follower.broker_epoch)
        if may_join(follower, self.maximal_isr, eligible, log.high_watermark, self.epoch_start_offset):
            isr = self.isr | {follower.broker_id}
            state_changes.expanding(self, self.isr, isr, log, follower)
            self._propose(isr)

    def next_fetch_may_expand_isr(self, replica_id: int) -> bool:
        """Returns False for a replica that cannot be proposed now, whatever it fetches: `note_followers` is called when that changes.

        It is idle until then. 3,333 partitions that were read by each fetch, because their follower's broker was fenced, took 150 ms.
        """
        proposals = self._isr_proposals
        if proposals is None or replica_id in self.maximal_isr or self.proposed_isr is not None:
            return False
        return proposals.may_be_in_sync(replica_id, ANY_EPOCH)

    def note_followers(self) -> None:
        """Gives replicas outside of the ISR another chance to join with their next fetch: a proposal has ended, or a broker is unfenced."""
        if len(self.maximal_isr) < len(self.replicas):
            self.watchers.note_followers()

    def maybe_shrink_isr(self, now_ms: int) -> None:
        """Propose the ISR without replicas that have not caught up for replica.lag.time.max.ms. A timer calls this."""
        log = self.leader_log
        if log is None or self.alone or self.proposed_isr is not None:
            return
        if lagging := out_of_sync(self.followers, self.isr, log.log_end_offset, now_ms, self.lag_time_ms_max):
            isr = self.isr.difference(lagging)
            late = [self.followers[replica] for replica in lagging]
            state_changes.shrinking(self, self.isr, isr, log, late, now_ms)
            self._propose(isr)

    def _propose(self, isr: frozenset[int]) -> None:
        assert self._isr_proposals is not None
        assert self.node_id in isr
        self.propose_isr(isr)
        self._isr_proposals.submit(self)

    def isr_altered(self, leader_epoch: int, partition_epoch: int, isr: Sequence[int]) -> None:
        """The controller has made the proposed change, unless newer metadata has come before the response."""
        if leader_epoch == self.leader_epoch and partition_epoch >= self.partition_epoch and self.is_leader:
            self.set_isr(partition_epoch, isr)
            state_changes.isr_updated(self, self.isr, partition_epoch, self.min_isr)
            self.advance_high_watermark()
            self.note_followers()

    def isr_rejected(self, error: ErrorCode) -> bool:
        """The controller has rejected the ISR proposal. Returns True if it is to be sent again later; newer metadata may end it before."""
        state_changes.isr_rejected(self, self.proposed_isr, error)
        if error in (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED):
            # The proposed ISR itself is invalid.
            self.proposed_isr, self.maximal_isr = None, self.isr
            self.advance_high_watermark()
            self.note_followers()
            return False
        return error not in OVERTAKEN

    # -- Following ---------------------------------------------------------------------------------------------------

    def append_as_follower(
        self, records: bytes | memoryview, high_watermark: int, leader_log_start_offset: int, now_ms: int
    ) -> None:
        """Called with the leader's response to a fetch of this log's end offset."""
        log = self.log
        assert log is not None and not self.is_leader
        if records:
            append_trusted(log, records, leader_epoch=self.leader_epoch, now_ms=now_ms, origin=Origin.REPLICATION)
        raised = log.advance_high_watermark(high_watermark)
        if log.log_start_offset < leader_log_start_offset <= log.high_watermark:
            log.advance_log_start_offset(leader_log_start_offset)
        if raised:
            self.watchers.watermark_raised()

    def truncate_as_follower(self, offset: int, decoded: Decoded | None = None) -> None:
        """Truncates to the leader's log; `decoded` is what `truncation_job` gave."""
        log = self.log
        assert log is not None and not self.is_leader
        if offset < log.log_end_offset:
            state_changes.truncating(self, offset, log)
        truncate_to(log, offset, decoded)

    def local_log(self, current_leader_epoch: int, *, require_leader: bool) -> Log:
        """Return the log for a reader that knows `current_leader_epoch` (-1: it sends none); another epoch raises KafkaError (KIP-320)."""
        if self.offline:
            raise self._not_leader()
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        log = self.log
        if log is None or (require_leader and not self.is_leader):
            raise self._not_leader()
        return log

    def high_watermark_lags_epoch(self) -> bool:
        """Raises OFFSET_NOT_AVAILABLE if, right after an election, the high watermark may be lower than the former leader's."""
        return self.is_leader and self.log is not None and self.log.high_watermark < self.epoch_start_offset
