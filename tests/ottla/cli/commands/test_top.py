"""`ottla top` against a node, and on a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from ottla.cli.errors import INTERRUPTED, USAGE
from ottla.cli.full_screen import ENTER, LEAVE
from tests.ottla.conftest import Cli, command
from tools.picture import last_screen

#: A program that looks at the cluster once, and then fails as only a bug does.
CRASH = """
import sys
from ottla.__main__ import main
from ottla.cli.commands import top
real, looks = top.look_at, []
async def look_at(*arguments):
    looks.append(1)
    if len(looks) > 1:
        raise ZeroDivisionError("a bug")
    return await real(*arguments)
top.look_at = look_at
sys.exit(main())
"""


@pytest.fixture(autouse=True)
def hang_ups() -> Iterator[None]:
    """Let SIGHUP end a process, also if the tests run under nohup: an ignored signal is inherited."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@dataclass
class Terminal:
    """A terminal on which a process runs, and its output. `alive` gets to its end when the process has ended."""

    process: subprocess.Popen[bytes]
    end: int
    line: int
    alive: int
    shown: str = ""

    def until(self, text: str) -> list[str]:
        """Read until a whole screen has this text. Return its lines."""
        while text not in "\n".join(lines := last_screen(self.shown)):
            assert self._read(), self.shown
        return lines

    def press(self, keys: str, text: str) -> list[str]:
        """Press keys, and wait for a later screen that has this text."""
        self.shown = ""
        os.write(self.end, keys.encode())
        return self.until(text)

    def ends(self) -> int:
        """Read until the process has ended. Return its exit code."""
        while self._read():
            continue
        return self.process.wait()

    def _read(self) -> bool:
        """Read the next output. Return False if the process has ended, and there is no more."""
        ready, _, _ = select.select([self.end, self.alive], [], [])
        if self.end in ready:
            self.shown += os.read(self.end, 65536).decode(errors="replace")
        return self.end in ready

    def resize(self, lines: int, columns: int) -> None:
        fcntl.ioctl(self.line, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.process.send_signal(signal.SIGWINCH)  # the kernel only sends the signal to the terminal's own session

    @property
    def echoes(self) -> bool:
        return bool(termios.tcgetattr(self.line)[3] & termios.ECHO)


@contextmanager
def terminal(arguments: Sequence[str], *, lines: int = 24, columns: int = 120) -> Iterator[Terminal]:
    """Run a command on a terminal of this size. At the end the terminal must have the same modes as before."""
    end, line = pty.openpty()
    alive, lives = os.pipe()
    fcntl.ioctl(line, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    before = termios.tcgetattr(line)
    environment = {name: value for name, value in os.environ.items() if name not in ("LINES", "COLUMNS")}
    with subprocess.Popen(
        arguments, stdin=line, stdout=line, stderr=line, env=environment, pass_fds=(lives,)
    ) as process:
        os.close(lives)
        try:
            yield Terminal(process, end, line, alive)
            assert process.poll() is not None, "the test waits for its end"
            assert termios.tcgetattr(line) == before
        finally:
            process.kill()
            for descriptor in (end, line, alive):
                os.close(descriptor)


def test_a_look_has_nodes_topics_and_groups(cli: Cli) -> None:
    topic = cli.topic(partitions=2)
    group = f"top-of-{topic}"
    cli.ok("produce", topic, stdin="a\nb\nc\n")
    cli.ok("group", "reset", group, "--topic", topic, "--to", "earliest")
    found = json.loads(cli.ok("top", "--once", "--every", "0.1", "-o", "json"))
    (mine,) = [row for row in found["topics"] if row["topic"] == topic]
    assert (mine["partitions"], mine["behind"], mine["bytes"] > 0) == (2, 0, True)
    (lag,) = [row["lag"] for row in found["groups"] if row["group"] == group]
    assert lag == 3
    assert found["nodes"][0]["leaders"] >= 2
    table = cli.ok("top", "--once", "--every", "0.1")
    assert "PRODUCE-P99-MS" in table and topic in table


def test_keys_choose_a_table_sort_it_and_quit(cli: Cli) -> None:
    cli.topic()
    arguments = command("top", "--every", "60", "-b", cli.bootstrap)
    with terminal(arguments, lines=16, columns=50) as shown:
        first = shown.until("GROUP")
        assert "1 node," in first[0] and "columns need more width" in first[1] and "h: help" in first[1]
        assert all(len(line) <= 50 for line in first) and len(first) < 16
        topics = shown.press("t", "topics by records_per_s, largest first")
        assert not any(line.startswith(("NODE", "GROUP")) for line in topics)
        shown.press("\x1b[D", "topics by behind, largest first")
        shown.press("r", "topics by behind, smallest first")
        shown.press("h", "pause; go on")
        shown.press("x ", "paused; topics by behind")
        shown.resize(16, 200)
        wide = shown.press("", "OUT-PER-S")
        assert "need more width" not in wide[1]
        os.write(shown.end, b"q")
        assert shown.ends() == 0
    assert shown.shown.endswith(LEAVE)


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, INTERRUPTED), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGHUP, -signal.SIGHUP)],
)
def test_a_terminal_gets_its_screen_and_its_echo_back_after_a_signal(
    cli: Cli, number: signal.Signals, code: int
) -> None:
    with terminal(command("top", "--every", "0.1", "-b", cli.bootstrap)) as shown:
        shown.until("NODE")
        assert shown.shown.startswith(ENTER)
        shown.process.send_signal(number)
        assert shown.ends() == code
    assert shown.shown.endswith(LEAVE)


def test_a_terminal_gets_its_screen_back_before_the_report_of_a_crash(cli: Cli) -> None:
    with terminal([sys.executable, "-c", CRASH, "top", "--every", "0.1", "-b", cli.bootstrap]) as shown:
        assert shown.ends() == 1
    _, left, report = shown.shown.partition(LEAVE)
    report = re.sub(r"\x1b\[[\d;]*m", "", report)  # Python 3.14 colours the report
    assert left and "ZeroDivisionError: a bug" in report and "\x1b" not in report


def test_ctrl_z_gives_the_terminal_back_until_the_program_goes_on(cli: Cli) -> None:
    with terminal(command("top", "--every", "60", "-b", cli.bootstrap)) as shown:
        shown.until("NODE")
        assert not shown.echoes
        shown.process.send_signal(signal.SIGTSTP)
        assert os.waitpid(shown.process.pid, os.WUNTRACED)[1] == (signal.SIGSTOP << 8 | 0x7F)
        assert shown.echoes
        shown.process.send_signal(signal.SIGCONT)
        assert any(line.startswith("NODE") for line in shown.press("", "NODE"))
        os.write(shown.end, b"q")
        assert shown.ends() == 0


def test_a_cluster_that_goes_away_is_said_and_q_still_quits(cli: Cli) -> None:
    down = CRASH.replace('ZeroDivisionError("a bug")', 'top.CommandFailed("cannot connect to \\x1b[2J")')
    with terminal([sys.executable, "-c", down, "top", "--every", "0.1", "-b", cli.bootstrap]) as shown:
        lines = shown.until("cannot connect to \\x1b[2J")
        assert any(line.startswith("NODE") for line in lines), "the last look stays"
        os.write(shown.end, b"q")
        assert shown.ends() == 0


def test_an_interval_of_nothing_is_wrong(cli: Cli) -> None:
    assert cli("top", "--every", "nan").code == USAGE
