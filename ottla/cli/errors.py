"""The failure of a command: what happened, what to try, and the exit code."""

from __future__ import annotations

from ottla.client.errors import Failure

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
    from ottla.server.extras import install, lacking  # few commands need an extra

    if (package := lacking(extra)) is not None:
        raise CommandFailed(f"{what} needs the package {package}", install(extra))
