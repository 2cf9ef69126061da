"""The errors of a cluster: those that it answers, and those of asking it. What all failures have is in `failures.py`."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.client.failures import Failure, Kind, did_you_mean
from ottla.protocol.errors import ErrorCode


class ClusterError(Failure):
    """A cluster has rejected a request, or cannot be asked, or cannot be asked for this.

    Its cause begins with what it is about: a topic, a group, or a broker where only that one can answer. An error code has `message`,
    the broker's or Kafka's own.
    """

    def __init__(
        self,
        cause: str,
        remedy: str | None = None,
        kind: Kind = Kind.FAILED,
        code: int | None = None,
        *,
        message: str | None = None,
    ) -> None:
        super().__init__(cause, remedy, kind)
        self.code = code
        self.message = message


NOT_THERE = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
)


NO_SUCH_TOPIC = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


def code_of(number: int) -> ErrorCode:
    """Return the ErrorCode of a number; a code of a newer Kafka becomes UNKNOWN_SERVER_ERROR."""
    return ErrorCode(number)


def passes(number: int) -> bool:
    """Return whether an error passes by itself, so that the request is worth another attempt.

    UNKNOWN_TOPIC_OR_PARTITION does so only for clients that wait until a topic is created; all others want to say that there is none.
    """
    code = ErrorCode(number)
    return code.retriable and code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def failure(
    place: str, number: int, message: str | None = None, *, name: str = "", known: Iterable[str] = ()
) -> ClusterError:
    """Return the error of an error code. If it says that `name` does not exist, it suggests similar names of `known`."""
    code = code_of(number)
    kind = Kind.TIMED_OUT if code is ErrorCode.REQUEST_TIMED_OUT else Kind.FAILED
    near = did_you_mean(name, known) if code in NOT_THERE else None
    said = message or code.message
    return ClusterError(f"{place}: {said} ({code.name})", near, kind, code, message=said)


def check(place: str, number: int, message: str | None = None) -> None:
    """Raise for any code but NONE."""
    if number:
        raise failure(place, number, message)
