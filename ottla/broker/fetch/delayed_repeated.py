"""A Fetch of the fast path that waits in the purgatory: the next append, or the high watermark, completes it with one read.

It is its response's place among the connection's responses as well, so nothing lies between the wake-up and the socket: no reply, no
step of a reply, no request that is kept. What is out of the ordinary when it is looked at is read by `Fetching`.
"""

from __future__ import annotations

from ottla.broker.fetch.fetching import Fetching
from ottla.broker.fetch.session import FetchPartition
from ottla.broker.fetch.session_reads import Row, SessionReads
from ottla.broker.replication.purgatory.delay_times import DelayTimes
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.primitives import Pieces
from ottla.server.network.connection import Connection, Held
from ottla.server.network.pending_reply import cannot_encode, encode_frame, failure_reply

DONE = NOT_DELAYED = -1


class DelayedRepeatedFetch(Held):
    """The delayed fetch of its session (`WaitingRequest`), and the place of its response."""

    __slots__ = (
        "_connection",
        "_correlation_id",
        "_delayed_at_ns",
        "_delays",
        "_short",
        "_slot",
        "_started_ns",
        "fresh",
    )

    def __init__(self, short: SessionReads, connection: Connection, correlation_id: int, delays: DelayTimes) -> None:
        self.parts = None
        self.nbytes = 0
        self._short = short
        self._connection = connection
        self._correlation_id = correlation_id
        self._delays = delays
        self._started_ns = connection.stamp_ns
        self._delayed_at_ns = short.mono_ns()
        #: What has changed; all active partitions are looked at, for any of them is enough.
        self.fresh: dict[FetchPartition, None] = {}
        short.session.waiting = self
        self._slot = short.broker.wheel.add(self, short.request.max_wait_ms)
        connection.wait(self, 0)

    def watch(self, rows: list[Row]) -> None:
        for wanted, partition, _, _ in rows:
            wanted.watch(partition.watches)

    def _watch_all(self) -> None:
        replicas = self._short.broker.replicas
        for wanted in self._short.session.active:
            partition = replicas.by_id.get(wanted.topic_id, {}).get(wanted.index)
            wanted.watch(None if partition is None else partition.watches)

    def wake(self) -> None:
        if self._slot != DONE:
            self._look(is_over=False)

    def expire(self) -> None:
        self._look(is_over=True)

    def look_at_once(self, is_over: bool) -> None:
        """Answer without a delay, if there is an answer: what is out of the ordinary was found before it had to wait."""
        delayed_at_ns, self._delayed_at_ns = self._delayed_at_ns, NOT_DELAYED
        self._look(is_over)
        self._delayed_at_ns = delayed_at_ns

    def _look(self, is_over: bool) -> None:
        """Complete it with what is there. If that is nothing, go on waiting, unless max_wait_ms is over."""
        try:
            total, rows = self._short.look()
            if total < 0:
                self._look_by_handler(is_over)
            elif total or is_over:
                head, parts, self.nbytes = self._short.response(self._correlation_id, rows)
                self._complete([head, *parts])
            else:
                self.watch(rows)
        except Exception:
            # A bug of this broker: the client is answered all the same, so that it can ask again.
            if self._slot != DONE:
                self._fail()
            raise

    def _look_by_handler(self, is_over: bool) -> None:
        short = self._short
        fetching = Fetching(short.broker, short.request, short.context, short.session)
        if fetching.attempt() >= fetching.min_bytes or fetching.must_answer or is_over:
            if not short.session.id:
                self._connection.fast_path = None  # with this response its session ends
            self._answer(fetching.response())
        else:
            self._watch_all()

    def _fail(self) -> None:
        short = self._short
        error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        self._answer(failure_reply(short.route, short.context.api_version, short.request, error))

    def _answer(self, response: object) -> None:
        short, version = self._short, self._short.context.api_version
        codec = short.route.codec(version)
        assert codec is not None
        parts: Pieces = []
        try:
            self.nbytes = encode_frame(codec, self._correlation_id, response, parts)
        except Exception:
            self.cancel()
            cannot_encode(self._connection, version, response)
            return
        self._complete(parts)

    def _complete(self, parts: Pieces) -> None:
        self._stop()
        connection, short = self._connection, self._short
        now_ns = short.mono_ns()
        if self._delayed_at_ns != NOT_DELAYED:
            self._delays.add(now_ns - self._delayed_at_ns)
        if connection.closed:
            return
        self.parts = parts
        short.route.count(now_ns - self._started_ns)
        connection.ready(self, 0)

    def cancel(self) -> None:
        """The connection has been closed."""
        self._stop()
        session = self._short.session
        if not session.id:
            session.close()

    def _stop(self) -> None:
        short = self._short
        if short.session.waiting is self:
            short.session.waiting = None
        short.broker.wheel.remove(self, self._slot)
        self._slot = DONE
