"""Makes the pictures of terminals in docs/, every line of them printed by the real commands.

    docs/ottla.svg             three nodes, a topic, records, and a leader that is killed under load
    docs/pictures/top.svg      `ottla top` of three nodes under load
    docs/pictures/doctor.svg   `ottla doctor` while one of three nodes is down

python -m tools.picture [ottla] [top] [doctor]
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import shlex
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.console import Console
from rich.text import Text

from ottla.cli.watching import ERASE_BELOW, ERASE_LINE, HOME

ROOT = Path(__file__).parent.parent
STEPS = (
    ("ottla topic create orders --partitions 3", ""),
    ("ottla produce orders --key-separator :", "alice:3 apples\nbob:1 pear\nalice:2 plums\n"),
    ("ottla consume orders -o json", ""),
    ("ottla cluster info", ""),
)
#: The program of `make failover`.
FAILOVER = "python -m tools.failover"
#: The topics for `ottla top`, and the loads meanwhile.
BEFORE_TOP = ("ottla topic create orders -p 6", "ottla topic create payments -p 3", "ottla topic create clicks -p 12")
LOADS = (
    "ottla perf produce orders -n 1000000 --rate 800",
    "ottla perf produce clicks -n 1000000 --rate 300 -s 200",
    "ottla consume orders -f -g shipping",
)
TOP = "ottla top --admin 1@localhost:9292 --admin 2@localhost:9293 --admin 3@localhost:9294"
SCREENS = 4
#: The commands that give `ottla doctor` something to report.
BEFORE_DOCTOR = (
    "ottla topic create orders -p 3 -c min.insync.replicas=3",
    "ottla topic create drafts -r 1",
    "ottla topic create clicks -p 3 -c unclean.leader.election.enable=true",
)
#: The environment in which commands have their short names, as in an activated virtual environment.
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if name not in ("LINES", "COLUMNS")},
    "NO_COLOR": "1",
    "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
}
_WHOLE_SCREEN = re.compile(re.escape(HOME) + "(.*?)" + re.escape(ERASE_BELOW), re.DOTALL)


def shell(command: str, stdin: str = "") -> str:
    words = shlex.split(command)
    done = subprocess.run(words, input=stdin, capture_output=True, text=True, env=ENVIRONMENT, cwd=ROOT, check=True)
    # Lines of a client library about a killed node are left out: they belong into its own log.
    return "\n".join(line for line in (done.stderr + done.stdout).splitlines() if not line.startswith("%"))


def last_screen(shown: str) -> list[str]:
    """Return the lines of the last complete screen that `ottla top` has written to a terminal."""
    screens = _WHOLE_SCREEN.findall(shown)
    return [line.rstrip() for line in screens[-1].replace(ERASE_LINE, "").splitlines()] if screens else []


def on_terminal(command: str, width: int, lines: int, screens: int | None = None) -> str:
    """Return the output of a command to a terminal of this size: until its end, or until it has written `screens` complete
    screens.
    """
    end, line = pty.openpty()
    fcntl.ioctl(line, termios.TIOCSWINSZ, struct.pack("HHHH", lines, width, 0, 0))
    shown = b""
    with subprocess.Popen(
        shlex.split(command), stdin=line, stdout=line, stderr=line, env=ENVIRONMENT, cwd=ROOT
    ) as process:
        os.close(line)
        try:
            while screens is None or len(_WHOLE_SCREEN.findall(shown.decode(errors="replace"))) < screens:
                shown += os.read(end, 65536)
        except OSError:  # the process has ended
            assert screens is None, shown.decode(errors="replace")
        process.terminate()
    os.close(end)
    return shown.decode()


@contextmanager
def dev_cluster() -> Iterator[list[str]]:
    """Run `ottla dev`; yield the lines that it prints."""
    words = ["ottla", "dev"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT, cwd=ROOT) as nodes:
        assert nodes.stdout is not None
        shown: list[str] = []
        try:
            for line in nodes.stdout:
                shown.append(line.rstrip())
                if line.startswith("Ctrl-C"):
                    break
            yield shown
        finally:
            nodes.terminate()
            nodes.wait(30)


def picture_of_ottla(console: Console) -> None:
    with dev_cluster() as lines:
        prompt(console, "ottla dev", "")
        for line in lines:
            console.print(Text(line))
        for command, stdin in STEPS:
            prompt(console, command, stdin)
            console.print(Text(shell(command, stdin).rstrip()))
    prompt(console, FAILOVER, "")
    console.print(Text(shell(FAILOVER).rstrip()))


def picture_of_top(console: Console) -> None:
    with dev_cluster(), ExitStack() as stack:
        for command in BEFORE_TOP:
            shell(command)
        for command in LOADS:
            load = subprocess.Popen(
                shlex.split(command), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT, cwd=ROOT
            )
            stack.callback(load.wait)
            stack.callback(load.terminate)
        for line in last_screen(on_terminal(TOP, console.width, lines=26, screens=SCREENS)):
            console.print(Text(line))


def picture_of_doctor(console: Console) -> None:
    with dev_cluster() as lines:
        for command in BEFORE_DOCTOR:
            shell(command)
        victim = next(int(line.split()[-1]) for line in lines if "kill -9" in line)
        os.kill(victim, signal.SIGKILL)
        prompt(console, "ottla doctor", "")
        for line in on_terminal("ottla doctor", console.width, lines=60).splitlines():
            console.print(Text.from_ansi(line))


def prompt(console: Console, command: str, stdin: str) -> None:
    before = f"printf '{stdin!r}' | ".replace("'\"", "'").replace("''", "'") if stdin else ""
    console.print(Text.assemble(("\n$ ", "bold green"), (before + command, "bold")))


#: By picture: the function that makes it, its path, and its width in characters.
PICTURES: dict[str, tuple[Callable[[Console], None], Path, int]] = {
    "ottla": (picture_of_ottla, ROOT / "docs/ottla.svg", 112),
    "top": (picture_of_top, ROOT / "docs/pictures/top.svg", 130),
    "doctor": (picture_of_doctor, ROOT / "docs/pictures/doctor.svg", 118),
}


def main() -> None:
    for name in sys.argv[1:] or PICTURES:
        make, target, width = PICTURES[name]
        console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True)
        make(console)
        title = "ottla" if name == "ottla" else f"ottla {name}"
        # The web fonts that rich asks for are removed: a picture in a README loads nothing.
        svg = re.sub(r"@font-face \{.*?\}", "", console.export_svg(title=title), flags=re.DOTALL)
        target.write_text(svg.replace("Fira Code", "monospace"))
        print(target)


if __name__ == "__main__":
    main()
