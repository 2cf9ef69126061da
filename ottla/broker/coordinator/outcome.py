"""The outcome of a shard's decision: records to append, and the response and replies that are sent once they are committed.

`Outcome` is the whole result of a decision. The runtime appends its records, replays them, and only then lets `then`
go on (which may decide further records); every response leaves when the newest offset it could have seen is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Never, TypeAlias, TypeVar

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server.network.context import Reply

ResponseT = TypeVar("ResponseT", covariant=True)

CoordinatorRecord: TypeAlias = tuple[object, object]
"""(key struct, value struct); a value of None is a tombstone."""

Response: TypeAlias = tuple[Reply[Any], Any]
"""A reply, and what it is completed with."""


class Producer(NamedTuple):
    """The transactional producer whose transaction the records belong to."""

    producer_id: int
    producer_epoch: int


@dataclass(slots=True)
class Outcome(Generic[ResponseT]):
    """A decision; an empty one changes nothing and answers no request."""

    # Appended as one batch (atomic) or, for clean-ups of any length, as several.
    records: Sequence[CoordinatorRecord] = ()
    # The response to the request that was decided on; None when its reply is kept by the shard.
    response: ResponseT | None = None
    # Responses to requests whose replies were kept earlier.
    replies: Sequence[Response] = ()
    # Run after the records were replayed: soft state that may change only when the append succeeded.
    then: Callable[[], Outcome[ResponseT]] | None = None
    # Run instead of `then` when the append was rejected; without it the request gets the error.
    rejected: Callable[[KafkaError], Outcome[ResponseT]] | None = None
    atomic: bool = True
    # Set for records that count only when this producer's transaction is committed.
    producer: Producer | None = None
    # Called once all records up to these are committed: for an effect that must not happen while the records might be lost. It
    # is never called when leadership ends first.
    committed: Callable[[], None] | None = None


#: The outcome of timers and events, which have no request, and of requests that are answered through `replies`.
Unasked: TypeAlias = Outcome[Never]


T = TypeVar("T")
OnError = Callable[[KafkaError], T]

#: The error of an append, and the error that makes the client find the coordinator again or retry, whatever its version.
APPEND_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def client_error(error: KafkaError) -> KafkaError:
    """Return the error as clients of a coordinator know it."""
    mapped = APPEND_ERRORS.get(error.code)
    return error if mapped is None else KafkaError(mapped)


def unreadable(what: str) -> KafkaError:
    """Return the error of a group or transactional id whose newest record cannot be read.

    Clients show it and stop. An error that sends them to look for the coordinator again would let them look for ever, and say nothing.
    """
    why = f"A record of {what} cannot be read. The log of its coordinator names the record."
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, why)


def error_code(error: KafkaError) -> ErrorCode:
    """Return the response of an API whose only field is the error code."""
    return error.code


def coded(response: Callable[..., T]) -> OnError[T]:
    """Return the function that answers an error with its code alone, as some APIs do."""
    return lambda error: response(error_code=error.code)


def worded(response: Callable[..., T]) -> OnError[T]:
    """Return the function that answers an error with its code and a message, as the other APIs do."""
    return lambda error: response(error_code=error.code, error_message=error.own_words)
