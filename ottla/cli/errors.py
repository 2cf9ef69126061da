"""The end of a command: its exit code, the failure with what to try, and standard output whose reader has gone."""

from __future__ import annotations

import os
import sys

from ottla.client.failures import Failure

OK = 0
FAILED = 1
USAGE = 2
UNHEALTHY = 3
TIMED_OUT = 124  # as timeout(1)
INTERRUPTED = 130  # as a shell reports SIGINT


class CommandFailed(Failure):
    """Ends a command with an exit code. `remedy` is in words of the command line."""

    def __init__(self, cause: str, remedy: str | None = None, exit_code: int = FAILED) -> None:
        super().__init__(cause, remedy)
        self.exit_code = exit_code

    def text(self) -> str:
        """Return the text for standard error: the remedy is on a line of its own."""
        return f"ottla: {self.cause}" + (f"\n  {self.remedy}" if self.remedy else "")


def need_extra(extra: str, what: str) -> None:
    """Check that an extra is installed.

    Raises:
        CommandFailed: a package that the extra brings is not installed.
    """
    from ottla.server.extras import lacking  # few commands need an extra
    from ottla.server.installation import install

    if (package := lacking(extra)) is not None:
        raise CommandFailed(f"{what} needs the package {package}", install(extra))


class _Output:
    """Whether the reader of standard output has gone, as of `ottla cluster health | head -1`.

    What is printed is dropped then, and the exit code is kept: a script that checks all codes of a pipe would otherwise read an
    unhealthy cluster as a healthy one.
    """

    is_dropped = False

    def flush(self) -> None:
        """Write what is buffered, or drop it if the reader has gone."""
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            self.drop()

    def drop(self) -> None:
        """Let all further output go nowhere. Python would raise the error again when it closes standard output."""
        self.is_dropped = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


OUTPUT = _Output()
