"""The fast path of Fetch (server/network/context.py): a session that goes on (KIP-227), or the same partitions without one.

From one request to the next only the correlation id, the session epoch and the positions differ, so the rest is compared. Positions
are read into the session that is there, `SessionReader` reads its partitions, and the rows are packed: no request or response is made.
A row that has more to say than offsets and records, like an error, goes through the codec. What is left to the handler: versions before
topic ids (v13), fetch.min.bytes above 1, racks, quotas, topics that may not be read, and partitions that come or go.
Positions and responses have topic ids and compact lengths; a request or a response for one partition, which is the usual one, is one
Struct.
tests/broker/fetch/test_repeated.py compares both with random requests.
"""

from __future__ import annotations

from functools import partial
from struct import Struct, error
from typing import TYPE_CHECKING, TypeAlias

from ottla.broker.fetch.handler import DelayedFetch, asked_partitions, response_of, settle, unreadable
from ottla.broker.fetch.pacing import FetchPacing
from ottla.broker.fetch.reader import ISOLATION_LEVELS, FetchedBroker, Row, SessionReader, consumers_rack
from ottla.broker.fetch.response_frame import response_frame
from ottla.broker.fetch.session import FINAL_EPOCH, FetchPartition, FetchSession, replica_id_of
from ottla.broker.replication.fetch_requests import request_form
from ottla.broker.replication.follower_session import INITIAL_EPOCH, INVALID_SESSION_ID
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse
from ottla.protocol.primitives import Pieces
from ottla.server.authorization.authorizer import Authorizer
from ottla.server.clock import Deadline
from ottla.server.network.connection import Connection
from ottla.server.network.context import ANSWERED, DELAYED, MISSES_MAX, NOT_SERVED, RequestContext
from ottla.server.network.frames import Buffer
from ottla.server.network.pending_reply import encode_frame, failure_reply

if TYPE_CHECKING:
    from ottla.server.network.dispatch import Dispatcher
    from ottla.server.network.route import Route

#: Size, API and version, correlation id.
read_start = Struct(">iIi").unpack_from
read_epoch = Struct(">iB").unpack_from
#: Topic id, and its partitions plus one.
read_topic = Struct(">16sB").unpack_from
TOPIC_BYTES = 17
#: Index, leader epoch, fetch offset, last fetched epoch, log start offset, partition_max_bytes, tags.
read_partition = Struct(">iiqiqiB").unpack_from
PARTITION_BYTES = 33
#: One topic with one partition, and no tags of either.
read_one = Struct(">16sBiiqiqiBB").unpack_from
ONE_BYTES = TOPIC_BYTES + PARTITION_BYTES + 1
#: The first version with topic ids: no partition in a request or a response has a name.
VERSION_MIN = 13

#: A partition that a request names: see `read_partition`.
Named: TypeAlias = tuple[FetchPartition, tuple[int, int, int, int, int, int, int]]


class RepeatedFetch(SessionReader):
    """The requests of one connection for one session. If the client uses no session, the object has a session of its own, which
    is not in the cache.

    It is the reader of that session, because access through another object would cost a part of what the fast path saves.
    """

    __slots__ = (
        "_aborted", "_authorizer", "_is_incremental", "_misses", "_mono_ms", "_prefix", "_prefix_end", "_quotas", "_sessions", "_start", "_tail",
        "_tail_bytes", "deadline", "pacing", "request", "route",
    )  # fmt: skip

    def __init__(
        self,
        broker: FetchedBroker,
        route: Route,
        request: FetchRequest,
        context: RequestContext,
        session: FetchSession,
        form: tuple[bytes, bytes],
        pacing: FetchPacing | None,
    ) -> None:
        """Take over from `request`, which is served here, the fields that are the same in all requests."""
        super().__init__(broker, request, context, session)
        self.route, self.request = route, request
        self._prefix, self._tail = form
        self._tail_bytes = len(self._tail)
        self._start = ApiKey.FETCH << 16 | context.api_version
        self._prefix_end = 12 + len(self._prefix)
        self._misses = 0
        self.pacing = pacing
        self._sessions = broker.fetch_sessions
        self._quotas = broker.quotas
        self._aborted = int(self.read_committed)
        self._is_incremental = session.id != INVALID_SESSION_ID
        self._authorizer = broker.authorizer if broker.authorizer.enabled else None
        self._mono_ms = broker.world.clock.mono_ms
        self.deadline = Deadline(broker.world.clock, broker.wheel)

    def serve(self, connection: Connection, buf: Buffer, pos: int, end: int) -> int:
        at = pos + self._prefix_end
        if at + 5 > end:
            return NOT_SERVED
        nbytes, start, correlation_id = read_start(buf, pos)
        if nbytes != end - pos - 4:
            return NOT_SERVED
        if start != self._start or buf[pos + 12 : at] != self._prefix:
            if start >> 16 == ApiKey.FETCH:
                self._miss(connection)
            return NOT_SERVED
        session = self.session
        epoch, topics = read_epoch(buf, at)
        if (
            epoch != session.epoch
            or session.waiting is not None
            or session.unnamed
            or session.reads_remote
            or self._quotas.active
            or (self._authorizer is not None and not self._is_allowed(self._authorizer, connection))
        ):
            if session.reads_remote or session.is_closed:
                connection.fast_path = None
            return NOT_SERVED
        # The next steps are those of the handler.
        if not self._take_over(session, buf, at + 5, end, topics):
            self._miss(connection)
            return NOT_SERVED
        now_ms = self._mono_ms()
        if session.id:
            self._sessions.use(session, now_ms)
        pacing = self.pacing
        if pacing is not None:
            wait_ms = pacing.arrived(now_ms, session.partitions.values())
            if wait_ms:  # it has no rows, so that no append wakes it
                wait_ms = min(wait_ms, self.max_wait_ms)
                DelayedRepeatedFetch(self, [], connection, correlation_id, False, now_ms + wait_ms)
                return DELAYED
        rows, is_enough, is_batched = self.begin(now_ms)
        if not is_enough:
            if pacing is not None:
                pacing.caught_up()
            DelayedRepeatedFetch(self, rows, connection, correlation_id, is_batched, now_ms + self.max_wait_ms)
            return DELAYED
        head, parts, nbytes = self.response(correlation_id, rows)
        if parts:
            connection.reply(head, parts, nbytes)
        else:
            connection.send(head, nbytes)
        return ANSWERED

    def _miss(self, connection: Connection) -> None:
        self._misses += 1
        if self._misses >= MISSES_MAX:
            connection.fast_path = None

    def _is_allowed(self, authorizer: Authorizer, connection: Connection) -> bool:
        context = connection.contexts.get(self._start)
        if context is None:
            return False
        return not unreadable(authorizer, context, self.session, is_follower=self.replica_id >= 0)

    def _take_over(self, session: FetchSession, buf: Buffer, at: int, end: int, topics: int) -> bool:
        """Give the session the positions in buf[at:]; False, and nothing has changed, if they are not all of known partitions."""
        last = end - self._tail_bytes
        if buf[last:end] != self._tail:
            return False
        partitions = session.partitions
        if topics == 2 and last - at == ONE_BYTES:
            topic_id, count, index, leader_epoch, offset, fetched_epoch, start, max_bytes, tags, more_tags = read_one(
                buf, at
            )
            known = partitions.get((topic_id, index)) or self._learned(topic_id, index)
            if known is None or count != 2 or tags or more_tags:
                return False
            if not session.id:
                session.active = {}
            known.current_leader_epoch, known.fetch_offset, known.last_fetched_epoch = (
                leader_epoch,
                offset,
                fetched_epoch,
            )
            known.replica_log_start_offset, known.max_bytes = start, max_bytes
            session.active[known] = None
            return True
        if not 0 < topics < 128:
            return False
        named: list[Named] = []
        try:
            for _ in range(topics - 1):
                topic_id, count = read_topic(buf, at)
                at += TOPIC_BYTES
                if not 0 < count < 128:
                    return False
                for _ in range(count - 1):
                    position = read_partition(buf, at)
                    at += PARTITION_BYTES
                    known = partitions.get((topic_id, position[0])) or self._learned(topic_id, position[0])
                    if known is None or position[6]:
                        return False
                    named.append((known, position))
                if buf[at]:
                    return False
                at += 1
        except (error, IndexError):
            return False
        if at != last:
            return False
        if not session.id:
            if not named:
                return False  # a request without partitions is not to wait
            session.active = {}
        active = session.active
        for known, position in named:
            _, known.current_leader_epoch, known.fetch_offset, known.last_fetched_epoch, start, known.max_bytes, _ = (
                position
            )
            known.replica_log_start_offset = start
            active[known] = None
        return True

    def _learned(self, topic_id: bytes, index: int) -> FetchPartition | None:
        """Return another partition of a topic that the client reads without a session; None if it is not here.

        librdkafka's first Fetch has those partitions of which it knows the offset.
        """
        session = self.session
        topic = next((each.topic for each in session.partitions.values() if each.topic_id == topic_id), None)
        if session.id or topic is None or index not in self.broker.replicas.by_id.get(topic_id, ()):
            return None
        learned = session.partitions[topic_id, index] = FetchPartition(topic, topic_id, index, 0, 0)
        learned.session = session
        return learned

    def response(self, correlation_id: int, rows: list[Row]) -> tuple[bytes, Pieces, int]:
        """Return the response's frame: its head, other pieces, and bytes. Afterwards the session is as its client knows it."""
        sent = settle(self, rows, is_incremental=self._is_incremental)
        frame = response_frame(correlation_id, self.session.id, sent, self._aborted)
        if frame is None:
            frame = self.encoded(correlation_id, response_of(self, sent))
        if self.pacing is not None:
            self.pacing.sent(self._mono_ms(), frame[2])
        return frame

    def encoded(self, correlation_id: int, response: FetchResponse) -> tuple[bytes, Pieces, int]:
        codec = self.route.codec(self.context.api_version)
        assert codec is not None
        parts: Pieces = []
        nbytes = encode_frame(codec, correlation_id, response, parts)
        return bytes(parts[0]), parts[1:], nbytes


class DelayedRepeatedFetch(DelayedFetch):
    """A delayed Fetch that is also the pending response of its connection: nothing lies between the wake-up and the socket.

    There is no reply object, and no copy of the request.
    """

    __slots__ = ("_connection", "_correlation_id", "_repeated")

    def __init__(
        self,
        repeated: RepeatedFetch,
        rows: list[Row],
        connection: Connection,
        correlation_id: int,
        is_batched: bool,
        due_ms: int,
    ) -> None:
        DelayedFetch.__init__(self, repeated, rows, is_batched, connection.stamp_ns)
        self._repeated = repeated
        repeated.deadline.begin(self, due_ms)
        self._connection = connection
        self._correlation_id = correlation_id
        connection.wait(self, 0)

    def cancel(self) -> None:
        super().cancel()
        self._repeated.deadline.close()

    def _send(self, rows: list[Row]) -> None:
        self._complete(self._repeated.response(self._correlation_id, rows))

    def _fail(self) -> None:
        repeated = self._repeated
        error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        response = failure_reply(repeated.route, repeated.context.api_version, repeated.request, error)
        self._complete(repeated.encoded(self._correlation_id, response))

    def _complete(self, frame: tuple[bytes, Pieces, int]) -> None:
        self._stop()
        connection, repeated = self._connection, self._repeated
        elapsed_ns = repeated.mono_ns() - self._since_ns
        repeated.delays.add(elapsed_ns)
        if connection.closed:
            return
        repeated.route.count(elapsed_ns)
        head, parts, nbytes = frame
        connection.complete(self, head, parts, nbytes)


class RepeatedFetches:
    """Makes the fast paths of a broker's connections."""

    def __init__(self, broker: FetchedBroker) -> None:
        self._broker = broker

    def __call__(
        self, dispatcher: Dispatcher, route: Route, request: FetchRequest, context: RequestContext, frame: bytes
    ) -> RepeatedFetch | None:
        """Return the fast path for requests that go on as `frame` does; None if they need the handler."""
        version, broker = context.api_version, self._broker
        if (
            version < VERSION_MIN
            or request.min_bytes > 1
            or request.max_bytes < 0
            or request.isolation_level not in ISOLATION_LEVELS
            or request.session_epoch == INITIAL_EPOCH
        ):
            return None
        if (request.rack_id and consumers_rack(broker, request)) or reads_remote(broker, request):
            return None
        replica_id = replica_id_of(request, version)
        if request.session_id:
            session = broker.fetch_sessions.get(request.session_id)
        else:
            asked = asked_partitions(broker, request, by_id=True)
            session = FetchSession(asked, replica_id=replica_id, uses_topic_ids=True, epoch=FINAL_EPOCH)
        if (
            session is None
            or not session.uses_topic_ids
            or (not session.id and (session.unnamed or not session.partitions))
        ):
            return None
        form = request_form(request, version, context.client_id)
        prefix, tail = form
        if frame[8 : 8 + len(prefix)] != prefix or frame[-len(tail) :] != tail:
            return None  # unknown tagged fields, forgotten topics, or a client id that is no UTF-8
        pacing = None
        if replica_id < 0 and not session.id:
            pacing = broker.fetch_sessions.pacing.of(context, partial(share_of_leaders, broker, session))
        return RepeatedFetch(broker, route, request, context, session, form, pacing)


def reads_remote(broker: FetchedBroker, request: FetchRequest) -> bool:
    """Return whether the request names an offset that is only in remote storage: the handler reads that."""
    if broker.tiers is None:
        return False
    for topic in request.topics:
        partitions = broker.replicas.by_id.get(topic.topic_id, {})
        for asked in topic.partitions:
            partition = partitions.get(asked.partition)
            log = None if partition is None else partition.log
            if log is not None and log.log_start_offset <= asked.fetch_offset < log.local_start_offset:
                return True
    return False


def share_of_leaders(broker: FetchedBroker, session: FetchSession) -> float:
    """Return how many of the partitions of the session's topics this broker leads; the client is taken to read all of them."""
    topics = broker.metadata.image.topics
    found = [topics.by_name(name) for name in {wanted.topic for wanted in session.partitions.values()}]
    leaders = [each.leader for topic in found if topic is not None for each in topic.partitions.values()]
    return leaders.count(broker.replicas.node_id) / max(1, len(leaders))
