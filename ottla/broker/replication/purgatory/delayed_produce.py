"""Produce requests that wait: until every partition's high watermark passed (acks=all) or its flush is done, or the timeout.

The records are in the log already when one of these is made; this file only decides about the response to the client
(REQUEST_TIMED_OUT and NOT_ENOUGH_REPLICAS_AFTER_APPEND are the two errors that do not mean "not in the log", invariant 13).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ottla.broker.replication.purgatory.offset_waits import OffsetWait
from ottla.protocol.errors import ErrorCode
from ottla.server.timer_wheel import TimerWheel

#: (Partition.when_committed or when_flushed, last appended offset, called with the error unless it is NONE)
Wait = tuple[Callable[[int, Callable[[ErrorCode], None]], OffsetWait], int, Callable[[ErrorCode], None]]


class DelayedProduce:
    """Several appended partitions; `done` is called exactly once, unless `cancel` came first."""

    __slots__ = ("_done", "_open", "_slot", "_waits", "_wheel")

    def __init__(self, waits: list[Wait], timeout_ms: int, wheel: TimerWheel, done: Callable[[], None]) -> None:
        self._done: Callable[[], None] | None = done
        self._wheel = wheel
        self._slot = -1
        self._open: dict[int, Callable[[ErrorCode], None]] = {i: fail for i, (_, _, fail) in enumerate(waits)}
        self._waits: list[OffsetWait] = []
        for i, (subscribe, last_offset, _) in enumerate(waits):
            self._waits.append(subscribe(last_offset, partial(self._committed, i)))
        if self._open:
            self._slot = wheel.add(self, max(0, timeout_ms))

    def _committed(self, i: int, error: ErrorCode) -> None:
        fail = self._open.pop(i, None)
        if fail is None:
            return
        if error:
            fail(error)
        if not self._open:
            self._finish()

    def expire(self) -> None:
        for fail in self._open.values():
            fail(ErrorCode.REQUEST_TIMED_OUT)
        self._open.clear()
        self._finish()

    def cancel(self) -> None:
        """Drops the operation, because the connection was closed."""
        self._done = None
        self._open.clear()
        self._finish()

    def _finish(self) -> None:
        if self._slot >= 0:
            self._wheel.remove(self, self._slot)
        for wait in self._waits:
            wait.cancel()
        done, self._done = self._done, None
        if done is not None:
            done()
