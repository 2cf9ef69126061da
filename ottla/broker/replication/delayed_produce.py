"""Produce requests that wait: until every partition's high watermark passed (acks=all) or its flush is done, or the timeout.

The records are in the log already when one of these is made; this file only decides about the response to the client
(REQUEST_TIMED_OUT and NOT_ENOUGH_REPLICAS_AFTER_APPEND are the two errors that do not mean "not in the log", invariant 13).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ottla.broker.replication.wakeups import Batching, NoBatching
from ottla.protocol.errors import ErrorCode
from ottla.server.clock import TimerWheel
from ottla.server.tasks import isolated


@dataclass(slots=True, eq=False)
class OffsetWait:
    """The wait of a delayed Produce: the callback gets NONE when the high watermark passes the offset, or the error that
    prevents it.
    """

    required_offset: int
    callback: Callable[[ErrorCode], None] | None

    def cancel(self) -> None:
        self.callback = None


class OffsetWaits:
    """The waits of a partition for its high watermark, or for its disk (flush.messages=1), ordered by offset.

    A callback that fails does not keep others from being called.
    """

    __slots__ = ("_batching", "waiting")

    def __init__(self, batching: Batching | NoBatching) -> None:
        self._batching = batching
        #: Each append checks whether there are any; the deque is checked in a fifth of the time of a method call.
        self.waiting: deque[OffsetWait] = deque()

    def add(self, wait: OffsetWait) -> None:
        waiting = self.waiting
        while waiting and waiting[0].callback is None:
            self._batching.left(1)
            waiting.popleft()  # The operation has timed out. It is removed here, because the high watermark may not advance for long.
        if waiting and waiting[-1].required_offset > wait.required_offset:
            # A duplicate batch is acknowledged when its first append is committed, whose offset is below those of newer
            # batches.
            position = next(i for i, each in enumerate(waiting) if each.required_offset > wait.required_offset)
            waiting.insert(position, wait)
        else:
            waiting.append(wait)
        self._batching.joined()

    def reached(self, offset: int, result: ErrorCode) -> None:
        """Complete all waits up to `offset`."""
        waiting = self.waiting
        while waiting and waiting[0].required_offset <= offset:
            wait = waiting.popleft()
            self._batching.left(1)
            if wait.callback is not None:
                isolated(wait.callback, result)

    def fail(self, error: ErrorCode) -> None:
        """End all waits with an error."""
        taken = list(self.waiting)
        self.waiting.clear()
        self._batching.left(len(taken))
        for wait in taken:
            if wait.callback is not None:
                isolated(wait.callback, error)


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
        """Drop the operation, because the connection was closed."""
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
