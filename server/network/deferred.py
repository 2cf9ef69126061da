"""An answer that comes later. It holds its place in the order of the connection's replies; no task, no future.

deferred = Deferred()
partition.when_committed(offset, lambda: deferred.complete(response))
deferred.on_cancel = ...          # called when the connection goes first
return deferred
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ottla.protocol.errors import KafkaError


class Waiting(Protocol):
    """The connection's side: where the answer goes."""

    def completed(self, response: Any) -> None: ...


class Deferred:
    """`complete` or `fail` exactly once; what comes after the connection has gone is dropped."""

    __slots__ = ("_outcome", "_waiting", "cancelled", "done", "kept_bytes", "on_cancel")

    def __init__(self, kept_bytes: int = 0) -> None:
        # What the handler keeps of the request until it answers; the connection reads no further while that is much.
        self.kept_bytes = kept_bytes
        self._waiting: Waiting | None = None
        self._outcome: Any = None
        self.done = False
        self.cancelled = False
        self.on_cancel: Callable[[], None] | None = None

    def complete(self, response: Any) -> None:
        """Answer. None means that no reply is sent (acks=0)."""
        assert not self.done, "answered twice"
        self.done = True
        self.on_cancel = None
        waiting = self._waiting
        if waiting is None:
            self._outcome = response
        else:
            self._waiting = None
            waiting.completed(response)

    def fail(self, error: KafkaError) -> None:
        """Answer with the error, in the form that the API gives to errors."""
        self.complete(error)

    def attach(self, waiting: Waiting) -> None:
        """For the connection: say where the answer goes."""
        self._waiting = waiting

    def take(self) -> Any:
        """For the connection: the answer that was there before anyone waited for it."""
        outcome, self._outcome = self._outcome, None
        return outcome

    def cancel(self) -> None:
        """For the connection: nobody waits any more."""
        if self.done:
            return
        self._waiting = None
        self.cancelled = True
        if self.on_cancel is not None:
            on_cancel, self.on_cancel = self.on_cancel, None
            on_cancel()
