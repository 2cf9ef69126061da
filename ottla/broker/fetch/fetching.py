"""One fetch request while it is being served: its session, what it reads, how it waits, and its answer.

The session says which partitions may have something (fetch_session.py). Of a follower it is recorded what it holds; that raises
watermarks, and who waited for one may append elsewhere, so it comes before any reading. `Fetching.attempt` reads in the
session's order until max_bytes are found, and if that is less than min_bytes the request waits, by the session's watches and in
the timer wheel, until a wake-up finds enough, an error turns up, or max_wait_ms is over.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol

from ottla.broker.configs import BrokerConfigs
from ottla.broker.fetch.reader import (
    RACK_AWARE_SELECTOR,
    READ_COMMITTED,
    failed,
    nearer_replica,
    read,
    reader_of,
    record_position,
)
from ottla.broker.fetch.response import by_topic, endpoints_of_leaders, is_sent_at_once
from ottla.broker.fetch.session import (
    FINAL_EPOCH,
    FetchPartition,
    FetchSession,
    PartitionKey,
)
from ottla.broker.fetch.session_cache import FetchSessionCache
from ottla.broker.metadata_cache import LEADER_MOVED, MetadataCache
from ottla.broker.replication.follower_session import INITIAL_EPOCH, INVALID_SESSION_ID
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.replicas import Replicas
from ottla.broker.replication.watches import Watches
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.fetch import (
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.protocol.messages.shared_structs import LeaderIdAndEpoch
from ottla.protocol.schema import maker
from ottla.server.authorization.authorizer import Authorizer
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Reply
from ottla.server.quotas.clients import ClientQuotas
from ottla.server.timer_wheel import TimerWheel
from ottla.server.world import World
from ottla.storage.errors import StorageFailure

TOPIC_IDS_VERSION = 13
new_response = maker(FetchResponse)


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


class Fetching:
    """One fetch request while it is being served."""

    __slots__ = (
        "_broker",
        "_context",
        "_delayed_at_ns",
        "_is_metered",
        "_opens_session",
        "_rack",
        "_ready_bytes",
        "_reply",
        "_results",
        "_slot",
        "_uses_topic_ids",
        "fresh",
        "max_bytes",
        "min_bytes",
        "must_answer",
        "reader",
        "session",
    )  # fmt: skip

    def __init__(
        self,
        broker: FetchedBroker,
        request: FetchRequest,
        context: RequestContext,
        session: FetchSession | None = None,
    ) -> None:
        """`session`: where a request's fast path has found it, and nothing is metered (repeated.py)."""
        self._broker = broker
        self._context = context
        version = context.api_version
        self._uses_topic_ids = version >= TOPIC_IDS_VERSION
        replica_id = request.replica_state.replica_id if version >= 15 else request.replica_id
        self.reader = reader_of(
            replica_id,
            request.replica_state.replica_epoch,
            request.isolation_level == READ_COMMITTED,
            # Before KIP-392 a consumer could not know that it reads from a follower.
            replica_id >= 0 or version < 11,
        )
        self._rack = self._rack_of(request) if request.rack_id else ""
        self.max_bytes = min(request.max_bytes, broker.fetch_max_bytes)
        #: Followers have quotas of their own (throttle.py).
        self._is_metered = session is None and broker.quotas.active and not self.reader.is_follower
        if self._is_metered:
            quota_bytes = broker.quotas.fetch_bytes_max(context.connection.principal.name, context.client_id)
            self.max_bytes = self.max_bytes if quota_bytes is None else min(self.max_bytes, quota_bytes)
        self.min_bytes = min(request.min_bytes, self.max_bytes)
        self.must_answer = False
        self._results: dict[FetchPartition, PartitionData] = {}
        #: While waiting: what has changed since the last look, and how much each partition had to read then.
        self.fresh: dict[FetchPartition, None] = {}
        self._ready_bytes: dict[FetchPartition, int] = {}
        self._slot = -1
        self._delayed_at_ns = 0
        self._reply: Reply[FetchResponse] | None = None
        self._opens_session = request.session_epoch == INITIAL_EPOCH
        self.session = self._find_session(request) if session is None else session

    def _rack_of(self, request: FetchRequest) -> str:
        """Return the consumer's rack, or "" if fetches from followers (KIP-392) do not apply."""
        if self.reader.is_follower:
            return ""
        by_rack = self._broker.configs["replica.selector.class"] == RACK_AWARE_SELECTOR
        return request.rack_id if by_rack else ""

    def _find_session(self, request: FetchRequest) -> FetchSession:
        """Return the session of an incremental fetch, or for a full fetch a new one with its partitions and without an id."""
        sessions = self._broker.fetch_sessions
        asked = self._asked(request)
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if request.session_id:
                sessions.close(request.session_id)
            return FetchSession(asked, replica_id=self.reader.replica_id, uses_topic_ids=self._uses_topic_ids)
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
        self._resolve_names(session)
        if not session.partitions:
            # Kafka's rule: a session that has become empty is closed, and the response has session id 0.
            sessions.close(session.id)
            return FetchSession({})
        return session

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

    def _resolve_names(self, session: FetchSession) -> None:
        """Topic ids that were unknown when they entered the session: metadata may have arrived since (maybeResolveUnknownName).

        Without its name a topic would never be asked about at the authorizer.
        """
        for wanted in list(session.unnamed):
            name = self._broker.metadata.topic_name(wanted.topic_id)
            if name is not None:
                wanted.topic = name
                del session.unnamed[wanted]

    def _forgotten(self, request: FetchRequest) -> list[PartitionKey]:
        return [
            (topic.topic_id if self._uses_topic_ids else topic.topic, index)
            for topic in request.forgotten_topics_data
            for index in topic.partitions
        ]

    # -- Reading -----------------------------------------------------------------------------------------------------

    def record_positions(self) -> None:
        """Note the follower's end offsets of all partitions before any partition is read: see the module."""
        session = self.session
        now_ms = session.contact_ms = self._broker.world.clock.mono_ms()
        for wanted in list(session.active):
            partition = self._find(wanted)
            if partition is not None:
                with suppress(KafkaError):  # the read returns the error
                    record_position(partition, wanted, self.reader, now_ms)

    def attempt(self) -> int:
        """Read everything that may have something; the sum of the bytes found."""
        session = self.session
        remaining = self.max_bytes
        min_one = True
        total = 0
        self.must_answer = False
        self._results = results = {}
        for wanted in list(session.active):
            data = self._read(self._find(wanted), wanted, min(wanted.max_bytes, remaining), min_one)
            results[wanted] = data
            size = len(data.records)  # type: ignore[arg-type]  # never None here
            if size:
                total += size
                remaining = max(0, remaining - size)
                min_one = False
            elif is_sent_at_once(data):
                self.must_answer = True
        return total

    def _find(self, wanted: FetchPartition) -> Partition | None:
        replicas = self._broker.replicas
        partitions = replicas.by_id.get(wanted.topic_id) if self._uses_topic_ids else replicas.by_name.get(wanted.topic)
        return None if partitions is None else partitions.get(wanted.index)

    def _watches(self, wanted: FetchPartition) -> Watches | None:
        partition = self._find(wanted)
        return None if partition is None else partition.watches

    def _read(
        self,
        partition: Partition | None,
        wanted: FetchPartition,
        max_bytes: int,
        min_one: bool,
    ) -> PartitionData:
        try:
            if partition is None:
                partition = self._broker.replicas.lookup(wanted.topic, wanted.topic_id, wanted.index)
            if self._rack and partition.is_leader:
                cluster = self._broker.metadata.image.cluster
                nearer = nearer_replica(partition, self._rack, wanted.fetch_offset, cluster)
                if nearer is not None:
                    data = read(partition, wanted, self.reader, -1, False)
                    data.preferred_read_replica = nearer
                    return data
            return read(partition, wanted, self.reader, max_bytes, min_one)
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

    def wait(self, max_wait_ms: int) -> Reply[FetchResponse]:
        reply: Reply[FetchResponse] = Reply()
        self._reply = reply
        reply.on_cancel = self._gone
        session = self.session
        for wanted in session.active:
            wanted.watch(self._watches(wanted))
        if self.min_bytes > 1:
            self._ready_bytes = {wanted: len(data.records or b"") for wanted, data in self._results.items()}
        self._slot = self._broker.wheel.add(self, max_wait_ms)
        self._delayed_at_ns = self._broker.world.clock.mono_ns()
        session.waiting = self
        return reply

    def gathers(self) -> bool:
        """Returns True if a follower's fetch that finds records is to wait for more, which are about to come."""
        if not self.reader.is_follower or self.session.id == INVALID_SESSION_ID or self.min_bytes > 1:
            return False
        records = 0
        for wanted in self.session.active:
            partition = self._find(wanted)
            log = None if partition is None else partition.leader_log
            if partition is None or log is None or log.log_end_offset < wanted.fetch_offset:
                return False
            ahead = log.log_end_offset - wanted.fetch_offset
            if ahead and not partition.is_gathered:
                return False
            records += ahead
        return self._broker.replicas.wakeups.gathering.holds(self, records)

    def wake(self) -> None:
        """Check the partitions that have changed since the last check, not the whole session."""
        if self._reply is None:
            return  # answered earlier in this turn
        fresh, self.fresh = self.fresh, {}
        if self.min_bytes > 1 and not self._has_enough(fresh):
            enough = False
        else:
            enough = self.attempt() >= self.min_bytes or self.must_answer
        if enough:
            self._answer()
            return
        for wanted in fresh:
            wanted.watch(self._watches(wanted))

    def _has_enough(self, fresh: dict[FetchPartition, None]) -> bool:
        """Returns True if min_bytes can be read, or something must be answered at once."""
        for wanted in fresh:
            data = self._read(self._find(wanted), wanted, min(wanted.max_bytes, self.max_bytes), True)
            self._ready_bytes[wanted] = len(data.records or b"")
            if is_sent_at_once(data):
                return True
        return sum(self._ready_bytes.values()) >= self.min_bytes

    def expire(self) -> None:
        """Answer with the present records: max_wait_ms is over, or the session is about to change."""
        try:
            self.attempt()
            self._answer()
        except Exception:
            self._fail()
            raise

    def _answer(self) -> None:
        reply = self._reply
        self._stop_waiting()
        assert reply is not None
        sessions = self._broker.fetch_sessions
        delays = sessions.follower_delays if self.reader.is_follower else sessions.consumer_delays
        delays.add(self._broker.world.clock.mono_ns() - self._delayed_at_ns)
        reply.complete(self.response())

    def _fail(self) -> None:
        """A bug of this broker has ended the wait: the client is answered all the same, so that it can ask again."""
        reply = self._reply
        self._stop_waiting()
        if reply is not None:
            reply.complete(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))

    def _gone(self) -> None:
        """The connection of the client has been closed."""
        self._stop_waiting()
        if not self.session.id:
            self.session.close()

    def _stop_waiting(self) -> None:
        self._reply = None
        if self.session.waiting is self:
            self.session.waiting = None
        if self._slot >= 0:
            self._broker.wheel.remove(self, self._slot)
            self._slot = -1

    # -- Answering ---------------------------------------------------------------------------------------------------

    def response(self) -> FetchResponse:
        response = new_response()
        session = self.session
        is_incremental = session.id != INVALID_SESSION_ID
        if self._is_metered:
            found = sum(len(data.records or b"") for data in self._results.values())
            principal = self._context.connection.principal
            response.throttle_time_ms = self._broker.quotas.fetched(principal.name, self._context.client_id, found)
            if response.throttle_time_ms:
                return self._nothing(response)
        if is_incremental or (
            self._opens_session and self._broker.fetch_sessions.open(session, self._broker.world.clock.mono_ms())
        ):
            response.session_id = session.id
            self._settle(session, is_incremental)
        else:
            session.close()
        response.responses = by_topic(self._results, by_id=self._uses_topic_ids)
        if self.must_answer and self._context.api_version >= 16:
            response.node_endpoints = endpoints_of_leaders(self._results, self._broker.metadata, self._context)
        return response

    def _nothing(self, response: FetchResponse) -> FetchResponse:
        """Returns a response without partitions, as Kafka does for a throttled consumer. The session does not change."""
        if self.session.id == INVALID_SESSION_ID:
            self.session.close()
        else:
            response.session_id = self.session.id
        return response

    def _settle(self, session: FetchSession, is_incremental: bool) -> None:
        """Update the session from this response. An incremental response leaves out unchanged partitions."""
        for wanted, data in list(self._results.items()):
            has_records = bool(data.records)
            at_once = is_sent_at_once(data)
            must_include = wanted.must_include(
                data.high_watermark, data.log_start_offset, has_records=has_records, has_error=at_once
            )
            if is_incremental and not must_include:
                del self._results[wanted]
            if has_records:
                if is_incremental:
                    session.move_to_end(wanted)
            elif not at_once:
                partition = self._find(wanted)
                if partition is not None and self._knows_all(wanted, data, partition):
                    session.settle(wanted, partition.watches)

    def _knows_all(self, wanted: FetchPartition, data: PartitionData, partition: Partition) -> bool:
        """Returns True if there is nothing to read now, so that the fetch waits for a change."""
        reader = self.reader
        if reader.is_follower:
            log = partition.leader_log
            at_end = log is not None and wanted.fetch_offset >= log.log_end_offset
            return at_end and not partition.next_fetch_may_expand_isr(reader.replica_id)
        return wanted.fetch_offset >= (data.last_stable_offset if reader.read_committed else data.high_watermark)
