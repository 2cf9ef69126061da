"""One replica of a partition on this node: its role, epochs, watermarks and the operations that wait for them.

The role comes from the metadata image only (`become_leader`, `become_follower`); nothing here asks the controller.

    leader      appends, advances the high watermark over the maximal ISR, answers every read
    follower    is appended to by the fetcher; answers consumers that fetch from followers (KIP-392), up to its watermark
    offline     its log directory failed: KAFKA_STORAGE_ERROR to everybody until the node is restarted

Delayed produces are kept here in two lists by offset: `_committing` is completed from its head by the high watermark, `_flushing`
by the flush. Fetches watch (replication/watchers.py): those of followers the log's end, of consumers the high watermark;
each is notified of the next change once, and delayed fetches are woken once per turn of the loop (wakeups.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.broker.replication import state_changes
from ottla.broker.replication.delayed_produce import OffsetWait, OffsetWaits
from ottla.broker.replication.disk_work import GroupFlush
from ottla.broker.replication.isr import OVERTAKEN, InSyncReplicas, IsrProposals
from ottla.broker.replication.state_changes import must
from ottla.broker.replication.throttle import Throttle
from ottla.broker.replication.wakeups import DelayedOperation, Wakeups
from ottla.broker.replication.watchers import Watchers
from ottla.controller.metadata.topic_names import INTERNAL_TOPICS
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.builder import Prepared
from ottla.protocol.work import Turn
from ottla.server.story import Stories
from ottla.server.tasks import isolated
from ottla.storage.log.log import CLIENT, Appended, Log, Origin
from ottla.storage.log.retention import advance_log_start_offset
from ottla.storage.log.truncate import truncate_to
from ottla.storage.log.trusted_append import append_trusted
from ottla.storage.log_config import NEVER
from ottla.storage.producers.producer_snapshots import Decoded

NO_LEADER = -1
NO_REPLICAS: tuple[int, ...] = ()
#: The value of flush.messages with which each append is flushed before it counts.
EVERY_RECORD = 1


class Partition:
    """One replica of a partition."""

    __slots__ = (
        "_acknowledged_end", "_committing", "_flushing", "_group_flush", "_wakeups", "adding_replicas", "appends", "bytes_in", "bytes_out", "commits_at_once",
        "delayed_deletes", "epoch_start_offset", "failed_appends", "failed_reads", "flush_messages", "flushes", "follower_throttle", "followers", "index",
        "is_batched", "isr", "leader_epoch", "leader_id", "leader_log", "leader_throttle", "log", "messages_in", "node_id", "offline", "reads",
        "removing_replicas", "replicas", "replication_bytes_out", "stories", "topic", "topic_id", "watchers",
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
        stories: Stories[tuple[str, int]],
        isr_proposals: IsrProposals | None = None,
    ) -> None:
        self.node_id, self.topic, self.index, self.topic_id, self.stories = node_id, topic, index, topic_id, stories
        self.log: Log | None = None
        #: The log if this replica leads and its directory is online, else None, so that the hot path has one check.
        self.leader_log: Log | None = None
        self.offline, self.leader_id = False, NO_LEADER
        self.leader_epoch = self.epoch_start_offset = -1
        #: The offset that a follower acknowledges to the leader of this epoch, once it knows that the two logs agree.
        self._acknowledged_end = 0
        self.replicas = self.adding_replicas = self.removing_replicas = NO_REPLICAS
        self.isr = InSyncReplicas(self, lag_time_ms_max, isr_proposals)
        #: The followers in the ISR, so that each fetch takes one look.
        self.followers = self.isr.followers
        #: True if an append is committed at once: there is no other replica, and nothing is flushed for flush.messages.
        self.commits_at_once = True
        #: Whether followers' fetches of this partition may be delayed (wakeups.py).
        self.is_batched = topic not in INTERNAL_TOPICS
        batching = wakeups.batching if self.is_batched else wakeups.no_batching
        self.watchers = Watchers(wakeups, batching)
        #: DeleteRecords that wait for other replicas' log starts (broker/api/delete_records.py).
        self.delayed_deletes: list[DelayedOperation] = []
        #: The throttles of this replica as a leader and as a follower, None where it is not throttled (replication/throttle.py).
        self.leader_throttle: Throttle | None = None
        self.follower_throttle: Throttle | None = None
        #: flush.messages: the append that reaches this number of records is answered after a flush. And whether there is such a number.
        self.flush_messages, self.flushes = NEVER, False
        self._committing, self._flushing = OffsetWaits(batching), OffsetWaits(batching)
        self._wakeups, self._group_flush = wakeups, group_flush
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
        new_epoch = leader_epoch != self.leader_epoch or not self.is_leader
        if not new_epoch and partition_epoch < self.isr.partition_epoch:
            return  # the controller's response to AlterPartition came before the metadata did
        previous, isr_before = self.leader_id, self.isr.members
        self.log = log
        log.producers.requires_verification = True
        self._assign(leader_epoch, replicas)
        self.isr.commit(partition_epoch, isr, () if new_epoch else replicas)
        self.leader_id = self.node_id
        if new_epoch:
            self.epoch_start_offset = log.log_end_offset
            log.epochs.begin(leader_epoch, self.epoch_start_offset)
            self.followers.clear()
            state_changes.leader(self, leader_epoch, partition_epoch, log, self.isr.members, previous)
        elif self.isr.members != isr_before:
            self.isr.log_update()
        self.isr.follow([replica for replica in replicas if replica != self.node_id], now_ms)
        self.update_config()
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
        self.leader_log, self.log = None, log
        if log is not None and (leader_id, leader_epoch) != (self.leader_id, self.leader_epoch):
            state_changes.follower(self, leader_epoch, partition_epoch, log, leader_id, self.leader_id)
        self._assign(leader_epoch, replicas)
        self.isr.commit(partition_epoch, isr)
        self.leader_id = leader_id
        self.followers.clear()
        self.epoch_start_offset = -1
        self.fail_waiting(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def resign(self) -> None:
        """End the replica, which is removed from this node, or whose node stops: it has no role and no leader then."""
        self.leader_log = None
        self.leader_id = NO_LEADER

    def _assign(self, leader_epoch: int, replicas: Sequence[int]) -> None:
        must(self, leader_epoch >= self.leader_epoch, f"leader epoch would go back from {self.leader_epoch}")
        self._acknowledged_end = self._acknowledged_end if leader_epoch == self.leader_epoch else 0
        self.leader_epoch = leader_epoch
        self.replicas = tuple(replicas)
        self.update_config()

    def update_config(self) -> None:
        if self.log is not None:
            self.isr.require(self.log.config.min_insync_replicas, len(self.replicas))
            self.flush_messages = self.log.config.flush_messages
            self.flushes = self.flush_messages != NEVER
            self.commits_at_once = not self.followers and not self.flushes

    def log_replaced(self, log: Log) -> None:
        """The log has moved to another directory. It has the same batches, offsets and high watermark."""
        self.log = log
        if self.leader_log is not None:
            self.leader_log = log
            self._maybe_flush()
        self.watchers.fire()

    def _maybe_flush(self) -> None:
        if self.flushes and self.wants_flush:
            self._group_flush.request(self)

    def go_offline(self) -> None:
        """The log directory has failed. Nothing is retried; responses have KAFKA_STORAGE_ERROR from now on."""
        self.offline, self.leader_log = True, None
        self.fail_waiting(ErrorCode.KAFKA_STORAGE_ERROR)

    def fail_waiting(self, error: ErrorCode) -> None:
        self._committing.fail(error)
        self._flushing.fail(error)
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
        if required_acks == -1 and self.isr.is_under_min:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self} has {len(self.isr.members)} replicas in sync, min.insync.replicas asks for {self.isr.min_size}",
            )
        if origin is CLIENT:
            appended = log.append(records, leader_epoch=self.leader_epoch, now_ms=now_ms, prepared=prepared)
        else:
            appended = append_trusted(log, records, self.leader_epoch, now_ms, origin, transaction_version)
        self.appends += 1
        self.bytes_in += len(records)
        self.messages_in += appended.last_offset - appended.first_offset + 1
        if self.commits_at_once:
            log.commit_all()
            if self.watchers.consumers or self._committing.waiting:
                self._watermark_raised(within_append=True)
        else:
            if self.flushes and self.wants_flush:
                self._group_flush.request(self)
            if not self.isr.has_all:  # else only a follower's Fetch can move it
                self.advance_high_watermark(within_append=True)
            if (watchers := self.watchers).followers:
                watchers.appended(appended.first_offset, appended.last_offset, self.followers)
        return appended

    def advance_high_watermark(self, *, within_append: bool = False) -> None:
        log, isr = self.leader_log, self.isr
        if log is None or isr.is_under_min:
            # KIP-966: under min ISR the watermark stands still, so that an acknowledged record always has min ISR copies.
            return
        own_end = log.recovery_point if self.flushes and self.flush_messages == EVERY_RECORD else log.log_end_offset
        if log.advance_high_watermark(isr.next_high_watermark(own_end, self._wakeups.clock)):
            self._watermark_raised(within_append)

    def _watermark_raised(self, within_append: bool) -> None:
        if self._committing.waiting:
            if within_append:
                # A coordinator that appends has not replayed its records yet: no callback may make it decide again (Kafka's
                # ActionQueue). The watermark jumps here when a replica that could join has been late for too long.
                self._wakeups.schedule(self)
            else:
                self.wake()
        if (watchers := self.watchers).followers or watchers.consumers:
            watchers.watermark_raised()

    def wake(self) -> None:
        """Call back the appends that the high watermark has passed."""
        if (log := self.leader_log) is not None:
            self._committing.reached(log.high_watermark, self._commit_result())

    def _commit_result(self) -> ErrorCode:
        return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND if self.isr.is_under_min else ErrorCode.NONE

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
        if not self.isr.has_all and replica_id not in self.isr.maximal:
            self.isr.maybe_expand(follower, log, self.epoch_start_offset)
        self.advance_high_watermark()
        if self.delayed_deletes:
            self.look_at_starts()

    def look_at_starts(self) -> None:
        for waiting in list(self.delayed_deletes):
            isolated(waiting.wake)

    # -- The in-sync replicas ----------------------------------------------------------------------------------------

    def note_followers(self) -> None:
        """Give replicas outside of the ISR another chance to join with their next fetch: a proposal has ended, or a broker is unfenced."""
        if not self.isr.has_all:
            self.watchers.note_followers()

    def isr_altered(self, leader_epoch: int, partition_epoch: int, isr: Sequence[int]) -> None:
        """The controller has made the proposed change, unless newer metadata has come before the response."""
        if leader_epoch == self.leader_epoch and partition_epoch >= self.isr.partition_epoch and self.is_leader:
            self.isr.commit(partition_epoch, isr)
            self.isr.log_update()
            self.advance_high_watermark()
            self.note_followers()

    def isr_rejected(self, error: ErrorCode) -> bool:
        """Take the controller's rejection of the ISR proposal. Return True if it is to be sent again later; newer metadata may end it before."""
        if self.isr.rejected(error):
            self.advance_high_watermark()
            self.note_followers()
            return False
        return error not in OVERTAKEN

    # -- Following ---------------------------------------------------------------------------------------------------

    def append_as_follower(
        self, records: bytes | memoryview, high_watermark: int, leader_start: int, now_ms: int, *, may_wait: bool = True
    ) -> None:
        """Take the leader's response to a fetch of this log's end offset. TooLong: it may not wait for the disk, see `append_trusted`."""
        log = self.log
        assert log is not None and not self.is_leader
        if records:
            append_trusted(log, records, self.leader_epoch, now_ms, Origin.REPLICATION, may_wait=may_wait)
        self._acknowledged_end = log.log_end_offset
        raised = log.advance_high_watermark(high_watermark)
        if log.log_start_offset < leader_start <= log.high_watermark:
            advance_log_start_offset(log, leader_start)
        if raised and (self.watchers.consumers or self.watchers.followers):
            self.watchers.watermark_raised()

    def truncate_as_follower(self, offset: int, decoded: Decoded | None = None) -> None:
        """Truncate to the leader's log; `decoded` is what `truncation_job` gave."""
        log = self.log
        assert log is not None and not self.is_leader
        must(self, offset >= self._acknowledged_end, f"has acknowledged {self._acknowledged_end}, not {offset}")
        if offset < log.log_end_offset:
            state_changes.truncating(self, offset, log)
        truncate_to(log, offset, decoded)

    def local_log(self, current_leader_epoch: int, *, require_leader: bool) -> Log:
        """Return the log for a reader that knows `current_leader_epoch` (-1: it sends none); another epoch raises KafkaError (KIP-320)."""
        if self.offline:
            raise self._not_leader()
        if 0 <= current_leader_epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        if current_leader_epoch > self.leader_epoch:
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        log = self.log
        if log is None or (require_leader and not self.is_leader):
            raise self._not_leader()
        return log
