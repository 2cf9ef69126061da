"""Fetch (1): record batches for consumers and followers. A hot path: answered at once, or when enough bytes are there.

Three steps are here: from a request to its session, from the rows that were read to the structs of the response (partitions by
topic, and new leaders, KIP-951), and the wait of a delayed Fetch. Most requests repeat the one before and do not come to
`handle` (repeated.py). Consumers need READ on each topic, followers CLUSTER_ACTION; every fetch of a session is authorized
again.

v0-3 messages (api/_older_records.py) · v5 log_start_offset · v7 sessions (KIP-227) · v9 current_leader_epoch · v11 rack and
preferred_read_replica (KIP-392) · v12 flexible, last_fetched_epoch and diverging_epoch · v13 topic ids · v15 replica_state
v16 node_endpoints (KIP-951) · v18 the follower's high watermark, of no use here. Records leave as views of the mapped segments, never
copied here.

Errors:
    UNKNOWN_SERVER_ERROR  a delayed fetch could not be read when its time came; no such isolation level; a limit of bytes below 0
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from ottla.broker.fetch.reader import (
    ISOLATION_LEVELS,
    TOPIC_IDS_VERSION,
    UNKNOWN_OFFSET,
    FetchedBroker,
    Row,
    SessionReader,
)
from ottla.broker.fetch.session import FINAL_EPOCH, FetchPartition, FetchSession, PartitionKey, replica_id_of
from ottla.broker.metadata_cache import LEADER_MOVED
from ottla.broker.replication.follower_session import INITIAL_EPOCH, INVALID_SESSION_ID
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.protocol.messages.shared_structs import LeaderIdAndEpoch
from ottla.protocol.schema import maker
from ottla.server.authorization.authorizer import Authorizer
from ottla.server.authorization.operations import CLUSTER, CLUSTER_ACTION, CLUSTER_NAME, READ, TOPIC
from ottla.server.network.context import Answer, PendingResponse, Reply, RequestContext

#: From these versions on an error because of another leader names that leader, and its address (KIP-951).
LEADERS_VERSION, ENDPOINTS_VERSION = 12, 16
NO_BYTES = b""
new_response, new_partition_data = maker(FetchResponse), maker(PartitionData)

#: A partition, high watermark, last stable offset, log start offset, records, and the struct of a row that has one.
Sent: TypeAlias = tuple[FetchPartition, int, int, int, bytes | memoryview, PartitionData | None]


def settle(reader: SessionReader, rows: Sequence[Row], *, is_incremental: bool) -> list[Sent]:
    """Return the rows that are sent, and leave the session in the state that its client will know (KIP-227).

    An incremental response leaves out unchanged partitions. Partitions with nothing to read become idle until they change.
    """
    session, replica_id = reader.session, reader.replica_id
    sent: list[Sent] = []
    for wanted, partition, log, records, data in rows:
        size = 0
        if log is None or partition is None:
            high_watermark = stable = start = UNKNOWN_OFFSET
            if partition is not None:
                partition.failed_reads += 1
        else:
            high_watermark, start = log.high_watermark, log.log_start_offset
            stable = log.last_stable_offset
            if records is not None:
                size = len(records)
                partition.reads += 1
                if replica_id >= 0:
                    partition.replication_bytes_out += size
                    if partition.leader_throttle is not None:
                        partition.leader_throttle.record(size)
                else:
                    partition.bytes_out += size
        if not session.id:
            wanted.watch(None)
        elif size:
            wanted.sent_high_watermark, wanted.sent_log_start_offset = high_watermark, start
            if is_incremental and len(session.active) > 1:
                session.move_to_end(wanted)
        else:
            is_notice = data is not None and records is None
            must_include = wanted.must_include(high_watermark, start, has_error=is_notice)
            if not is_notice and log is not None and partition is not None:
                if replica_id >= 0:
                    at_end = wanted.fetch_offset >= log.log_end_offset
                    knows_all = at_end and not partition.isr.next_fetch_may_expand(replica_id)
                else:
                    knows_all = wanted.fetch_offset >= (stable if reader.read_committed else high_watermark)
                if knows_all:
                    session.settle(wanted, partition.watchers)
            if is_incremental and not must_include:
                continue
        sent.append((wanted, high_watermark, stable, start, NO_BYTES if records is None else records, data))
    return sent


def response_of(reader: SessionReader, sent: Sequence[Sent]) -> FetchResponse:
    """Return the response as a struct. Partitions of one topic that follow each other are one element."""
    response = new_response(session_id=reader.session.id)
    by_id, version = reader.context.api_version >= TOPIC_IDS_VERSION, reader.context.api_version
    topics: list[FetchableTopicResponse] = []
    leaders: set[int] = set()
    last: str | bytes | None = None
    for row in sent:
        wanted = row[0]
        data = _partition_data(row, read_committed=reader.read_committed)
        if data.error_code in LEADER_MOVED and version >= LEADERS_VERSION:
            leader_id, epoch = reader.broker.metadata.leader_and_epoch(wanted.topic, wanted.index)
            data.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=epoch)
            leaders.add(leader_id)
        key: str | bytes = wanted.topic_id if by_id else wanted.topic
        if key != last:
            last = key
            topics.append(FetchableTopicResponse(topic=wanted.topic, topic_id=wanted.topic_id, partitions=[data]))
        else:
            topics[-1].partitions.append(data)
    response.responses = topics
    if leaders and version >= ENDPOINTS_VERSION:
        response.node_endpoints = reader.broker.metadata.node_endpoints(leaders, reader.context)
    return response


def _partition_data(row: Sent, *, read_committed: bool) -> PartitionData:
    wanted, high_watermark, stable, start, records, data = row
    if data is None:
        return new_partition_data(
            partition_index=wanted.index,
            high_watermark=high_watermark,
            last_stable_offset=stable,
            log_start_offset=start,
            aborted_transactions=[] if read_committed else None,
            records=records,
        )
    data.high_watermark, data.last_stable_offset, data.log_start_offset = high_watermark, stable, start
    data.records = records
    return data


class DelayedFetch(PendingResponse):
    """A Fetch that waits: until an append or a high watermark brings fetch.min.bytes, an error turns up, or max.wait.ms is over.

    It watches the partitions of its session (session.py). The two kinds differ in their time-out, and in how they send the response: the
    handler's completes a reply (`DelayedReply`), that of the fast path is a frame (repeated.py).
    """

    __slots__ = ("_since_ns", "fresh", "is_waiting", "reader")

    def __init__(self, reader: SessionReader, rows: list[Row], is_batched: bool, since_ns: int) -> None:
        self.parts = None
        self.reader = reader
        self.is_waiting = True
        #: The partitions that have changed since the last look.
        self.fresh: dict[FetchPartition, None] = {}
        self._since_ns = since_ns
        reader.session.waiting = self
        if is_batched:
            reader.batching.hold(self)
        for wanted, partition, _, _, _ in rows:
            wanted.watch(None if partition is None else partition.watchers)

    def expire(self) -> None:
        """Answer with the records that are there: max.wait.ms is over, or the session is about to change."""
        DelayedFetch.wake(self, True)

    def wake(self, is_over: bool = False) -> None:
        """Something has changed: look whether there is enough."""
        if not self.is_waiting:
            return
        reader = self.reader
        try:
            if is_over or reader.ready_bytes is None or self._has_enough(reader.ready_bytes):
                rows = reader.find(reader.session.active)
                if reader.read(rows) or is_over:
                    self._send(rows)
                    return
            fresh, self.fresh = self.fresh, {}
            for wanted, partition, _, _, _ in reader.find(fresh):
                wanted.watch(None if partition is None else partition.watchers)
        except Exception:
            # A bug of this broker: the client is answered all the same, so that it can ask again.
            if self.is_waiting:
                self._fail()
            raise

    def _has_enough(self, ready_bytes: dict[FetchPartition, int]) -> bool:
        """Look only at the changed partitions, not at the whole session."""
        reader, is_enough = self.reader, False
        for wanted in self.fresh:
            ready_bytes.pop(wanted, None)
            is_enough = reader.read(reader.find((wanted,))) or is_enough
        return is_enough or sum(ready_bytes.values()) >= reader.min_bytes

    def _send(self, rows: list[Row]) -> None:
        """Send the response, call `_stop`, and add to the reader's times of delay."""
        raise NotImplementedError

    def _fail(self) -> None:
        """Call `_stop` and send UNKNOWN_SERVER_ERROR."""
        raise NotImplementedError

    def _stop(self) -> None:
        reader = self.reader
        session = reader.session
        if session.waiting is self:
            session.waiting = None
        self.is_waiting = False

    def cancel(self) -> None:
        """The connection has been closed."""
        self._stop()
        session = self.reader.session
        if not session.id:
            session.close()


NO_TOPICS: frozenset[str] = frozenset()


def handle(broker: FetchedBroker, request: FetchRequest, context: RequestContext) -> Answer[FetchResponse]:
    if request.isolation_level not in ISOLATION_LEVELS:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"isolation level {request.isolation_level}")
    try:
        fetch = PendingFetch(broker, request, context)
    except KafkaError as refused:
        # There is no such session, or it is at another epoch. As in Kafka the answer has neither partitions nor its id.
        return FetchResponse(error_code=refused.code)
    fetch.reader.session.reads_remote = False
    rows, is_enough, is_batched = fetch.reader.begin(broker.world.clock.mono_ms())
    if is_enough and fetch.reader.moved is None:
        return fetch.response(rows)
    reply: Reply[FetchResponse] = Reply()
    if broker.tiers is not None and (moved := fetch.reader.moved) is not None:
        reply.on_cancel = broker.tiers.begin(fetch, rows, reply, moved)
        return reply
    reply.on_cancel = DelayedReply(fetch, rows, reply, is_batched, fetch.reader.max_wait_ms).cancel
    return reply


def unreadable(
    authorizer: Authorizer, context: RequestContext, session: FetchSession, *, is_follower: bool
) -> frozenset[str]:
    """Return the topics of the session that the client may not read.

    A topic id that is unknown has no name to ask about, and gets UNKNOWN_TOPIC_ID; READ is asked for when it is known (`_resolve_names`).
    """
    if is_follower:
        if authorizer.allows(context, CLUSTER_ACTION, CLUSTER, CLUSTER_NAME):
            return NO_TOPICS
        return frozenset([wanted.topic for wanted in session.partitions.values()])
    names = {wanted.topic for wanted in session.partitions.values()}
    return frozenset([name for name in names if name and not authorizer.allows(context, READ, TOPIC, name)])


class PendingFetch:
    """One Fetch request that the handler serves."""

    __slots__ = ("_broker", "_is_metered", "_opens_session", "reader")

    def __init__(self, broker: FetchedBroker, request: FetchRequest, context: RequestContext) -> None:
        self._broker = broker
        self._opens_session = request.session_epoch == INITIAL_EPOCH
        session = session_of(broker, request, context.api_version)
        self.reader = reader = SessionReader(broker, request, context, session)
        if broker.authorizer.enabled:
            refused = unreadable(broker.authorizer, context, session, is_follower=reader.replica_id >= 0)
            if refused:
                reader.refuse(refused)
        #: Followers have quotas of their own (replication/throttle.py).
        self._is_metered = broker.quotas.active and reader.replica_id < 0
        if self._is_metered:
            quota_bytes = broker.quotas.fetch_bytes_max(context.connection.principal.name, context.client_id)
            if quota_bytes is not None:
                reader.limit(quota_bytes)

    def response(self, rows: Sequence[Row]) -> FetchResponse:
        broker, reader = self._broker, self.reader
        session = reader.session
        is_incremental = session.id != INVALID_SESSION_ID
        throttle_ms = self._throttle_ms(rows) if self._is_metered else 0
        if throttle_ms:
            # The response has no partitions, as Kafka's to a throttled consumer. The session does not change.
            if not is_incremental:
                session.close()
            return FetchResponse(throttle_time_ms=throttle_ms, session_id=session.id)
        if self._opens_session and not is_incremental:
            broker.fetch_sessions.open(session, broker.world.clock.mono_ms())
        response = response_of(reader, settle(reader, rows, is_incremental=is_incremental))
        if session.id == INVALID_SESSION_ID:
            session.close()
        return response

    def _throttle_ms(self, rows: Sequence[Row]) -> int:
        context = self.reader.context
        nbytes = sum(len(row[3] or b"") for row in rows)
        return self._broker.quotas.fetched(context.connection.principal.name, context.client_id, nbytes)


class DelayedReply(DelayedFetch):
    """The delayed fetch of a request that the handler has served, in the timer wheel."""

    __slots__ = ("_fetch", "_reply", "_slot")

    def __init__(
        self, fetch: PendingFetch, rows: list[Row], reply: Reply[FetchResponse], is_batched: bool, wait_ms: int
    ) -> None:
        reader = fetch.reader
        super().__init__(reader, rows, is_batched, reader.mono_ns())
        self._fetch = fetch
        self._reply = reply
        self._slot = reader.wheel.add(self, wait_ms)

    def _send(self, rows: list[Row]) -> None:
        response = self._fetch.response(rows)
        self._stop()
        self.reader.delays.add(self.reader.mono_ns() - self._since_ns)
        self._reply.complete(response)

    def _fail(self) -> None:
        self._stop()
        self._reply.complete(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))

    def _stop(self) -> None:
        super()._stop()
        self.reader.wheel.remove(self, self._slot)


# -- The session of a request ----------------------------------------------------------------------------------------


def session_of(broker: FetchedBroker, request: FetchRequest, version: int) -> FetchSession:
    """Return the session of an incremental fetch, or for a full fetch a new one with its partitions and without an id."""
    sessions = broker.fetch_sessions
    by_id = version >= TOPIC_IDS_VERSION
    asked = asked_partitions(broker, request, by_id=by_id)
    if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        if request.session_id:
            sessions.close(request.session_id)
        return FetchSession(asked, replica_id=replica_id_of(request, version), uses_topic_ids=by_id)
    session = sessions.incremental(
        request.session_id, request.session_epoch, uses_topic_ids=by_id, now_ms=broker.world.clock.mono_ms()
    )
    if session.waiting is not None:
        # A follower has changed its session: answer its waiting fetch now, so that the change need not wait.
        session.waiting.expire()
    forgotten: list[PartitionKey] = [
        (topic.topic_id if by_id else topic.topic, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]
    session.change(asked.items(), forgotten)
    _resolve_names(broker, session)
    if not session.partitions:
        # Kafka's rule: a session that has become empty is closed, and the response has session id 0.
        sessions.close(session.id)
        return FetchSession({})
    return session


def asked_partitions(
    broker: FetchedBroker, request: FetchRequest, *, by_id: bool
) -> dict[PartitionKey, FetchPartition]:
    asked: dict[PartitionKey, FetchPartition] = {}
    for topic in request.topics:
        name = (broker.metadata.topic_name(topic.topic_id) or "") if by_id else topic.topic
        for p in topic.partitions:
            key: PartitionKey = (topic.topic_id if by_id else topic.topic, p.partition)
            asked[key] = FetchPartition(
                name, topic.topic_id, p.partition, p.fetch_offset, p.partition_max_bytes, p.current_leader_epoch,
                p.last_fetched_epoch, p.log_start_offset,
            )  # fmt: skip
    return asked


def _resolve_names(broker: FetchedBroker, session: FetchSession) -> None:
    """Topic ids that were unknown when they entered the session: metadata may have arrived since (maybeResolveUnknownName).

    Without its name a topic would never be asked about at the authorizer.
    """
    for wanted in list(session.unnamed):
        name = broker.metadata.topic_name(wanted.topic_id)
        if name is not None:
            wanted.topic = name
            del session.unnamed[wanted]
