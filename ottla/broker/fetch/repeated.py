"""The fast path of Fetch (server/network/fast_path.py): a session that goes on (KIP-227), or the same partitions without one.

From one request to the next only the correlation id, the session epoch and the positions differ, so the rest is compared. Positions
are read into the session that is there, and the response is packed from the logs' offsets: no request, response or `Fetching` is made.
Sessions, watches, positions of followers and high watermarks are those of broker/replication, used in the order that
`Fetching` has. What the fast path leaves to it: versions before topic ids (v13), fetch.min.bytes above 1, racks, quotas, throttled
replicas, partitions that come or go, aborted transactions, and every error.
tests/broker/fetch/test_repeated.py compares both with random requests.
"""

from __future__ import annotations

from struct import Struct, error
from typing import TYPE_CHECKING, TypeAlias

from ottla.broker.fetch.delayed_repeated import DelayedRepeatedFetch
from ottla.broker.fetch.fetching import FetchedBroker
from ottla.broker.fetch.frames import PARTITION_BYTES, TOPIC_BYTES, read_partition, read_topic
from ottla.broker.fetch.reader import RACK_AWARE_SELECTOR
from ottla.broker.fetch.session import (
    FINAL_EPOCH,
    FetchPartition,
    FetchSession,
    PartitionKey,
)
from ottla.broker.fetch.session_reads import UNUSUAL, SessionReads
from ottla.broker.replication.fetch_forms import request_form
from ottla.broker.replication.follower_session import INITIAL_EPOCH
from ottla.protocol.api import ApiKey
from ottla.protocol.messages.fetch import FetchRequest
from ottla.server.authorization.authorizer import Authorizer
from ottla.server.authorization.operations import CLUSTER, CLUSTER_ACTION, CLUSTER_NAME, READ, TOPIC
from ottla.server.network.connection import Connection
from ottla.server.network.context import RequestContext
from ottla.server.network.fast_path import MISSES_MAX
from ottla.server.network.frames import Buffer

if TYPE_CHECKING:
    from ottla.server.network.dispatch import Dispatcher
    from ottla.server.network.route import Route

read_start = Struct(">Ii").unpack_from
read_epoch = Struct(">iB").unpack_from
#: Topic ids, and no partition of the request or the response has a name.
VERSION_MIN = 13

#: A partition that a request names: see `read_partition`.
Named: TypeAlias = tuple[FetchPartition, tuple[int, int, int, int, int, int, int]]


class RepeatedFetch(SessionReads):
    """The requests of one connection for one session. Without a session it has one of its own, which is not in the cache."""

    __slots__ = (
        "_authorizer", "_delays", "_has_wait", "_misses", "_mono_ms", "_prefix", "_prefix_end", "_sessions", "_start", "_tail",
    )  # fmt: skip

    def __init__(
        self,
        broker: FetchedBroker,
        route: Route,
        request: FetchRequest,
        context: RequestContext,
        session: FetchSession,
        form: tuple[bytes, bytes],
    ) -> None:
        super().__init__(broker, route, request, context, session)
        self._prefix, self._tail = form
        self._start = ApiKey.FETCH << 16 | context.api_version
        self._prefix_end = 8 + len(self._prefix)
        self._misses = 0
        self._sessions = broker.fetch_sessions
        self._authorizer = broker.authorizer if broker.authorizer.enabled else None
        self._has_wait = request.min_bytes == 1 <= request.max_bytes and request.max_wait_ms > 0
        self._delays = self._sessions.follower_delays if self._replica_id >= 0 else self._sessions.consumer_delays
        self._mono_ms = broker.world.clock.mono_ms

    def serve(self, connection: Connection, buf: Buffer, pos: int, end: int) -> bool:
        at = pos + self._prefix_end
        if at + 5 > end:
            return False
        start, correlation_id = read_start(buf, pos)
        if start != self._start or buf[pos + 8 : at] != self._prefix:
            if start >> 16 == ApiKey.FETCH:
                self._misses += 1
                if self._misses >= MISSES_MAX:
                    connection.fast_path = None
            return False
        session, sessions = self.session, self._sessions
        session_id = session.id
        if session_id and sessions.get(session_id) is not session:
            connection.fast_path = None
            return False
        epoch, topics = read_epoch(buf, at)
        if (
            epoch != (session.epoch if session_id else FINAL_EPOCH)
            or session.waiting is not None
            or session.unnamed
            or self.broker.quotas.active
            or (self._authorizer is not None and not self._is_allowed(self._authorizer, connection))
            # What follows is what the handler would do as well.
            or not self._take_over(session, buf, at + 5, end, topics)
        ):
            return False
        found = self._find(session)
        if found is None:
            return False
        now_ms = self._mono_ms()
        if session_id:
            sessions.use(session, now_ms)
        if self._replica_id >= 0:
            found = self._record_positions(session, found, now_ms)
            if found is not None and self._has_wait and self._gathers(found):
                delayed = DelayedRepeatedFetch(self, connection, correlation_id, self._delays)
                for wanted, partition, _ in found:
                    wanted.watch(partition.watches)
                self.gathering.hold(delayed)
                connection.stamp_ns = self.mono_ns()
                return True
        total, rows = UNUSUAL if found is None else self._read(found)
        if total <= 0 and (total < 0 or self._has_wait):
            delayed = DelayedRepeatedFetch(self, connection, correlation_id, self._delays)
            if total < 0:
                delayed.look_at_once(is_over=not self._has_wait)
            else:
                delayed.watch(rows)
            connection.stamp_ns = self.mono_ns()
            return True
        head, parts, nbytes = self.response(correlation_id, rows)
        connection.reply(head, parts, nbytes)
        now_ns = self.mono_ns()
        self.route.count(now_ns - connection.stamp_ns)
        connection.stamp_ns = now_ns
        return True

    def _is_allowed(self, authorizer: Authorizer, connection: Connection) -> bool:
        context = connection.contexts.get(self._start)
        if context is None:
            return False
        if self._replica_id >= 0:
            return authorizer.allows(context, CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)
        names = {wanted.topic for wanted in self.session.partitions.values()}
        return all(authorizer.allows(context, READ, TOPIC, name) for name in names)

    def _take_over(self, session: FetchSession, buf: Buffer, at: int, end: int, topics: int) -> bool:
        """Gives the session the positions in buf[at:]; False, and nothing has changed, if they are not all of known partitions."""
        last = end - len(self._tail)
        if buf[last:end] != self._tail or not 0 < topics < 128:
            return False
        partitions = session.partitions
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
                    known = partitions.get((topic_id, position[0]))
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
                return False  # a request for nothing is not to wait
            session.active = {}
        active = session.active
        for known, position in named:
            _, known.current_leader_epoch, known.fetch_offset, known.last_fetched_epoch, start, known.max_bytes, _ = (
                position
            )
            known.replica_log_start_offset = start
            active[known] = None
        return True


class RepeatedFetches:
    """Makes the fast paths of a broker's connections."""

    def __init__(self, broker: FetchedBroker) -> None:
        self._broker = broker

    def __call__(
        self, dispatcher: Dispatcher, route: Route, request: FetchRequest, context: RequestContext, frame: bytes
    ) -> RepeatedFetch | None:
        """Returns the fast path for requests that go on as `frame` does; None if they need the handler."""
        version, broker = context.api_version, self._broker
        if (
            version < VERSION_MIN
            or request.min_bytes > 1
            or request.max_bytes < 0
            or request.session_epoch == INITIAL_EPOCH
        ):
            return None
        if request.rack_id and broker.configs["replica.selector.class"] == RACK_AWARE_SELECTOR:
            return None
        replica_id = request.replica_state.replica_id if version >= 15 else request.replica_id
        if request.session_id:
            session = broker.fetch_sessions.get(request.session_id)
        else:
            session = self._without_id(request, replica_id)
        if session is None or not session.uses_topic_ids:
            return None
        form = request_form(request, version, context.client_id)
        prefix, tail = form
        if frame[8 : 8 + len(prefix)] != prefix or frame[-len(tail) :] != tail:
            return None  # unknown tagged fields, forgotten topics, or a client id that is no UTF-8
        return RepeatedFetch(broker, route, request, context, session, form)

    def _without_id(self, request: FetchRequest, replica_id: int) -> FetchSession | None:
        partitions: dict[PartitionKey, FetchPartition] = {}
        for topic in request.topics:
            name = self._broker.metadata.topic_name(topic.topic_id)
            if name is None:
                return None
            for p in topic.partitions:
                wanted = FetchPartition(name, topic.topic_id, p.partition, p.fetch_offset, p.partition_max_bytes)
                partitions[topic.topic_id, p.partition] = wanted
        return FetchSession(partitions, replica_id=replica_id, uses_topic_ids=True) if partitions else None
