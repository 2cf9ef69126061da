"""Shows what a command prints again and again: `--watch` of everything that lists.

Each look is a run of the command with a connection of its own, so that a cluster that goes away and comes back is shown as what it is:
an error, and then its rows again. On a terminal the last look is replaced; a pipe gets one look after the other.
"""

from __future__ import annotations

import io
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from typing import NoReturn

from ottla.cli.errors import OUTPUT, USAGE, CommandFailed
from ottla.cli.hints import as_command_failed
from ottla.cli.output import printable
from ottla.client.failures import Failure

#: Home, and erase to the end: without a flash between two looks.
HOME, ERASE_LINE, ERASE_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
EVERY_S_MIN = 0.1


def watch(look: Callable[[], int], every_s: float) -> NoReturn:
    """Call `look` until Ctrl-C, and show what it prints.

    Raises:
        BrokenPipeError: the reader has gone.
        CommandFailed: `every_s` is too short, or the command was used wrongly.
    """
    if not every_s >= EVERY_S_MIN:
        raise CommandFailed(f"--every {every_s:g} is below {EVERY_S_MIN:g}", None, USAGE)
    on_terminal = sys.stdout.isatty()
    while True:
        if on_terminal:
            lines, size = _captured(look), shutil.get_terminal_size()
            head = f"every {every_s:g} s, {time.strftime('%H:%M:%S')}; Ctrl-C ends"
            sys.stdout.write(HOME + screen([head, "", *lines], size.lines - 1, size.columns) + ERASE_BELOW)
        else:
            _shown(look)
        sys.stdout.flush()
        if OUTPUT.is_dropped:
            raise BrokenPipeError
        time.sleep(every_s)


def screen(lines: list[str], height: int, width: int) -> str:
    """Return the lines as a screen shows them, and in the last one how many more there are."""
    if len(lines) > height > 0:
        lines = [*lines[: height - 1], f"... {len(lines) - height + 1} more lines"]
    return "".join(f"{line[:width]}{ERASE_LINE}\n" for line in lines)


def _captured(look: Callable[[], int]) -> list[str]:
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        _shown(look)
    return out.getvalue().splitlines()


def _shown(look: Callable[[], int]) -> None:
    try:
        look()
    except Failure as failure:
        failed = as_command_failed(failure)
        if failed.exit_code == USAGE:
            raise
        print(printable(failed.text(), keep="\n"), file=sys.stderr)
