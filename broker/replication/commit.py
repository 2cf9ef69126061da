"""Who waits for an offset of a partition: an append with acks=all for the high watermark, one of flush.messages=1 for the disk."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from protocol.errors import ErrorCode


class Commit:
    """A callback at an offset: called with NONE once the high watermark is past it, or with why it never will be here."""

    __slots__ = ("callback", "required_offset")

    def __init__(self, required_offset: int, callback: Callable[[ErrorCode], None]) -> None:
        self.required_offset = required_offset
        self.callback: Callable[[ErrorCode], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


def insert(waiting: deque[Commit], commit: Commit) -> None:
    """In the order of the offsets."""
    while waiting and waiting[0].callback is None:
        waiting.popleft()  # timed out: while the watermark stands, nothing else would take them away
    if waiting and waiting[-1].required_offset > commit.required_offset:
        # A duplicate batch is answered by its first append, which lies behind newer ones.
        position = next(i for i, each in enumerate(waiting) if each.required_offset > commit.required_offset)
        waiting.insert(position, commit)
    else:
        waiting.append(commit)
