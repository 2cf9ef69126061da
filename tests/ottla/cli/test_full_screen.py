"""The full screen of a terminal: keys that come in pieces, sizes, hang-ups, and the restored terminal at the end."""

from __future__ import annotations

import asyncio
import io
import os
import pty
import signal
import termios
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.cli import full_screen
from ottla.cli.full_screen import ENTER, LEAVE, RESIZED, FullScreen

pytestmark = pytest.mark.timeout(30)


@dataclass
class Terminal:
    """A terminal as standard input, and the text that was written to standard output."""

    #: The end of the terminal at which a user types.
    end: int
    line: int
    shown: io.StringIO = field(default_factory=io.StringIO)

    def echoes(self) -> bool:
        return bool(termios.tcgetattr(self.line)[3] & termios.ECHO)

    async def press(self, screen: FullScreen, keys: str, count: int) -> list[str]:
        os.write(self.end, keys.encode())
        return [await screen.keys.get() for _ in range(count)]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    end, line = pty.openpty()
    found = Terminal(end, line)
    with os.fdopen(os.dup(line)) as given:
        monkeypatch.setattr(full_screen, "sys", SimpleNamespace(stdin=given, stdout=found.shown))
        yield found
    for each in (found.end, found.line):
        if each >= 0:
            os.close(each)


async def test_keys_are_read_without_an_echo_and_the_terminal_is_as_it_was_at_the_end(terminal: Terminal) -> None:
    assert terminal.echoes()
    with FullScreen().shown() as screen:
        assert terminal.shown.getvalue() == ENTER and not terminal.echoes()
        assert await terminal.press(screen, "jé\x1b[A\x1b[6~\t", 5) == ["j", "é", "up", "page-down", "tab"]
    assert terminal.shown.getvalue() == ENTER + LEAVE and terminal.echoes()


async def test_a_key_that_comes_in_two_pieces_is_one_key(terminal: Terminal) -> None:
    with FullScreen().shown() as screen:
        assert await terminal.press(screen, "a\x1b[", 1) == ["a"]
        assert await terminal.press(screen, "Bb", 2) == ["down", "b"]


async def test_what_fails_within_it_is_raised_over_the_screen_that_was_there_before(terminal: Terminal) -> None:
    with pytest.raises(ZeroDivisionError), FullScreen().shown():
        raise ZeroDivisionError
    assert terminal.shown.getvalue().endswith(LEAVE) and terminal.echoes()


async def test_a_terminal_that_is_gone_quits_once_also_where_its_hang_up_is_ignored(terminal: Terminal) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with FullScreen().shown() as screen:
            os.close(terminal.end)
            terminal.end = -1
            assert await screen.keys.get() == "q"
            await asyncio.sleep(0)
            assert screen.keys.empty()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


async def test_a_change_of_its_size_is_a_key_that_changes_nothing(terminal: Terminal) -> None:
    with FullScreen().shown() as screen:
        os.kill(os.getpid(), signal.SIGWINCH)
        assert await screen.keys.get() == RESIZED
    assert signal.getsignal(signal.SIGWINCH) in (signal.SIG_DFL, signal.SIG_IGN)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP])
async def test_a_signal_that_ends_the_program_leaves_the_screen_first(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    before = signal.signal(number, signal.SIG_DFL)
    ended = asyncio.Event()
    sent: list[tuple[int, str, Any]] = []

    def end(pid: int, which: int) -> None:
        sent.append((which, terminal.shown.getvalue(), signal.getsignal(which)))
        ended.set()

    try:
        with FullScreen().shown():
            monkeypatch.setattr(full_screen.os, "kill", end)
            signal.raise_signal(number)
            await ended.wait()
            assert terminal.echoes()
        assert sent == [(number, ENTER + LEAVE, signal.SIG_DFL)]
        assert terminal.shown.getvalue() == ENTER + LEAVE, "it is left once"
    finally:
        signal.signal(number, before)


async def test_a_program_that_was_stopped_shows_its_screen_again(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """During Ctrl-Z the shell has the terminal, with its echo."""
    meanwhile: list[tuple[int, bool, str]] = []

    def stop(pid: int, which: int) -> None:
        meanwhile.append((which, terminal.echoes(), terminal.shown.getvalue()))

    with FullScreen().shown() as screen:
        monkeypatch.setattr(full_screen.os, "kill", stop)
        signal.raise_signal(signal.SIGTSTP)
        assert await screen.keys.get() == RESIZED
        assert meanwhile == [(signal.SIGSTOP, True, ENTER + LEAVE)]
        assert not terminal.echoes()
    assert terminal.shown.getvalue() == (ENTER + LEAVE) * 2 and terminal.echoes()


async def test_without_a_terminal_there_are_no_keys_and_the_screen_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(full_screen, "sys", SimpleNamespace(stdin=io.StringIO("q"), stdout=shown))
    with FullScreen().shown() as screen:
        assert not screen.has_keys and screen.keys.empty()
    assert shown.getvalue() == ENTER + LEAVE
