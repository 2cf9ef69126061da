"""Metadata answers that wait a moment, because a leader they would name has just died.

A client that loses its connection to a leader asks for metadata at once. A killed broker is fenced about 0.1 s later, so the
answer would still name it, and librdkafka then waits one or two seconds before it asks again: measured, that wait was nearly all
of a failover. A follower of the dead leader has seen its own connection break, and holds such answers back until
the metadata has changed, or for HOLD_MS at most (how long a leader counts as just lost: replication/fetcher.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from controller.metadata.delta import MetadataDelta
from controller.metadata.image import MetadataImage
from server.network.deferred import Deferred
from server.timer_wheel import TimerWheel

#: A fence takes 0.1 s, a new controller before it another 0.1 to 0.5 s. What is held back holds back what is behind it on the
#: same connection, so not longer.
HOLD_MS = 500


class HeldAnswers:
    """The answers that wait."""

    def __init__(self, wheel: TimerWheel) -> None:
        self._wheel = wheel
        self._held: dict[_Held, None] = {}

    def hold(self, names_lost_leader: Callable[[], bool], answer: Callable[[], Any]) -> Deferred:
        """`answer()` as soon as a change of the metadata lets `names_lost_leader()` be false, or the time is up."""
        held = _Held(names_lost_leader, answer, self._release)
        self._held[held] = None
        held.slot = self._wheel.add(held, HOLD_MS)
        held.deferred.on_cancel = lambda: self._release(held)
        return held.deferred

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """A listener of the publisher."""
        for held in list(self._held):
            if not held.names_lost_leader():
                held.expire()

    def _release(self, held: _Held) -> None:
        self._held.pop(held, None)
        self._wheel.remove(held, held.slot)


class _Held:
    __slots__ = ("answer", "deferred", "names_lost_leader", "release", "slot")

    def __init__(
        self, names_lost_leader: Callable[[], bool], answer: Callable[[], Any], release: Callable[[_Held], None]
    ) -> None:
        self.names_lost_leader = names_lost_leader
        self.answer = answer
        self.release = release
        self.deferred = Deferred()
        self.slot = -1

    def expire(self) -> None:
        self.release(self)
        self.deferred.complete(self.answer())
