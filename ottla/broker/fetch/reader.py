"""Reads the active partitions of a fetch session. The rules of replication and isolation stand here once.

    reader                          reads up to               may be served by
    follower (replica_id >= 0)      log end offset            the leader only
    consumer, read_uncommitted      high watermark            the leader; a follower too from v11 (KIP-392)
    consumer, read_committed        last stable offset        same

`find` looks up each partition and checks epochs, divergence (KIP-595), broker epoch (KIP-903) and range; `read` adds the records,
until max.bytes are found. A follower's positions are recorded in between, before any partition is read: a position may raise a
high watermark, and an operation that waited for it may append to another partition.
The result is one row for each partition. The handler makes structs of the rows, the fast path packs them.
Nothing here waits (`DelayedFetch`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeAlias

from ottla.broker.configs import BrokerConfigs
from ottla.broker.fetch.session import FetchPartition, FetchSession, replica_id_of
from ottla.broker.fetch.session_cache import FetchSessionCache
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.replicas import Replicas
from ottla.controller.metadata.cluster import ClusterImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.server.authorization.authorizer import Authorizer
from ottla.server.clock import TimerWheel
from ottla.server.network.context import Reply, RequestContext
from ottla.server.quotas.clients import ClientQuotas
from ottla.server.world import World
from ottla.storage.errors import StorageFailure
from ottla.storage.log.log import Log

CONSUMER_REPLICA_ID = -1
READ_COMMITTED = 1
ISOLATION_LEVELS = (0, READ_COMMITTED)
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
UNKNOWN_OFFSET = -1
#: Special results of `SessionReader._records` in place of a number: a row has another log, or none; a row is not to wait.
CHANGED, URGENT = -2, -1
TOPIC_IDS_VERSION = 13
#: Before KIP-392 a consumer could not know that it reads from a follower.
FOLLOWER_READS_VERSION = 11

#: A partition, its replica here and the log, the records (None: nothing was to be read), and the response's struct where there is
#: more to say than records and offsets. Without a log it is an error.
Row: TypeAlias = "tuple[FetchPartition, Partition | None, Log | None, bytes | memoryview | None, PartitionData | None]"


#: A partition whose offset is only in remote storage.
Moved: TypeAlias = "tuple[FetchPartition, Partition, Log]"


class RemoteReads(Protocol):
    """Reads of remote storage, where it is on (`remote_fetch.py`)."""

    def begin(self, fetch: Any, rows: list[Row], reply: Reply[FetchResponse], moved: Moved) -> Callable[[], None]:
        """Complete the reply with the store's records of one partition. Return a function that cancels this."""


class FetchedBroker(Protocol):
    """The dependencies of a fetch, a subset of those of the handlers (broker/components.py)."""

    world: World
    configs: BrokerConfigs
    replicas: Replicas
    metadata: MetadataCache
    fetch_sessions: FetchSessionCache
    wheel: TimerWheel
    fetch_max_bytes: int
    quotas: ClientQuotas
    authorizer: Authorizer

    @property
    def tiers(self) -> RemoteReads | None: ...


class SessionReader:
    """Reads for one request, or for all those of a session that repeat it."""

    __slots__ = (
        "_by_id", "_by_name", "_is_special", "_may_wait", "_rack", "_unreadable", "_waits_for_records", "batching", "broker", "context", "delays", "max_bytes",
        "max_wait_ms", "min_bytes", "mono_ns", "moved", "read_committed", "ready_bytes", "replica_epoch", "replica_id", "require_leader",
        "session", "wheel",
    )  # fmt: skip

    def __init__(
        self, broker: FetchedBroker, request: FetchRequest, context: RequestContext, session: FetchSession
    ) -> None:
        self.broker, self.context, self.session = broker, context, session
        replicas, version = broker.replicas, context.api_version
        self.batching = replicas.wakeups.batching
        self.mono_ns = broker.world.clock.mono_ns
        self.wheel = broker.wheel
        self._by_id = replicas.by_id if version >= TOPIC_IDS_VERSION else None
        self._by_name = replicas.by_name
        self.replica_id = replica_id = replica_id_of(request, version)
        sessions = broker.fetch_sessions
        self.delays = sessions.follower_delays if replica_id >= 0 else sessions.consumer_delays
        self.replica_epoch = request.replica_state.replica_epoch
        self.read_committed = request.isolation_level == READ_COMMITTED
        self.require_leader = replica_id >= 0 or version < FOLLOWER_READS_VERSION
        self._rack = consumers_rack(broker, request) if request.rack_id and replica_id < 0 else ""
        #: Topics that the client may not read.
        self._unreadable: frozenset[str] = frozenset()
        self._is_special = self._rack != ""
        self.max_bytes = max_bytes = min(request.max_bytes, broker.fetch_max_bytes)
        self.min_bytes = min(request.min_bytes, max_bytes)
        #: The bytes of each partition when it was last read (`read`); None if a single record is enough for the request.
        self.ready_bytes: dict[FetchPartition, int] | None = {} if self.min_bytes > 1 else None
        #: The first partition whose offset is only in remote storage, found by `read`.
        self.moved: Moved | None = None
        self.max_wait_ms = request.max_wait_ms
        self._may_wait = request.max_wait_ms > 0 and bool(session.partitions)
        #: A follower that has no records of any partition waits for the next one.
        self._waits_for_records = self._may_wait and self.min_bytes == 1

    def limit(self, max_bytes: int) -> None:
        """Read at most `max_bytes`, the rest of the client's quota."""
        self.max_bytes = min(self.max_bytes, max_bytes)
        self.min_bytes = min(self.min_bytes, self.max_bytes)

    def refuse(self, topics: frozenset[str]) -> None:
        """Answer partitions of these topics with an error, also those that have been idle while the client might read them."""
        self._unreadable = topics
        self._is_special = True
        session = self.session
        for wanted in session.partitions.values():
            if wanted.topic in topics:
                session.active[wanted] = None

    def begin(self, now_ms: int) -> tuple[list[Row], bool, bool]:
        """Return the rows, whether they are to be sent now, and if not whether a follower's fetch waits for more records.

        The third value is about batching (replication/wakeups.py).
        """
        session = self.session
        rows = self.find(session.active)
        if self.replica_id >= 0:
            self._record_positions(rows, now_ms)
            records = self._records(rows)
            if records == CHANGED or len(session.active) != len(rows):
                # The commits of these positions have made other partitions active, or have taken one offline.
                rows = self.find(session.active)
                records = self._records(rows)
            if records >= 0 and self._waits_for_records:
                if not records:
                    return rows, False, False
                if session.id and self.batching.wants(records):
                    return rows, False, True
        return rows, self.read(rows) or not self._may_wait, False

    def find(self, asked: Iterable[FetchPartition]) -> list[Row]:
        """Return the rows without records. Usually a comparison of numbers says that no check can fail, which is then left out."""
        rows: list[Row] = []
        replica_id, replica_epoch = self.replica_id, self.replica_epoch
        for wanted in asked:
            partition = wanted.replica
            if partition is None or (log := partition.leader_log) is None:
                # The replica is not known yet, or has stopped leading: there may be another object for it.
                partition = wanted.replica = self._replica(wanted)
                if partition is None or (log := partition.leader_log) is None:
                    rows.append(self._checked(wanted, partition))
                    continue
            if (
                self._is_special
                or not log.log_start_offset <= wanted.fetch_offset <= log.log_end_offset
                or (wanted.current_leader_epoch != partition.leader_epoch and wanted.current_leader_epoch >= 0)
                or (wanted.last_fetched_epoch != log.epochs.latest and wanted.last_fetched_epoch >= 0)
            ):
                rows.append(self._checked(wanted, partition))
                continue
            if replica_id >= 0:
                follower = partition.followers.get(replica_id)
                if follower is None or (follower.broker_epoch > replica_epoch and replica_epoch >= 0):
                    rows.append(self._checked(wanted, partition))
                    continue
            rows.append((wanted, partition, log, None, None))
        return rows

    def _replica(self, wanted: FetchPartition) -> Partition | None:
        by_id = self._by_id
        partitions = self._by_name.get(wanted.topic) if by_id is None else by_id.get(wanted.topic_id)
        return None if partitions is None else partitions.get(wanted.index)

    def _checked(self, wanted: FetchPartition, partition: Partition | None) -> Row:
        """Return the row after all checks, with the error of the one that fails."""
        if wanted.topic in self._unreadable:
            refusal = failed(wanted.index, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            refusal.aborted_transactions = []  # null in other errors, as in Kafka
            return wanted, None, None, None, refusal
        try:
            if partition is None:
                partition = self.broker.replicas.lookup(wanted.topic, wanted.topic_id, wanted.index)
            log = partition.local_log(wanted.current_leader_epoch, require_leader=self.require_leader)
            if self.replica_id >= 0:
                require_follower(partition, self.replica_id, wanted.current_leader_epoch, self.replica_epoch)
            diverging = _divergence(log, wanted) if wanted.last_fetched_epoch >= 0 else None
            if diverging is None and not log.log_start_offset <= wanted.fetch_offset <= log.log_end_offset:
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        except KafkaError as error:
            return wanted, partition, None, None, failed(wanted.index, error.code)
        nearer = None
        if self._rack and partition.is_leader:
            cluster = self.broker.metadata.image.cluster
            nearer = nearer_replica(partition, self._rack, wanted.fetch_offset, cluster)
        if diverging is None and nearer is None:
            return wanted, partition, log, None, None
        data = PartitionData(partition_index=wanted.index, aborted_transactions=None, records=b"")
        if diverging is not None:
            data.diverging_epoch = diverging
        elif self.read_committed:
            data.aborted_transactions = []
        if nearer is not None:
            data.preferred_read_replica = nearer
        return wanted, partition, log, None, data

    def _record_positions(self, rows: list[Row], now_ms: int) -> None:
        """Note where a follower is: it holds everything before the offset that it asks for, unless its log has left the leader's."""
        replica_id, replica_epoch = self.replica_id, self.replica_epoch
        self.session.contact_ms = now_ms
        for wanted, partition, _, _, data in rows:
            if data is None and partition is not None and partition.leader_log is not None:
                partition.record_follower_fetch(
                    replica_id, wanted.fetch_offset, wanted.replica_log_start_offset, now_ms, replica_epoch
                )

    def _records(self, rows: list[Row]) -> int:
        """Return the number of records that a follower still has to fetch from these partitions; URGENT if they must not wait for
        batching; CHANGED if a partition has another log by now, or none.
        """
        records, is_urgent = 0, False
        for wanted, partition, log, _, data in rows:
            if log is None or partition is None:
                is_urgent = True
                continue
            if partition.leader_log is not log:
                return CHANGED
            ahead = log.log_end_offset - wanted.fetch_offset
            if data is not None or (ahead and not partition.is_batched):
                is_urgent = True
            records += ahead
        return URGENT if is_urgent else records

    def read(self, rows: list[Row]) -> bool:
        """Give the rows their records; return True if there are min.bytes, or if a row without records must be sent at once.

        Only complete batches are sent, so the bytes of a row are usually somewhat below its limit. A row that has more records
        than its limit counts as its full limit towards the minimum, as in Kafka, which cuts the last batch: otherwise a minimum
        as large as the limit would never be reached.
        """
        remaining, counted, must_answer = self.max_bytes, 0, False
        for i, (wanted, partition, log, _, data) in enumerate(rows):
            if data is not None or log is None or partition is None:
                must_answer = True
                continue
            offset, max_bytes = wanted.fetch_offset, wanted.max_bytes
            if self.replica_id >= 0:
                up_to = log.log_end_offset if partition.leader_throttle is None else self._throttled_end(partition, log)
            else:
                up_to = log.last_stable_offset if self.read_committed else log.high_watermark
            if max_bytes > remaining:
                max_bytes = remaining
            if offset >= up_to:
                continue
            if max_bytes < 0:
                remaining = max(0, remaining)
                rows[i] = wanted, partition, None, None, failed(wanted.index, ErrorCode.UNKNOWN_SERVER_ERROR)
                must_answer = True
                continue
            try:
                records, next_offset = log.read(offset, max_bytes=max_bytes, up_to_offset=up_to, min_one=not counted)
                aborted = log.segments.aborted_transactions(offset, next_offset) if self.read_committed else None
            except (KafkaError, StorageFailure) as error:
                code = error.code if isinstance(error, KafkaError) else ErrorCode.KAFKA_STORAGE_ERROR
                if code == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
                    if self.replica_id >= 0:
                        # The row keeps the offsets of the log: Kafka's followers take the log start offset from this response.
                        rows[i] = wanted, partition, log, None, failed(wanted.index, code)
                        must_answer = True
                        continue
                    if self.broker.tiers is not None:
                        self.moved = self.moved or (wanted, partition, log)
                        self.session.reads_remote = must_answer = True
                        continue
                    code = ErrorCode.KAFKA_STORAGE_ERROR  # clients do not know OFFSET_MOVED_TO_TIERED_STORAGE
                rows[i] = wanted, partition, None, None, failed(wanted.index, code)
                must_answer = True
                continue
            if aborted:
                listed = [AbortedTransaction(producer_id=t.producer_id, first_offset=t.first_offset) for t in aborted]
                data = PartitionData(partition_index=wanted.index, aborted_transactions=listed)
            rows[i] = wanted, partition, log, records, data
            size = count = len(records)
            remaining = remaining - size if size < remaining else 0
            if self.ready_bytes is not None:
                # An empty first row has nothing that can be read: its offset is in a gap of compaction, at the end.
                if size < max_bytes and next_offset < up_to and (size or counted):
                    count = max_bytes
                self.ready_bytes[wanted] = count
            counted += count
        return counted >= self.min_bytes or must_answer

    def _throttled_end(self, partition: Partition, log: Log) -> int:
        """Return the end up to which a follower may read: one outside of the ISR reads nothing while its leader is above its quota."""
        throttle = partition.leader_throttle
        if throttle is not None and self.replica_id not in partition.isr.members and throttle.pause_ms() > 0:
            return UNKNOWN_OFFSET
        return log.log_end_offset


def consumers_rack(broker: FetchedBroker, request: FetchRequest) -> str:
    """Return the consumer's rack, or "" where no consumer is sent to another replica (KIP-392)."""
    return request.rack_id if broker.configs["replica.selector.class"] == RACK_AWARE_SELECTOR else ""


def failed(index: int, error: int) -> PartitionData:
    """Return partition data with an error as Kafka fills it: offsets -1 and empty records (not null, which the Java client rejects)."""
    return PartitionData(
        partition_index=index,
        error_code=error,
        high_watermark=UNKNOWN_OFFSET,
        aborted_transactions=None,
        records=b"",
    )


def require_follower(partition: Partition, replica_id: int, current_leader_epoch: int, broker_epoch: int) -> None:
    """Check that the replica is assigned, and that its process is not older than one that has fetched already (KIP-903).

    Both errors make a follower retry that fetches before this leader knows of it. UNKNOWN_LEADER_EPOCH is for followers that
    send an epoch (KIP-320).
    """
    follower = partition.followers.get(replica_id)
    if follower is None:
        known_epoch = current_leader_epoch >= 0
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH if known_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if 0 <= broker_epoch < follower.broker_epoch:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def _divergence(log: Log, request: FetchPartition) -> EpochEndOffset | None:
    """Return the point where the reader's log diverges from the leader's, or None (KIP-595)."""
    epoch, end_offset = log.end_offset_for_epoch(request.last_fetched_epoch)
    if epoch < 0 or end_offset < 0 or request.fetch_offset < log.log_start_offset:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch < request.last_fetched_epoch or end_offset < request.fetch_offset:
        return EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return None


def nearer_replica(partition: Partition, rack: str, offset: int, cluster: ClusterImage) -> int | None:
    """Return a replica in the consumer's rack (KIP-392, Kafka's RackAwareReplicaSelector), or None for the leader itself.

    Only the leader knows the progress of each follower. A follower is chosen if it is in sync, alive and has the offset; of
    several such followers, the one with the highest offset.
    """
    own = cluster.brokers.get(partition.node_id)
    if own is None or own.rack == rack:
        return None
    nearer = [
        (follower.log_end_offset, -follower.broker_id)
        for follower in partition.followers.values()
        if follower.broker_id in partition.isr.members
        and follower.log_start_offset <= offset <= follower.log_end_offset
        and (broker := cluster.brokers.get(follower.broker_id)) is not None
        and broker.rack == rack
        and not broker.fenced
    ]
    return -max(nearer)[1] if nearer else None
