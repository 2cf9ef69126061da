"""`make compat ARGS=faults`: the examples of docs/TESTING.md in other languages, at `ottla dev --faults`, each if its tool is
installed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.compat.librdkafka import Outcome
from tools.apache_kafka import jars

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "TESTING.md"
EXAMPLE = re.compile(r"```(?:bash|java|go|javascript)\n(?:#|//) (\S+)\n(.*?)```", re.DOTALL)
#: The addresses in the page.
PORT, BOOTSTRAP = "127.0.0.1:9491", "127.0.0.1:9092"
PROGRAM_SECONDS_MAX = 300


class Tool(NamedTuple):
    """A program that runs an example, if it is installed."""

    program: str
    command: Callable[[str], list[str]]


TOOLS: Mapping[str, Tool] = {
    "faults.sh": Tool("curl", lambda file: ["bash", "-e", "-o", "pipefail", file]),
    "Faults.java": Tool("java", lambda file: ["java", "-cp", jars.classpath(), file]),
    "faults.go": Tool("go", lambda file: ["go", "run", file]),
    "faults.mjs": Tool("node", lambda file: ["node", file]),
}


def examples() -> dict[str, str]:
    """Return the examples of the page by the names of their files."""
    return dict(EXAMPLE.findall(PAGE.read_text()))


@contextmanager
def dev(directory: Path) -> Iterator[dict[str, Any]]:
    """Run a node with faults, on free ports; yield what `ottla dev` says about it."""
    command = [sys.executable, "-m", "ottla", "dev", "--nodes", "1", "--base-port", "0", "--dir", str(directory)]
    with subprocess.Popen([*command, "--json", "--faults"], stdout=subprocess.PIPE, cwd=ROOT, text=True) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def outcomes(folder: Path, report: Callable[[Outcome], Outcome]) -> list[Outcome]:
    """Return an outcome for each example whose tool is installed. Java needs Apache Kafka's client, too."""
    found = []
    with dev(folder / "node") as up:
        for name, text in examples().items():
            tool = TOOLS[name]
            if shutil.which(tool.program) is None or (tool.program == "java" and jars.missing()):
                print(f"the example {name} is left out: {tool.program}, or what it needs, is not there")
                continue
            began = time.monotonic()
            why = run(
                folder, name, text.replace(PORT, up["faults"].rpartition("/")[2]).replace(BOOTSTRAP, up["bootstrap"])
            )
            result = "FAIL" if why else "PASS"
            found.append(report(Outcome(f"faults-{tool.program}", result, time.monotonic() - began, why)))
    return found


def run(folder: Path, name: str, text: str) -> str:
    """Run the example; return its output if it has failed."""
    (folder / name).write_text(text)
    (folder / ".curlrc").write_text("fail-with-body\nsilent\n")  # otherwise curl ends with 0 after an error of HTTP
    done = subprocess.run(
        TOOLS[name].command(name),
        cwd=folder,
        env={**os.environ, "CURL_HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS_MAX,
    )
    return (done.stderr + done.stdout)[-500:] if done.returncode else ""
