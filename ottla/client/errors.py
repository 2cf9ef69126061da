"""The error of a command: what happened, where, what to try, and the exit code."""

from __future__ import annotations

from collections.abc import Iterable

OK = 0
FAILED = 1
USAGE = 2
UNHEALTHY = 3
TIMED_OUT = 124  # as timeout(1)
INTERRUPTED = 130  # as a shell reports SIGINT


class CommandFailed(Exception):
    """Ends a command. `cause` says what happened and where, `hint` what to try, `code` the broker's error code if any."""

    def __init__(self, cause: str, hint: str | None = None, exit_code: int = FAILED, code: int | None = None) -> None:
        super().__init__(cause)
        self.cause = cause
        self.hint = hint
        self.exit_code = exit_code
        self.code = code

    def text(self) -> str:
        return f"ottla: {self.cause}" + (f"\n  {self.hint}" if self.hint else "")


def did_you_mean(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """A suggestion for a word that is not known, or None when nothing is near."""
    from difflib import get_close_matches  # 10 ms that only mistakes pay

    near = get_close_matches(word, list(known), n=3, cutoff=cutoff)
    if not near:
        return None
    return "did you mean " + " or ".join(repr(name) for name in near) + "?"
