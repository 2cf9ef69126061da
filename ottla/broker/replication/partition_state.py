"""The state of one replica on this node: its log, role, epochs, ISR, followers, and the operations that wait for it.

The questions are answered here, and change nothing. The verbs are `Partition`'s, and those of modules that it calls
(isr_proposals.py, fetch_session.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from ottla.broker.replication.delayed_produce import OffsetWaits
from ottla.broker.replication.group_flush import GroupFlush
from ottla.broker.replication.isr import ReplicaProgress
from ottla.broker.replication.throttle import Throttle
from ottla.broker.replication.wakeups import Wakeups
from ottla.broker.replication.watchers import Watchers
from ottla.broker.topic_names import INTERNAL_TOPICS
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.storage.config import NEVER
from ottla.storage.log.log import Log

NO_LEADER = -1

Proposer = TypeVar("Proposer", contravariant=True)


class AwaitsLogStarts(Protocol):
    """A delayed DeleteRecords, which waits for the replicas' log start offsets (delayed_delete_records.py)."""

    def look(self) -> None: ...


class Candidates(Protocol):
    """The brokers that the controller would accept in an ISR."""

    def may_be_in_sync(self, replica_id: int, broker_epoch: int) -> bool: ...


class IsrProposals(Candidates, Protocol[Proposer]):
    """Sends ISR proposals to the controller (to_controller/alter_partition.py)."""

    def submit(self, partition: Proposer) -> None: ...

    def close(self) -> None: ...


class PartitionState:
    """The state of one replica. `Partition` inherits it, because access through another object would slow down every append."""

    __slots__ = (
        "_committing",
        "_flushing",
        "_group_flush",
        "_wakeups",
        "alone",
        "appends",
        "bytes_in",
        "bytes_out",
        "delayed_deletes",
        "epoch_start_offset",
        "failed_appends",
        "failed_reads",
        "flush_messages",
        "follower_throttle",
        "followers",
        "index",
        "is_batched",
        "isr",
        "lag_time_ms_max",
        "leader_epoch",
        "leader_id",
        "leader_log",
        "leader_throttle",
        "log",
        "maximal_isr",
        "messages_in",
        "min_isr",
        "node_id",
        "offline",
        "partition_epoch",
        "proposed_isr",
        "reads",
        "replicas",
        "replication_bytes_out",
        "topic",
        "topic_id",
        "watchers",
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
        #: Whether followers' fetches of it may be held (wakeups.py).
        self.is_batched = topic not in INTERNAL_TOPICS
        batching = wakeups.batching if self.is_batched else wakeups.no_batching
        self.watchers = Watchers(wakeups, batching)
        #: DeleteRecords that wait for other replicas' log starts.
        self.delayed_deletes: list[AwaitsLogStarts] = []
        #: Set where this replica is throttled, as a leader or as a follower (replication/throttle.py).
        self.leader_throttle: Throttle | None = None
        self.follower_throttle: Throttle | None = None
        #: flush.messages: the append that reaches this number of records is answered after a flush.
        self.flush_messages = NEVER
        self._committing = OffsetWaits(batching)
        self._flushing = OffsetWaits(batching)
        self._wakeups = wakeups
        self._group_flush = group_flush
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

    # -- The ISR: isr_proposals.py has the rules --

    def set_isr(self, partition_epoch: int, isr: Iterable[int]) -> None:
        """The controller has made this the ISR. A proposal on an older partition epoch fails, or is what is read here."""
        self.partition_epoch = partition_epoch
        self.isr = self.maximal_isr = frozenset(isr)
        self.proposed_isr = None

    def propose_isr(self, isr: frozenset[int]) -> None:
        """From now on the high watermark waits for the members of the proposal, too."""
        self.proposed_isr, self.maximal_isr = isr, self.isr | isr

    def drop_proposal(self) -> None:
        self.proposed_isr, self.maximal_isr = None, self.isr

    def is_committed(self, last_offset: int) -> bool:
        log = self.log
        return log is not None and log.high_watermark > last_offset

    # -- Access by clients and followers: the checks of epochs and roles -----------------------------------------------

    def local_log(self, current_leader_epoch: int, *, require_leader: bool) -> Log:
        """Return the log for a reader that knows `current_leader_epoch` (-1: it sends none); another epoch raises KafkaError (KIP-320)."""
        if self.offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log directory of {self} is offline")
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        log = self.log
        if log is None or (require_leader and not self.is_leader):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return log

    def require_follower(self, replica_id: int, current_leader_epoch: int, broker_epoch: int) -> None:
        """Check that the replica is assigned, and that its process is not older than one that has fetched already (KIP-903).

        The two errors make an early follower retry (KIP-320 knows epochs, older do not).
        """
        follower = self.followers.get(replica_id)
        if follower is None:
            known_epoch = current_leader_epoch >= 0
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH if known_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if 0 <= broker_epoch < follower.broker_epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # -- Offsets -----------------------------------------------------------------------------------------------------

    def low_watermark(self, is_alive: Callable[[int], bool]) -> int:
        """Returns the smallest log start offset of all live replicas: what DeleteRecords answers with and waits for."""
        assert self.log is not None
        alive = (f.log_start_offset for f in self.followers.values() if is_alive(f.broker_id))
        return min([self.log.log_start_offset, *alive])

    def high_watermark_lags_epoch(self) -> bool:
        """Raises OFFSET_NOT_AVAILABLE if, right after an election, the high watermark may be lower than the former leader's."""
        return self.is_leader and self.log is not None and self.log.high_watermark < self.epoch_start_offset
