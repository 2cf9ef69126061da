"""Callbacks that wait for an offset of a partition: acks=all for the high watermark, flush.messages=1 for the disk."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ottla.broker.replication.purgatory.gathering import Gathering, NoGathering
from ottla.protocol.errors import ErrorCode
from ottla.server.isolation import isolated


class OffsetWait:
    """A delayed Produce waits with it: called with NONE when the high watermark passes the offset, or with the error that prevents it."""

    __slots__ = ("callback", "required_offset")

    def __init__(self, required_offset: int, callback: Callable[[ErrorCode], None]) -> None:
        self.required_offset = required_offset
        self.callback: Callable[[ErrorCode], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class OffsetWaits:
    """The waits of a partition, ordered by offset. A callback that fails does not keep others from being called."""

    __slots__ = ("_gathering", "waiting")

    def __init__(self, gathering: Gathering | NoGathering) -> None:
        self._gathering = gathering
        #: Each append checks whether there are any; the deque is checked in a fifth of the time of a method call.
        self.waiting: deque[OffsetWait] = deque()

    def add(self, wait: OffsetWait) -> None:
        waiting = self.waiting
        while waiting and waiting[0].callback is None:
            self._gathering.left(1)
            waiting.popleft()  # The operation has timed out. It is removed here, because the high watermark may not advance for long.
        if waiting and waiting[-1].required_offset > wait.required_offset:
            # A duplicate batch is answered by its first append, which lies behind newer ones.
            position = next(i for i, each in enumerate(waiting) if each.required_offset > wait.required_offset)
            waiting.insert(position, wait)
        else:
            waiting.append(wait)
        self._gathering.joined()

    def reached(self, offset: int, result: ErrorCode) -> None:
        """Complete all waits up to `offset`."""
        waiting = self.waiting
        while waiting and waiting[0].required_offset <= offset:
            wait = waiting.popleft()
            self._gathering.left(1)
            if wait.callback is not None:
                isolated(wait.callback, result)

    def take_all(self) -> list[OffsetWait]:
        taken = list(self.waiting)
        self.waiting.clear()
        self._gathering.left(len(taken))
        return taken
