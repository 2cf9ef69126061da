"""The whole screen of a terminal, and keys as they are pressed.

Whatever ends the program, the terminal's former content comes back.

Ctrl-C, an exception, SIGTERM, a hang-up and Ctrl-\\ restore the screen, the cursor and the echo of keys. Ctrl-Z restores them
too, until the program continues. After `kill -9` the user has to type `reset`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

#: The terminal's alternate screen, without a cursor and without wrapping of long lines.
ENTER, LEAVE = "\x1b[?1049h\x1b[?25l\x1b[?7l", "\x1b[?7h\x1b[?25h\x1b[?1049l"
ENDS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
#: The bytes that a terminal sends for keys without a character, in both modes of the arrow keys.
SEQUENCES = {
    "\x1b[A": "up", "\x1b[B": "down", "\x1b[C": "right", "\x1b[D": "left", "\x1bOA": "up", "\x1bOB": "down", "\x1bOC": "right",
    "\x1bOD": "left", "\x1b[5~": "page-up", "\x1b[6~": "page-down", "\t": "tab",
}  # fmt: skip
#: This key changes nothing: the size of the terminal has changed.
RESIZED = ""
KEYS_AT_ONCE = 1024


def keys_in(typed: str) -> tuple[list[str], str]:
    """Split bytes from a terminal into keys, each a character or a name. Return also the beginning of an incomplete one."""
    found: list[str] = []
    while typed:
        if any(sequence.startswith(typed) and sequence != typed for sequence in SEQUENCES):
            break
        size = next((len(sequence) for sequence in SEQUENCES if typed.startswith(sequence)), 1)
        found.append(SEQUENCES.get(typed[:size], typed[:size]))
        typed = typed[size:]
    return found, typed


class FullScreen:
    """The screen of standard output, to be used within `shown`. `keys` has the keys of standard input if that is a terminal."""

    def __init__(self) -> None:
        self.keys: asyncio.Queue[str] = asyncio.Queue()
        self.has_keys = sys.stdin.isatty()
        self._typed = ""
        self._before: list[Any] | None = None
        self._is_open = False

    @contextmanager
    def shown(self) -> Iterator[FullScreen]:
        """Show the screen. At the end the former content is back."""
        loop = asyncio.get_running_loop()
        for number in ENDS:
            if signal.getsignal(number) != signal.SIG_IGN:  # nohup ignores SIGHUP
                loop.add_signal_handler(number, self._end, number)
        loop.add_signal_handler(signal.SIGTSTP, self._stop)
        loop.add_signal_handler(signal.SIGWINCH, self.keys.put_nowait, RESIZED)
        try:
            self._open()
            if self.has_keys:
                loop.add_reader(sys.stdin.fileno(), self._read)
            yield self
        finally:
            self._close()
            if self.has_keys:
                loop.remove_reader(sys.stdin.fileno())
            for number in (*ENDS, signal.SIGTSTP, signal.SIGWINCH):
                loop.remove_signal_handler(number)

    def _open(self) -> None:
        self._is_open = True
        if self.has_keys:
            self._before = termios.tcgetattr(sys.stdin.fileno())
            tty.setcbreak(sys.stdin.fileno())
        sys.stdout.write(ENTER)
        sys.stdout.flush()

    def _close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        if self._before is not None:
            with suppress(termios.error):  # the terminal is gone
                # Keys that were typed for this screen must not reach the shell.
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSAFLUSH, self._before)
        with suppress(OSError):
            sys.stdout.write(LEAVE)
            sys.stdout.flush()

    def _end(self, number: int) -> None:
        """End as the signal would end the process without a handler."""
        self._close()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _stop(self) -> None:
        """Stop until SIGCONT, as Ctrl-Z does without a handler."""
        self._close()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._open()
        self.keys.put_nowait(RESIZED)

    def _read(self) -> None:
        try:
            data = os.read(sys.stdin.fileno(), KEYS_AT_ONCE)
        except OSError:
            data = b""
        if not data:  # a hang-up: with nohup, its signal was ignored
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            self.keys.put_nowait("q")
            return
        found, self._typed = keys_in(self._typed + data.decode(errors="ignore"))
        for key in found:
            self.keys.put_nowait(key)
