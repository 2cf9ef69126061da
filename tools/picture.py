"""Makes docs/ottla.svg: a terminal with the first five minutes, every line of it printed by the real commands.

python -m tools.picture
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

from rich.console import Console
from rich.text import Text

TARGET = Path(__file__).parent.parent / "docs" / "ottla.svg"
WIDTH = 112
STEPS = (
    ("ottla topic create orders --partitions 3", ""),
    ("ottla produce orders --key-separator :", "alice:3 apples\nbob:1 pear\nalice:2 plums\n"),
    ("ottla consume orders -o json", ""),
    ("ottla config set topic orders retention.ms=3600000", ""),
    ("ottla cluster info", ""),
    ("ottla bench --records 200000", ""),
)


def shell(command: str, stdin: str, bootstrap: str) -> str:
    words = [sys.executable, "-m", "ottla.main", *command.split()[1:]]
    env = {**os.environ, "OTTLA_BOOTSTRAP": bootstrap, "NO_COLOR": "1"}
    done = subprocess.run(words, input=stdin, capture_output=True, text=True, env=env)
    return done.stderr + done.stdout


def main() -> None:
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    node = subprocess.Popen([sys.executable, "-m", "ottla.main", "dev"], stdout=subprocess.PIPE, text=True)
    assert node.stdout is not None
    said: list[str] = []
    ready = threading.Event()

    def listen() -> None:
        assert node.stdout is not None
        for line in node.stdout:
            said.append(line.rstrip())
            if "Ctrl-C" in line:
                ready.set()
        ready.set()

    threading.Thread(target=listen, daemon=True).start()
    try:
        ready.wait(30)
        prompt(console, "ottla dev", "")
        console.print(Text("\n".join(said)))
        for command, stdin in STEPS:
            prompt(console, command, stdin)
            console.print(Text(shell(command, stdin, "127.0.0.1:9092").rstrip()))
    finally:
        node.terminate()
        node.wait(30)
    # Without the web fonts that rich asks for: a picture in a README loads nothing.
    svg = re.sub(r"@font-face \{.*?\}", "", console.export_svg(title="ottla"), flags=re.DOTALL)
    TARGET.write_text(svg.replace("Fira Code", "monospace"))
    print(TARGET)


def prompt(console: Console, command: str, stdin: str) -> None:
    before = f"printf '{stdin!r}' | ".replace("'\"", "'").replace("''", "'") if stdin else ""
    console.print(Text.assemble(("\n$ ", "bold green"), (before + command, "bold")))


if __name__ == "__main__":
    main()
