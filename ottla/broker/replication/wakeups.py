"""Wakeups of delayed operations, coalesced: each is woken once per turn of the event loop. And batching, which delays followers' fetches.

A consumer that long-polls a busy partition would otherwise be answered once per appended record, though several produce requests are
usually handled in the same turn: it is answered once, just after them. Deadlines are in server/clock.py, and each partition has
the operations that wait for it (partition.py, watchers.py).

Batching: the leader delays followers' fetches until the producers which it has just acknowledged have written again (group commit).
A producer with acks=all sends its next Produce after the acknowledgement, and that leaves when the followers fetch again. So a fetch
that is answered at once carries the records of those producers alone whose Produce came during the last round trip: half of them,
measured with 8, 32 and 128 (benchmarks/performance-log.md, "What a follower's fetch carries"). A fetch that is held until the
other half has written carries the records of all, so that a record costs half as many fetches. With acks=1, or with one Produce
at a time, nothing is held.

    round       from one release of followers' fetches to the next
    crowd       the largest number of Produces that waited at the same time in the last round
    held        a fetch with few records, while fewer Produces wait than the crowd, for HOLD_MS at most
    in vain     the crowd did not come back within HOLD_MS: the next rounds are not held, twice as many each time

Internal topics take no part: the next record of a transaction or a group comes when the coordinator's is committed, so that a held
one delays itself. Transactions of three partitions came to 120 a second with them, and to 255 without.

What decides is whether the last holds were worth it, not a rate: producers that do not wait for each other (500 messages a second
from anywhere) cost one hold of 1 ms in 64 rounds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from ottla.server.clock import Clock, TimerHandle
from ottla.server.tasks import isolated

log = logging.getLogger(__name__)

#: A timer of the event loop has this resolution.
HOLD_MS = 1
#: A fetch with this many records costs little for each of them, and is not held: with 128 producers, rounds that waited for all
#: of them gained nothing, and a third fewer Produces were answered.
BATCHED_MAX = 16
#: The most rounds in a row that are not held.
PASSED_MAX = 64


class DelayedOperation(Protocol):
    def wake(self) -> None: ...


@dataclass(slots=True)
class Rounds:
    """The decisions: whether a fetch is held, and until how many Produces wait."""

    #: Produces that wait for their high watermark now.
    waiting: int = 0
    #: The number of waiting Produces at which held fetches are released.
    target: int = 0
    _crowd: int = 0
    _in_vain: int = 0
    _passing: int = 0

    def joined(self) -> None:
        self.waiting += 1
        if self.waiting > self._crowd:
            self._crowd = self.waiting

    def holds(self) -> bool:
        """Return True if the fetch that could be answered now is to be held; the round ends otherwise."""
        crowd, self._crowd = self._crowd, self.waiting
        if self._passing:
            self._passing -= 1
            return False
        if crowd <= 1:
            return False
        self.target = min(crowd, BATCHED_MAX)
        return self.waiting < self.target

    def released(self, *, in_vain: bool) -> None:
        self._crowd = self.waiting
        self._in_vain = self._in_vain + 1 if in_vain else 0
        self._passing = min(2**self._in_vain, PASSED_MAX) if in_vain else 0


class NoBatching:
    """The batching of internal topics, which have none: Produces do not wait for their records, and a fetch that carries them
    is released.
    """

    __slots__ = ()

    def joined(self) -> None:
        pass

    def left(self, count: int) -> None:
        pass

    def holds(self, fetch: DelayedOperation, records: int) -> bool:
        return False


class Batching:
    """The held fetches of one node, of all followers together: a record needs every one of them."""

    __slots__ = ("_clock", "_held", "_timer", "_wake", "rounds")

    def __init__(self, clock: Clock, wake: Callable[[DelayedOperation], None]) -> None:
        """Take `wake`, which wakes a fetch after the present turn of the loop, so that it carries the Produces of all connections of that turn."""
        self._clock = clock
        self._wake = wake
        self._held: dict[DelayedOperation, None] = {}
        self._timer: TimerHandle | None = None
        self.rounds = Rounds()

    def joined(self) -> None:
        """A Produce waits for its high watermark."""
        rounds = self.rounds
        rounds.joined()
        if self._timer is not None and rounds.waiting >= rounds.target:
            self._release(in_vain=False)

    def left(self, count: int) -> None:
        """Note that `count` Produces no longer wait."""
        self.rounds.waiting -= count

    def wants(self, records: int) -> bool:
        """Return True if a follower's fetch that finds this number of records, one at least, is to wait for more: `hold` is called
        for it then.
        """
        return records < BATCHED_MAX and (self._timer is not None or self.rounds.holds())

    def hold(self, fetch: DelayedOperation) -> None:
        """Hold this fetch until the producers have written again, HOLD_MS at most."""
        if self._timer is None:
            self._timer = self._clock.call_later(HOLD_MS, partial(self._release, in_vain=True))
        self._held[fetch] = None

    def holds(self, fetch: DelayedOperation, records: int) -> bool:
        """Return True if a follower's fetch that finds this number of records waits; it is woken later."""
        if self._timer is not None and fetch in self._held:
            return True
        if not self.wants(records):
            return False
        self.hold(fetch)
        return True

    def _release(self, *, in_vain: bool) -> None:
        assert self._timer is not None
        self._timer.cancel()
        self._timer = None
        self.rounds.released(in_vain=in_vain)
        held, self._held = self._held, {}
        for fetch in held:
            self._wake(fetch)


class Wakeups:
    """Wakes each that is scheduled once, right after the current turn of the loop."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self._call_later = clock, clock.call_later
        self.batching = Batching(clock, self.schedule)
        self.no_batching = NoBatching()
        #: The operations of this turn, and a function that one Produce of it may set to be called after them.
        self.pending: dict[DelayedOperation, None] = {}
        self.afterwards: Callable[[], None] | None = None

    def schedule(self, operation: DelayedOperation) -> None:
        if not self.pending:
            # `begin_in_turns` is for work in slices: this is one call, and a hot path.
            self._call_later(0, self._run)
        self.pending[operation] = None

    def _run(self) -> None:
        pending, self.pending = self.pending, {}
        for waiting in pending:
            try:
                waiting.wake()
            except Exception:  # as `isolated`, which would cost one more call for each fetch that is woken
                log.exception("%r could not be woken", waiting)
        if self.afterwards is not None:
            afterwards, self.afterwards = self.afterwards, None
            isolated(afterwards)
