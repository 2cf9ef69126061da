"""Fetch (1): record batches for consumers and followers. A hot path: answered at once, or when enough bytes are there.

The order of things: the session says which partitions are meant (replication/fetch_session.py), `Fetching.attempt` reads
them in the session's order until max_bytes are found, and if that is less than min_bytes the request waits, in the lists of
its partitions and in the timer wheel, until a wake-up finds enough, an error turns up, or max_wait_ms is over.

v5 log_start_offset · v7 sessions (KIP-227) · v9 current_leader_epoch · v11 rack and preferred_read_replica (KIP-392) · v12 flexible,
last_fetched_epoch and diverging_epoch · v13 topic ids · v15 replica_state · v16 node_endpoints (KIP-951) · v18 the follower's
high watermark. Records leave as views of the mapped segments, never copied here.
"""

from __future__ import annotations

from broker.parts import BrokerParts
from broker.replication.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    FetchPartition,
    FetchSession,
    PartitionKey,
)
from broker.replication.partition import Partition
from broker.replication.read import READ_COMMITTED, Reader, failed, read
from broker.replication.read_replica import RACK_AWARE_SELECTOR, nearer_replica
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from server.network.context import RequestContext
from server.network.deferred import Deferred
from storage.errors import StorageFailure

TOPIC_IDS_VERSION = 13
LEADER_MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def handle(broker: BrokerParts, request: FetchRequest, context: RequestContext) -> FetchResponse | Deferred:
    return serve(Fetching(broker, request, context), request)


def serve(fetching: Fetching, request: FetchRequest) -> FetchResponse | Deferred:
    found = fetching.attempt(first=True)
    if found >= fetching.min_bytes or fetching.must_answer or request.max_wait_ms <= 0 or not fetching.wanted:
        return fetching.response()
    return fetching.wait(request.max_wait_ms)


class Fetching:
    """One fetch request while it is being served."""

    __slots__ = (
        "_broker", "_context", "_deferred", "_full", "_is_new_session", "_rack", "_ready_bytes", "_results", "_session", "_slot",
        "_uses_topic_ids", "_watched", "max_bytes", "min_bytes", "must_answer", "reader", "wanted",
    )  # fmt: skip

    def __init__(self, broker: BrokerParts, request: FetchRequest, context: RequestContext) -> None:
        self._broker = broker
        self._context = context
        version = context.api_version
        self._uses_topic_ids = version >= TOPIC_IDS_VERSION
        replica_id = request.replica_state.replica_id if version >= 15 else request.replica_id
        self.reader = Reader(
            replica_id=replica_id,
            broker_epoch=request.replica_state.replica_epoch,
            read_committed=request.isolation_level == READ_COMMITTED,
            # Before KIP-392 a consumer could not know that it reads from a follower.
            require_leader=replica_id >= 0 or version < 11,
        )
        self._rack = self._rack_of(request)
        self.max_bytes = min(request.max_bytes, broker.fetch_max_bytes)
        self.min_bytes = min(request.min_bytes, self.max_bytes)
        self.must_answer = False
        self._results: dict[FetchPartition, PartitionData] = {}
        self._watched: dict[Partition, FetchPartition] = {}
        self._ready_bytes: dict[Partition, int] = {}
        self._slot = -1
        self._deferred: Deferred | None = None
        self._session, self._full, self._is_new_session = self._open_session(request)
        #: In reading order. A copy: the session's own order changes while its answer is made.
        self.wanted = list((self._session.partitions if self._session else self._full).values())

    def _rack_of(self, request: FetchRequest) -> str:
        """The consumer's rack, if that matters here."""
        if not request.rack_id or self.reader.is_follower:
            return ""
        by_rack = self._broker.configs["replica.selector.class"] == RACK_AWARE_SELECTOR
        return request.rack_id if by_rack else ""

    def _open_session(
        self, request: FetchRequest
    ) -> tuple[FetchSession | None, dict[PartitionKey, FetchPartition], bool]:
        """(the session of an incremental fetch, the partitions of a full one, whether to open a session for those)"""
        sessions = self._broker.fetch_sessions
        asked = self._asked(request)
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if request.session_id:
                sessions.close(request.session_id)
            return None, asked, request.session_epoch == INITIAL_EPOCH
        session = sessions.incremental(
            request.session_id,
            request.session_epoch,
            uses_topic_ids=self._uses_topic_ids,
            now_ms=self._broker.world.clock.mono_ms(),
        )
        if session.waiting is not None:
            # A follower with news: it is answered now, so that the news need not wait as well.
            session.waiting.expire()
        session.change(asked.items(), self._forgotten(request))
        if not session.partitions:
            # Kafka's rule: a session that has become empty is closed and its client told by session id 0.
            sessions.close(session.id)
            return None, {}, False
        return session, {}, False

    def _asked(self, request: FetchRequest) -> dict[PartitionKey, FetchPartition]:
        asked: dict[PartitionKey, FetchPartition] = {}
        by_id = self._uses_topic_ids
        for topic in request.topics:
            name = (self._broker.metadata.topic_name(topic.topic_id) or "") if by_id else topic.topic
            for p in topic.partitions:
                key: PartitionKey = (topic.topic_id if by_id else topic.topic, p.partition)
                asked[key] = FetchPartition(
                    name, topic.topic_id, p.partition, p.fetch_offset, p.partition_max_bytes, p.current_leader_epoch,
                    p.last_fetched_epoch, p.log_start_offset, p.high_watermark,
                )  # fmt: skip
        return asked

    def _forgotten(self, request: FetchRequest) -> list[PartitionKey]:
        return [
            (topic.topic_id if self._uses_topic_ids else topic.topic, index)
            for topic in request.forgotten_topics_data
            for index in topic.partitions
        ]

    # -- Reading -----------------------------------------------------------------------------------------------------

    def attempt(self, *, first: bool) -> int:
        """Read everything that is wanted; the sum of the bytes found."""
        reader = self.reader
        now_ms = self._broker.world.clock.wall_ms() if reader.is_follower else 0
        # A follower's fetch moves its progress and a committed reader has its own limit: only the plain case is skipped.
        may_skip = self._session is not None and not reader.is_follower and not reader.read_committed
        remaining = self.max_bytes
        min_one = True
        total = 0
        self.must_answer = False
        self._results = results = {}
        for wanted in self.wanted:
            partition = self._find(wanted)
            if may_skip and partition is not None and self._is_idle(partition, wanted):
                continue
            data = self._read(partition, wanted, min(wanted.max_bytes, remaining), min_one, now_ms, first)
            results[wanted] = data
            size = len(data.records)  # type: ignore[arg-type]
            if size:
                total += size
                remaining = max(0, remaining - size)
                min_one = False
            elif data.error_code or data.diverging_epoch.epoch >= 0 or data.preferred_read_replica >= 0:
                self.must_answer = True
        return total

    def _find(self, wanted: FetchPartition) -> Partition | None:
        replicas = self._broker.replicas
        partitions = replicas.by_id.get(wanted.topic_id) if self._uses_topic_ids else replicas.by_name.get(wanted.topic)
        return None if partitions is None else partitions.get(wanted.index)

    @staticmethod
    def _is_idle(partition: Partition, wanted: FetchPartition) -> bool:
        """Nothing to read and nothing to tell: this is what makes idle partitions of a session cost next to nothing."""
        log = partition.leader_log
        return (
            log is not None
            and log.high_watermark == wanted.fetch_offset == wanted.told_high_watermark
            and log.log_start_offset == wanted.told_log_start_offset
            and (wanted.current_leader_epoch == partition.leader_epoch or wanted.current_leader_epoch < 0)
            and wanted.last_fetched_epoch < 0
        )

    def _read(
        self,
        partition: Partition | None,
        wanted: FetchPartition,
        max_bytes: int,
        min_one: bool,
        now_ms: int,
        first: bool,
    ) -> PartitionData:
        try:
            if partition is None:
                partition = self._broker.replicas.lookup(wanted.topic, wanted.topic_id, wanted.index)
            if self._rack and partition.is_leader:
                cluster = self._broker.metadata.image.cluster
                nearer = nearer_replica(partition, self._rack, wanted.fetch_offset, cluster)
                if nearer is not None:
                    data = read(partition, wanted, self.reader, -1, False, now_ms, first=first)
                    data.preferred_read_replica = nearer
                    return data
            return read(partition, wanted, self.reader, max_bytes, min_one, now_ms, first=first)
        except KafkaError as error:
            if partition is not None:
                partition.failed_reads += 1
            data = failed(wanted.index, error.code)
            if error.code in LEADER_MOVED and self._context.api_version >= 12:
                leader_id, leader_epoch = self._broker.metadata.leader_and_epoch(wanted.topic, wanted.index)
                data.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
            return data
        except StorageFailure:
            return failed(wanted.index, ErrorCode.KAFKA_STORAGE_ERROR)

    # -- Waiting -----------------------------------------------------------------------------------------------------

    def wait(self, max_wait_ms: int) -> Deferred:
        self._deferred = deferred = Deferred()
        deferred.on_cancel = self._stop_waiting
        for wanted in self.wanted:
            if (partition := self._find(wanted)) is not None:
                self._watched[partition] = wanted
                partition.fetches[self] = None
                found = self._results.get(wanted)
                if found is not None and found.records:
                    self._ready_bytes[partition] = len(found.records)
        self._slot = self._broker.wheel.add(self, max_wait_ms)
        if self._session is not None:
            self._session.waiting = self
        return deferred

    def wake(self, partition: Partition) -> None:
        """The partition has more to read, another role, or is gone. Only it is looked at, not the whole session."""
        wanted = self._watched[partition]
        data = self._read(self._find(wanted), wanted, min(wanted.max_bytes, self.max_bytes), True, 0, False)
        self._ready_bytes[partition] = len(data.records)  # type: ignore[arg-type]
        if data.error_code or data.diverging_epoch.epoch >= 0 or sum(self._ready_bytes.values()) >= self.min_bytes:
            self._answer()

    def expire(self) -> None:
        self._answer()

    def _answer(self) -> None:
        deferred = self._deferred
        self._stop_waiting()
        if deferred is not None:
            self.attempt(first=False)
            deferred.complete(self.response())

    def _stop_waiting(self) -> None:
        self._deferred = None
        if self._session is not None and self._session.waiting is self:
            self._session.waiting = None
        if self._slot >= 0:
            self._broker.wheel.remove(self, self._slot)
            self._slot = -1
        for partition in self._watched:
            partition.fetches.pop(self, None)
        self._watched = {}

    # -- Answering ---------------------------------------------------------------------------------------------------

    def response(self) -> FetchResponse:
        response = FetchResponse()
        session = self._session
        if session is not None:
            response.session_id = session.id
            self._prune(session)
        elif self._is_new_session:
            opened = self._broker.fetch_sessions.open(
                self._full,
                privileged=self.reader.is_follower,
                uses_topic_ids=self._uses_topic_ids,
                now_ms=self._broker.world.clock.mono_ms(),
            )
            if opened is not None:
                response.session_id = opened.id
                for wanted, data in self._results.items():
                    wanted.must_tell(
                        data.high_watermark, data.log_start_offset, has_records=False, has_error=data.error_code != 0
                    )
        response.responses = self._by_topic()
        if self.must_answer and self._context.api_version >= 16:
            self._add_endpoints(response)
        return response

    def _prune(self, session: FetchSession) -> None:
        """Leave out what an incremental response need not say; partitions with data go to the end of the queue."""
        for wanted, data in list(self._results.items()):
            has_records = bool(data.records)
            must_tell = wanted.must_tell(
                data.high_watermark,
                data.log_start_offset,
                has_records=has_records,
                has_error=data.error_code != 0 or data.diverging_epoch.epoch >= 0 or data.preferred_read_replica >= 0,
            )
            if not must_tell:
                del self._results[wanted]
            elif has_records:
                session.move_to_end((wanted.topic_id if self._uses_topic_ids else wanted.topic, wanted.index))

    def _by_topic(self) -> list[FetchableTopicResponse]:
        topics: list[FetchableTopicResponse] = []
        last: str | bytes | None = None
        for wanted, data in self._results.items():
            topic_key: str | bytes = wanted.topic_id if self._uses_topic_ids else wanted.topic
            if topic_key != last:
                last = topic_key
                topics.append(FetchableTopicResponse(topic=wanted.topic, topic_id=wanted.topic_id, partitions=[data]))
            else:
                topics[-1].partitions.append(data)
        return topics

    def _add_endpoints(self, response: FetchResponse) -> None:
        leaders = {
            data.current_leader.leader_id for data in self._results.values() if data.error_code in LEADER_MOVED
        } - {-1}
        for node_id in sorted(leaders):
            address = self._broker.metadata.endpoint(node_id, self._context)
            if address is not None:
                response.node_endpoints.append(
                    NodeEndpoint(node_id=node_id, host=address.host, port=address.port, rack=address.rack)
                )
