"""What a shard decided: records to append, and who gets which answer once they are committed.

`Outcome` is the whole result of a decision. The runtime appends its records, replays them, and only then lets `then`
go on (which may decide further records); every answer leaves when the newest offset it could have seen is committed.
`Pending` is an answer that is not ready yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from ottla.protocol.errors import KafkaError

CoordinatorRecord: TypeAlias = tuple[Any, Any]
"""(key struct, value struct); a value of None is a tombstone."""


class Producer(NamedTuple):
    """Whose transaction records belong to."""

    producer_id: int
    producer_epoch: int


class Pending:
    """One answer that comes later, exactly once: from the shard, or by `fail` when the shard is gone."""

    __slots__ = ("_callback", "_error_response", "_response", "done")

    def __init__(self, error_response: Callable[[KafkaError], Any]) -> None:
        self._error_response = error_response
        self._callback: Callable[[Any], None] | None = None
        self._response: Any = None
        self.done = False

    def complete(self, response: Any) -> None:
        """Completes the response, which must happen once."""
        assert not self.done, "a request was answered twice"
        self.done = True
        if self._callback is None:
            self._response = response
        else:
            self._callback(response)

    def fail(self, error: KafkaError) -> None:
        """Give the API's answer to this error."""
        self.complete(self._error_response(error))

    def when_done(self, callback: Callable[[Any], None]) -> None:
        """Hand the answer on, now if it is there."""
        assert self._callback is None, "an answer has one receiver"
        self._callback = callback
        if self.done:
            callback(self._response)


@dataclass(slots=True)
class Outcome:
    """A decision; an empty one changes and says nothing."""

    # Appended as one batch (atomic) or, for clean-ups of any length, as several.
    records: Sequence[CoordinatorRecord] = ()
    # The answer to the request that was decided on; None when it was parked (its Pending is kept by the shard).
    response: Any = None
    # Answers to requests that were parked earlier.
    replies: Sequence[tuple[Pending, Any]] = ()
    # Run after the records were replayed: soft state that may change only when the append succeeded.
    then: Callable[[], Outcome] | None = None
    # Run instead of `then` when the append was refused; without it the request gets the error.
    refused: Callable[[KafkaError], Outcome] | None = None
    atomic: bool = True
    # Set for records that count only when this producer's transaction is committed.
    producer: Producer | None = None
    # Called once all records up to these are committed: what must not happen if they might yet be lost. Never called
    # when leadership ends first.
    committed: Callable[[], None] | None = None
