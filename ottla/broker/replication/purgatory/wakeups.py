"""Wakeups of delayed operations, coalesced: each is woken once per turn of the event loop.

A consumer that long-polls a busy partition would otherwise be answered once per appended record, though several produce
requests are usually handled in the same turn: it is answered once, just after them. Deadlines are in server/timer_wheel.py,
and each partition has the list of the operations that wait for it (replication/partition.py).
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.replication.purgatory.gathering import DelayedOperation, Gathering, NoGathering
from ottla.server.clock import Clock
from ottla.server.isolation import isolated


class Wakeups:
    """Wakes each that is scheduled once, right after the current turn of the loop."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.gathering = Gathering(clock, self.schedule)
        self.no_gathering = NoGathering()
        #: Those of this turn, and what one Produce of it may set to be called after them.
        self.pending: dict[DelayedOperation, None] = {}
        self.afterwards: Callable[[], None] | None = None

    def schedule(self, operation: DelayedOperation) -> None:
        if not self.pending:
            self.clock.call_later(0, self._run)
        self.pending[operation] = None

    def _run(self) -> None:
        pending, self.pending = self.pending, {}
        afterwards, self.afterwards = self.afterwards, None
        for waiting in pending:
            isolated(waiting.wake)
        if afterwards is not None:
            isolated(afterwards)
