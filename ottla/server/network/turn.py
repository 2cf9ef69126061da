"""The time that requests of all connections together may take in one turn of the event loop.

A budget of each connection alone is none: twenty clients that ask at once for what takes 25 ms held the loop for half a second, and the
quorum, on the same loop, with them. Only slow reads are counted: a usual one takes some 30 us, and pays one comparison.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from ottla.server.clock import Clock
from ottla.server.isolation import isolated

#: One read may have a thousand requests, and some are slow: the first record of a partition creates its files, which takes two
#: milliseconds on a slow file system. The quorum runs on the same loop and must not wait for all of them.
TURN_NS = 20_000_000
#: Reads that took less are not counted.
SLOW_NS = 100_000


class Served(Protocol):
    """A connection with requests that wait for the next turn."""

    def next_turn(self) -> None: ...


class RequestTurn:
    """The rest of the present turn and the connections that wait for the next one. Each dispatcher has one."""

    __slots__ = ("_clock", "_is_set", "_waiting", "left_ns")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._is_set = False
        self._waiting: deque[Served] = deque()
        self.left_ns = TURN_NS

    def spend(self, spent_ns: int) -> None:
        self.left_ns -= spent_ns
        self._set()

    def wait(self, served: Served) -> None:
        """Serve the connection in a later turn, after those that wait already."""
        self._waiting.append(served)
        self._set()

    def _set(self) -> None:
        if not self._is_set:
            self._is_set = True
            self._clock.call_later(0, self._begin)

    def _begin(self) -> None:
        self._is_set = False
        self.left_ns = TURN_NS
        for _ in range(len(self._waiting)):
            if self.left_ns <= 0:
                break
            isolated(self._waiting.popleft().next_turn)
        if self._waiting:
            self._set()
