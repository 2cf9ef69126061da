"""Fetch (1): record batches for consumers and followers. A hot path: answered at once, or when enough bytes are there.

Here a request becomes a session and the rows that were read become structs. Most requests repeat the one before and do not come here
(repeated.py). Consumers need READ on each topic, followers CLUSTER_ACTION; every fetch of a session is authorized again.

v5 log_start_offset · v7 sessions (KIP-227) · v9 current_leader_epoch · v11 rack and preferred_read_replica (KIP-392) · v12 flexible,
last_fetched_epoch and diverging_epoch · v13 topic ids · v15 replica_state · v16 node_endpoints (KIP-951) · v18 the follower's
high watermark. Records leave as views of the mapped segments, never copied here.

Errors:
    UNKNOWN_SERVER_ERROR  a delayed fetch could not be read when its time came
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.broker.fetch.delayed import DelayedFetch
from ottla.broker.fetch.reader import TOPIC_IDS_VERSION, FetchedBroker, Row, SessionReader
from ottla.broker.fetch.response import response_of, settle
from ottla.broker.fetch.session import FINAL_EPOCH, FetchPartition, FetchSession, PartitionKey, replica_id_of
from ottla.broker.replication.follower_session import INITIAL_EPOCH, INVALID_SESSION_ID
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse
from ottla.server.authorization.authorizer import Authorizer
from ottla.server.authorization.operations import CLUSTER, CLUSTER_ACTION, CLUSTER_NAME, READ, TOPIC
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer, Reply

NO_TOPICS: frozenset[str] = frozenset()


def handle(broker: FetchedBroker, request: FetchRequest, context: RequestContext) -> Answer[FetchResponse]:
    fetch = Fetch(broker, request, context)
    rows, is_enough, is_batched = fetch.reader.begin(broker.world.clock.mono_ms())
    if is_enough:
        return fetch.response(rows)
    reply: Reply[FetchResponse] = Reply()
    reply.on_cancel = DelayedReply(fetch, rows, reply, is_batched).cancel
    return reply


def unreadable(
    authorizer: Authorizer, context: RequestContext, session: FetchSession, *, is_follower: bool
) -> frozenset[str]:
    """Returns the topics of the session that the client may not read.

    A topic id that is unknown has no name to ask about, and gets UNKNOWN_TOPIC_ID; READ is asked for when it is known (`_resolve_names`).
    """
    if is_follower:
        if authorizer.allows(context, CLUSTER_ACTION, CLUSTER, CLUSTER_NAME):
            return NO_TOPICS
        return frozenset([wanted.topic for wanted in session.partitions.values()])
    names = {wanted.topic for wanted in session.partitions.values()}
    return frozenset([name for name in names if name and not authorizer.allows(context, READ, TOPIC, name)])


class Fetch:
    """One request."""

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
            # Without partitions, as Kafka answers a throttled consumer. The session does not change.
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
    """The delayed fetch of a request that the handler has served."""

    __slots__ = ("_fetch", "_reply")

    def __init__(self, fetch: Fetch, rows: list[Row], reply: Reply[FetchResponse], is_batched: bool) -> None:
        super().__init__(fetch.reader, rows, is_batched, fetch.reader.max_wait_ms)
        self._fetch = fetch
        self._reply = reply

    def _send(self, rows: list[Row]) -> None:
        response = self._fetch.response(rows)
        self._stop()
        self.reader.delays.add(self.reader.mono_ns() - self._delayed_at_ns)
        self._reply.complete(response)

    def _fail(self) -> None:
        self._stop()
        self._reply.complete(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))


# -- The session of a request ----------------------------------------------------------------------------------------


def session_of(broker: FetchedBroker, request: FetchRequest, version: int) -> FetchSession:
    """Return the session of an incremental fetch, or for a full fetch a new one with its partitions and without an id."""
    sessions = broker.fetch_sessions
    by_id = version >= TOPIC_IDS_VERSION
    asked = _asked(broker, request, by_id=by_id)
    if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        if request.session_id:
            sessions.close(request.session_id)
        return FetchSession(asked, replica_id=replica_id_of(request, version), uses_topic_ids=by_id)
    session = sessions.incremental(
        request.session_id, request.session_epoch, uses_topic_ids=by_id, now_ms=broker.world.clock.mono_ms()
    )
    if session.waiting is not None:
        # A follower with news: it is answered now, so that the news need not wait as well.
        session.waiting.expire()
    session.change(asked.items(), _forgotten(request, by_id=by_id))
    _resolve_names(broker, session)
    if not session.partitions:
        # Kafka's rule: a session that has become empty is closed, and the response has session id 0.
        sessions.close(session.id)
        return FetchSession({})
    return session


def _asked(broker: FetchedBroker, request: FetchRequest, *, by_id: bool) -> dict[PartitionKey, FetchPartition]:
    asked: dict[PartitionKey, FetchPartition] = {}
    for topic in request.topics:
        name = (broker.metadata.topic_name(topic.topic_id) or "") if by_id else topic.topic
        for p in topic.partitions:
            key: PartitionKey = (topic.topic_id if by_id else topic.topic, p.partition)
            asked[key] = FetchPartition(
                name, topic.topic_id, p.partition, p.fetch_offset, p.partition_max_bytes, p.current_leader_epoch,
                p.last_fetched_epoch, p.log_start_offset, p.high_watermark,
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


def _forgotten(request: FetchRequest, *, by_id: bool) -> list[PartitionKey]:
    return [
        (topic.topic_id if by_id else topic.topic, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]
