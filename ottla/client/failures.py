"""A failure as programs print it: its kind, its cause and what to try.

Also the words for a count in a sentence. It imports nothing of the protocol, because `ottla --help` does not load that.

An error says what happened; the command line alone knows what a person types to mend it, and the exit code of the process
(ottla/cli/hints.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto


class Kind(Enum):
    """The kind of a failure, by which callers choose other words or act."""

    FAILED = auto()
    TIMED_OUT = auto()
    #: The request itself is wrong: a name, an address, a property or a form.
    WRONG = auto()
    #: Something that was named does not exist.
    NOT_THERE = auto()
    # Kinds of a wrong request that have a remedy of their own.
    NO_ADDRESS = auto()
    NOT_HOST_PORT = auto()
    NOT_ADMIN_LISTENER = auto()
    NO_SUCH_PARTITION = auto()
    NO_SUCH_BROKER = auto()
    NO_SUCH_NODE = auto()
    # Failures of the cluster that have a remedy of their own.
    BROKER_GONE = auto()
    NO_BROKER_ANSWERS = auto()
    TOO_FEW_BROKERS = auto()


#: The kinds that say that there is no such thing.
NO_SUCH_THING = (Kind.NOT_THERE, Kind.NO_SUCH_PARTITION, Kind.NO_SUCH_BROKER, Kind.NO_SUCH_NODE)


class Failure(Exception):
    """Something that was asked for cannot be done.

    `cause` says what happened and where, `remedy` what to try on any surface: terminal, log or web page.
    """

    #: The broker's error code and its message, if the broker has responded.
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


def plural(number: float, noun: str) -> str:
    """Return the noun that follows the number: "group" after 1, "groups" after 0 and 2."""
    return noun if number == 1 else f"{noun}s"


def counted(number: int, noun: str) -> str:
    """Return the number with its noun: "1 group", "2 groups"."""
    return f"{number} {plural(number, noun)}"


def did_you_mean(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return a suggestion for a word that is not known, or None when nothing is near."""
    from difflib import get_close_matches  # imported late: it takes 10 ms

    near = get_close_matches(word, list(known), n=3, cutoff=cutoff)
    if not near:
        return None
    return "did you mean " + " or ".join(repr(name) for name in near) + "?"
