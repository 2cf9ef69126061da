"""Requests that begin a transaction while the markers of the producer's transaction before are being written.

EndTxn is answered when the outcome is committed, and its producer goes on at once. It would be refused (CONCURRENT_TRANSACTIONS) until
the markers are there, a few milliseconds later, and librdkafka and Java's producer ask again after 20 ms. So its request waits here
for the markers instead, as long as a leader of Apache Kafka waits for them with Produce v12 (add.partitions.to.txn.retry.backoff.max.ms),
and is decided after that as any other: it may still be refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ottla.server.clock import Clock, TimerHandle
from ottla.server.network.context import Answer, Reply
from ottla.server.tasks import isolated

T = TypeVar("T")

#: The requests of one transactional id that wait: a client has at most five in flight.
WAITING_MAX = 5


class _Waiting:
    """One request."""

    __slots__ = ("decide", "reply", "timer")

    def __init__(self, decide: Callable[[], Answer[Any]], reply: Reply[Any], timer: TimerHandle) -> None:
        self.decide = decide
        self.reply = reply
        self.timer = timer

    def go_on(self) -> None:
        self.timer.cancel()
        if not self.reply.cancelled:
            self.reply.follow(self.decide())


class AfterMarkers:
    """The requests of a coordinator that wait, by transactional id."""

    def __init__(self, clock: Clock, wait_ms_max: int) -> None:
        self._clock = clock
        self._wait_ms_max = wait_ms_max
        self._waiting: dict[str, list[_Waiting]] = {}

    def wait(self, transactional_id: str, decide: Callable[[], Answer[T]]) -> Answer[T]:
        """Return the answer of `decide`, which is called when the markers are written, or after the longest wait; 0 is none."""
        waiting = self._waiting.get(transactional_id, [])
        if len(waiting) >= WAITING_MAX or not self._wait_ms_max:
            return decide()
        reply: Reply[T] = Reply()
        timer = self._clock.call_later(self._wait_ms_max, lambda: self.written(transactional_id))
        self._waiting[transactional_id] = [*waiting, _Waiting(decide, reply, timer)]
        return reply

    def written(self, transactional_id: str) -> None:
        """The markers are written, or will not be here: decide what waits for them, in its order."""
        for each in self._waiting.pop(transactional_id, ()):
            isolated(each.go_on)
