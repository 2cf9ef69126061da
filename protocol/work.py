"""Work in slices, for what a hostile or merely large batch would make too long for one turn of an event loop.

A piece of work is a generator. It yields where it has done a turn's worth:

    None         others may have their turn; resume whenever it suits
    a callable   to be called off the loop (it leaves the interpreter: decompression, compression); send its result back
    RELEASE      what the callables gave is not kept any longer

and returns its result. Between two turns anything may happen to what it does not own. A turn's worth is a number of records,
never a time, so that a test can count it. Who drives the work knows where it runs: `do_now` here and now,
`broker/long_work.py` between the turns of the loop and its threads.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeAlias, TypeVar

from ottla.protocol.errors import KafkaError

T = TypeVar("T")
Work: TypeAlias = Generator[Callable[[], object] | None, Any, T]

#: Records looked at in one turn: about a microsecond each.
RECORDS_A_TURN = 2048
#: Bytes that may be decompressed or compressed on the loop: gzip writes some 40 MB a second.
BYTES_A_TURN = 128 * 1024
_BYTES_A_RECORD = BYTES_A_TURN // RECORDS_A_TURN


class TooLong(Exception):
    """The work does not fit into one turn."""


class Turn:
    """What is left of this turn, in records; whoever spends the last of it yields None and begins another."""

    __slots__ = ("left", "worth")

    def __init__(self, worth: int = RECORDS_A_TURN) -> None:
        self.left = self.worth = worth

    def spend(self, records: int) -> bool:
        """Whether the turn is over; the next one has begun then."""
        self.left -= records
        if self.left > 0:
            return False
        self.left = self.worth
        return True

    def spend_bytes(self, count: int) -> bool:
        """For bytes that were compressed or decompressed in this turn."""
        return self.spend(count // _BYTES_A_RECORD)


def _released() -> None:
    """Only its identity counts."""


RELEASE = _released


def do_now(work: Work[T]) -> T:
    """All of it, however long it takes."""
    answer: object = None
    fault: KafkaError | None = None
    while True:
        try:
            asked = work.send(answer) if fault is None else work.throw(fault)
        except StopIteration as end:
            result: T = end.value
            return result
        answer = fault = None
        if asked is not None:
            try:
                answer = asked()
            except KafkaError as refused:
                fault = refused


def do_at_once(work: Work[T]) -> T:
    """The result of work that fits into one turn.

    Raises:
        TooLong: it does not; nothing of it is kept.
    """
    try:
        next(work)
    except StopIteration as end:
        result: T = end.value
        return result
    work.close()
    raise TooLong
