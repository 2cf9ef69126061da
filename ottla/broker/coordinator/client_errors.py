"""Errors as the clients of a coordinator know them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ottla.protocol.errors import ErrorCode, KafkaError

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
    """Returns the error as clients of a coordinator know it."""
    mapped = APPEND_ERRORS.get(error.code)
    return error if mapped is None else KafkaError(mapped)


def unreadable(what: str) -> KafkaError:
    """The error of a group or transactional id whose newest record cannot be read.

    Clients show it and stop. With one that makes them look for the coordinator again they would do so for ever, and say nothing.
    """
    why = f"A record of {what} cannot be read. The log of its coordinator names the record."
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, why)


def error_code(error: KafkaError) -> ErrorCode:
    """Returns the response of an API whose only field is the error code."""
    return error.code
