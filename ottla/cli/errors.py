"""The end of a command: its exit code, the failure with its remedy, and standard output whose reader has gone."""

from __future__ import annotations

import os
import sys

from ottla.client.failures import Failure

OK = 0
FAILED = 1
USAGE = 2
UNHEALTHY = 3
TIMED_OUT = 124  # as in timeout(1)
INTERRUPTED = 130  # as a shell reports SIGINT


class CommandFailed(Failure):
    """The failure of a command, with its exit code. `remedy` is written for the command line."""

    def __init__(self, cause: str, remedy: str | None = None, exit_code: int = FAILED) -> None:
        super().__init__(cause, remedy)
        self.exit_code = exit_code

    def text(self) -> str:
        """Return the text for standard error. The remedy has a line of its own."""
        return f"ottla: {self.cause}" + (f"\n  {self.remedy}" if self.remedy else "")


def need_extra(extra: str, what: str) -> None:
    """Check that an extra is installed.

    Raises:
        CommandFailed: a package that the extra brings is not installed.
    """
    from ottla.server.extras import lacking  # imported late: few commands need an extra
    from ottla.server.installation import install

    if (package := lacking(extra)) is not None:
        raise CommandFailed(f"{what} needs the package {package}", install(extra))


class _Output:
    """The state of standard output: its reader may have gone, as in `ottla cluster health | head -1`.

    Then all further output is dropped, and the exit code is kept: a script that checks the exit codes of a whole pipe must not
    take an unhealthy cluster for a healthy one.
    """

    is_dropped = False

    def flush(self) -> None:
        """Write what is buffered, or drop it if the reader has gone."""
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            self.drop()

    def drop(self) -> None:
        """Drop all further output. Otherwise Python would raise the error again when it closes standard output."""
        self.is_dropped = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


OUTPUT = _Output()
