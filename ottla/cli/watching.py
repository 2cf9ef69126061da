"""The option `--watch` of all commands that list something: it runs the command again and again, and shows what it prints.

Each look is a run of the command with its own connection. If the cluster becomes unreachable, there is an error, and later
there are rows again. On a terminal a look replaces the one before; in a pipe one follows the other.
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

#: Home, and erase to the end: so nothing flashes between two looks.
HOME, ERASE_LINE, ERASE_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
EVERY_S_MIN = 0.1


def watch(look: Callable[[], int], every_s: float) -> NoReturn:
    """Run `look` until Ctrl-C, and show what it prints.

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
    """Return the lines that fit on the screen. If some do not fit, the last line says how many."""
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
