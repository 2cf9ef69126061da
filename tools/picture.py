"""Makes docs/ottla.svg: a terminal with three nodes, a topic, records, and a leader killed under load; every line printed by the real commands.

python -m tools.picture
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parent.parent
TARGET = ROOT / "docs" / "ottla.svg"
WIDTH = 112
STEPS = (
    ("ottla topic create orders --partitions 3", ""),
    ("ottla produce orders --key-separator :", "alice:3 apples\nbob:1 pear\nalice:2 plums\n"),
    ("ottla consume orders -o json", ""),
    ("ottla cluster info", ""),
)
#: What `make failover` runs.
FAILOVER = "python -m tools.failover"
#: The commands by their names, as in an activated virtual environment.
ENVIRONMENT = {
    **os.environ,
    "NO_COLOR": "1",
    "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
}


def shell(command: str, stdin: str = "") -> str:
    words = shlex.split(command)
    done = subprocess.run(words, input=stdin, capture_output=True, text=True, env=ENVIRONMENT, cwd=ROOT, check=True)
    # What a client library has to say about a killed node is for its own log.
    return "\n".join(line for line in (done.stderr + done.stdout).splitlines() if not line.startswith("%"))


def main() -> None:
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    nodes = subprocess.Popen(["ottla", "dev"], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT, cwd=ROOT)
    assert nodes.stdout is not None
    try:
        prompt(console, "ottla dev", "")
        for line in nodes.stdout:
            console.print(Text(line.rstrip()))
            if line.startswith("Ctrl-C"):
                break
        for command, stdin in STEPS:
            prompt(console, command, stdin)
            console.print(Text(shell(command, stdin).rstrip()))
    finally:
        nodes.terminate()
        nodes.wait(30)
    prompt(console, FAILOVER, "")
    console.print(Text(shell(FAILOVER).rstrip()))
    # Without the web fonts that rich asks for: a picture in a README loads nothing.
    svg = re.sub(r"@font-face \{.*?\}", "", console.export_svg(title="ottla"), flags=re.DOTALL)
    TARGET.write_text(svg.replace("Fira Code", "monospace"))
    print(TARGET)


def prompt(console: Console, command: str, stdin: str) -> None:
    before = f"printf '{stdin!r}' | ".replace("'\"", "'").replace("''", "'") if stdin else ""
    console.print(Text.assemble(("\n$ ", "bold green"), (before + command, "bold")))


if __name__ == "__main__":
    main()
