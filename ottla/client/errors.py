"""The errors of the client library. An error says what happened; what a person types to mend it, and with which exit code
a process ends, is known to the command line alone (ottla/cli/hints.py)."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto

from ottla.protocol.errors import ErrorCode


class Kind(Enum):
    """The kind of a failure, for callers that give it other words or act on it."""

    FAILED = auto()
    TIMED_OUT = auto()
    #: What was asked for is wrong in itself: a name, an address, a property, a form.
    WRONG = auto()
    # Kinds of a wrong request that have a remedy of their own.
    NO_ADDRESS = auto()
    NOT_HOST_PORT = auto()
    NOT_ADMIN_LISTENER = auto()
    NO_SUCH_PARTITION = auto()
    NO_SUCH_BROKER = auto()
    # Failures of the cluster that have a remedy of their own.
    BROKER_GONE = auto()
    NO_BROKER_ANSWERS = auto()
    TOO_FEW_BROKERS = auto()


class Failure(Exception):
    """Something that was asked for cannot be done. `cause` says what happened and where, `remedy` what to try, wherever it is read."""

    #: The broker's error code, and its message, if one has answered.
    code: int | None = None
    message: str | None = None

    def __init__(self, cause: str, remedy: str | None = None, kind: Kind = Kind.FAILED) -> None:
        super().__init__(cause)
        self.cause = cause
        self.remedy = remedy
        self.kind = kind

    def text(self) -> str:
        """Return cause and remedy in one line, for a log."""
        return f"{self.cause} ({self.remedy})" if self.remedy else self.cause


def did_you_mean(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return a suggestion for a word that is not known, or None when nothing is near."""
    from difflib import get_close_matches  # 10 ms that only mistakes pay

    near = get_close_matches(word, list(known), n=3, cutoff=cutoff)
    if not near:
        return None
    return "did you mean " + " or ".join(repr(name) for name in near) + "?"


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
