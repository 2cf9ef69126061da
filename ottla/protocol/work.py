"""Cooperative work in slices: a hostile or very large batch would take too long for one turn of the event loop.

The work is a generator. It yields after each turn's worth:

    None         resume it in a later turn of the loop
    a callable   call it on a worker thread (it releases the GIL: decompression, compression) and send its result back
    a DiskJob     the same for a function that waits for a disk and whose result takes no room
    RELEASE      the results of the callables are no longer in use

and returns its result. Between two turns, state that it does not own may change. A turn's worth is a number of records,
not a time, so that a test can count it. The driver decides where the work runs: `do_now` runs it at once,
`broker/long_work.py` in turns of the event loop and on worker threads.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeAlias, TypeVar

from ottla.protocol.errors import KafkaError
from ottla.protocol.slotted import frozen

T = TypeVar("T")


@frozen
class DiskJob:
    """File system calls that some work needs first. `directory` is the log directory whose disk they wait for."""

    directory: str
    run: Callable[[], object]

    def __call__(self) -> object:
        return self.run()


Work: TypeAlias = Generator[Callable[[], object] | None, Any, T]

#: Records looked at in one turn: about a microsecond each.
RECORDS_A_TURN = 2048
#: Bytes that may be decompressed or compressed on the loop: gzip writes some 40 MB a second.
BYTES_A_TURN = 128 * 1024
_BYTES_A_RECORD = BYTES_A_TURN // RECORDS_A_TURN


class TooLong(Exception):
    """The work does not fit into one turn."""


class Turn:
    """The budget that is left of this turn, in records. Work that spends the last of it yields None and begins another turn."""

    __slots__ = ("left", "worth")

    def __init__(self, worth: int = RECORDS_A_TURN) -> None:
        self.left = self.worth = worth

    def spend(self, records: int) -> bool:
        """Spend part of the budget. Return True if the turn is over; the budget is then that of the next turn."""
        self.left -= records
        if self.left > 0:
            return False
        self.left = self.worth
        return True

    def spend_bytes(self, count: int) -> bool:
        """Spend budget for bytes that were compressed or decompressed in this turn."""
        return self.spend(count // _BYTES_A_RECORD)


def _released() -> None:
    """The value of RELEASE, which is compared by identity. It does nothing."""


RELEASE = _released


def do_now(work: Work[T]) -> T:
    """Run all of the work at once, however long it takes."""
    answer: object = None
    raised: KafkaError | None = None
    while True:
        try:
            asked = work.send(answer) if raised is None else work.throw(raised)
        except StopIteration as end:
            result: T = end.value
            return result
        answer = raised = None
        if asked is not None:
            try:
                answer = asked()
            except KafkaError as error:
                raised = error


def do_at_once(work: Work[T]) -> T:
    """Return the result of work that fits into one turn.

    Raises:
        TooLong: the work does not fit; its partial results are dropped.
    """
    try:
        next(work)
    except StopIteration as end:
        result: T = end.value
        return result
    work.close()
    raise TooLong
