"""The responses of the fast path of Produce (`repeated.py`) that do not leave with the others of their turn."""

from __future__ import annotations

from typing import Protocol

from ottla.broker.replication.partition import Partition
from ottla.protocol.errors import ErrorCode
from ottla.server.network.connection import Connection, Held
from ottla.server.timer_wheel import TimerWheel


class RepeatedProduce(Protocol):
    """What a response needs of its fast path (`repeated.py`)."""

    wheel: TimerWheel
    timeout_ms: int

    def count(self, started_ns: int) -> None: ...

    def response(self, correlation_id: int, body: tuple[int, int, int, int], error: ErrorCode) -> bytes: ...


class DelayedRepeatedProduce(Held):
    """Waits for the high watermark, or for timeout.ms: `DelayedProduce` of one partition, and the place of its response."""

    __slots__ = ("_body", "_connection", "_correlation_id", "_short", "_slot", "_started_ns", "_wait")

    def __init__(
        self,
        short: RepeatedProduce,
        connection: Connection,
        correlation_id: int,
        partition: Partition,
        last_offset: int,
        body: tuple[int, int, int, int],
    ) -> None:
        self.parts = None
        self.nbytes = 0
        self._short = short
        self._connection = connection
        self._correlation_id = correlation_id
        self._body = body
        self._started_ns = connection.stamp_ns
        self._slot = short.wheel.add(self, short.timeout_ms)
        connection.wait(self, 0)  # first: `when_committed` may call back at once
        self._wait = partition.when_committed(last_offset, self._committed)

    def _committed(self, error: ErrorCode) -> None:
        self._short.wheel.remove(self, self._slot)
        self._complete(error)

    def expire(self) -> None:
        self._wait.cancel()
        self._complete(ErrorCode.REQUEST_TIMED_OUT)

    def cancel(self) -> None:
        self._wait.cancel()
        self._short.wheel.remove(self, self._slot)

    def _complete(self, error: ErrorCode) -> None:
        connection, short = self._connection, self._short
        if connection.closed:
            return
        frame = short.response(self._correlation_id, self._body, error)
        self.parts = [frame]
        self.nbytes = len(frame)
        short.count(self._started_ns)
        connection.ready(self, 0)


class FollowingProduce(Held):
    """Leaves after the Fetches that wait for its records: the first of a turn only, so that producers do not wait for each other.
    Not with acks=1, which asks for the earliest acknowledgement, and where the Fetches may be those of followers.

    Each write to a socket wakes its client and takes 20 us. At 500 messages a second a record is in its consumer's socket after
    0.08 ms in place of 0.13, and the p99 of that is 0.24 in place of 0.41 (docs/dev/performance-log.md, "Where the p99 goes").
    """

    __slots__ = ("_connection", "_frame", "_short", "_started_ns")

    def __init__(self, short: RepeatedProduce, connection: Connection, frame: bytes) -> None:
        self.parts = None
        self.nbytes = 0
        self._short = short
        self._connection = connection
        self._frame = frame
        self._started_ns = connection.stamp_ns
        connection.wait(self, len(frame))

    def __call__(self) -> None:
        if self._connection.closed:
            return
        self.parts = [self._frame]
        self.nbytes = len(self._frame)
        self._short.count(self._started_ns)
        self._connection.ready(self, self.nbytes)
