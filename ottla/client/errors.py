"""The errors of a cluster: those in its responses, and those of a cluster that cannot be asked.

`failures.py` has the base of all failures.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.client.failures import Failure, Kind, did_you_mean
from ottla.protocol.errors import ErrorCode


class ClusterError(Failure):
    """A cluster has rejected a request, cannot be reached, or does not have the request.

    The cause begins with the topic or the group, or with the broker if only that one could answer. With an error code there is
    a `message`: the broker's, or else Kafka's text for the code.
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
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
)
NO_SUCH_TOPIC = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


def code_of(number: int) -> ErrorCode:
    """Return the ErrorCode of a number; a code of a newer Kafka becomes UNKNOWN_SERVER_ERROR."""
    return ErrorCode(number)


def passes(number: int) -> bool:
    """Return whether an error passes by itself, so that the request is worth another attempt.

    UNKNOWN_TOPIC_OR_PARTITION passes only for clients that wait until a topic is created; all others report that the topic does
    not exist.
    """
    code = ErrorCode(number)
    return code.retriable and code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def failure(
    place: str, number: int, message: str | None = None, *, name: str = "", known: Iterable[str] = ()
) -> ClusterError:
    """Return the error of an error code.

    If the code means that `name` does not exist, the error suggests similar names from `known`.
    """
    code = code_of(number)
    kind = Kind.NOT_THERE if code in NOT_THERE else Kind.FAILED
    if code is ErrorCode.REQUEST_TIMED_OUT:
        kind = Kind.TIMED_OUT
    near = did_you_mean(name, known) if code in NOT_THERE else None
    said = message or code.message
    return ClusterError(f"{place}: {said} ({code.name})", near, kind, code, message=said)


def check(place: str, number: int, message: str | None = None) -> None:
    """Raise a ClusterError for any code but NONE."""
    if number:
        raise failure(place, number, message)
