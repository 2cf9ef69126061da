"""Runs the programs of third-party clients at a node: each prints a line for each of its checks."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from tests.compat.ecosystem.clients import CLIENTS, Client
from tests.compat.ecosystem.installed import NotInstalled, command
from tests.compat.ecosystem.results import Result
from tests.compat.librdkafka import Outcome

PROGRAM_SECONDS_MAX = 300
#: The node's settings: groups do not wait for more consumers, and topics have one replica.
NODE = {"num_partitions": "1", "auto_create_topics_enable": "true"}


def outcomes(names: Iterable[str], bootstrap: str, logs: Path) -> Iterator[tuple[Outcome, Result | None]]:
    """Run the clients of these names, or all; yield the outcome of each, and its result if it could be run."""
    wanted = set(names)
    for client in CLIENTS:
        if not wanted or client.name in wanted:
            yield _run(client, bootstrap, logs)


def _run(client: Client, bootstrap: str, logs: Path) -> tuple[Outcome, Result | None]:
    begin = time.monotonic()
    try:
        words = command(client)
    except NotInstalled as why:
        return Outcome(client.name, "SKIP", time.monotonic() - begin, str(why)), None
    begin = time.monotonic()
    output, code = _output([*words, bootstrap])
    (logs / f"{client.name.replace('/', '-')}.log").write_text(output)
    rows = [line.partition(" ") for line in output.splitlines()]
    found = Result(client.version, f"{datetime.now(UTC):%Y-%m-%d}")
    found.passed = [text for word, _, text in rows if word == "PASS"]
    found.failed = [text for word, _, text in rows if word == "FAIL"]
    if code and not found.failed:
        found.failed = [f"the program ended with {code}"]
    result = "FAIL" if found.failed or not found.passed else "PASS"
    return Outcome(client.name, result, time.monotonic() - begin, "; ".join(found.failed)), found


def _output(words: list[str]) -> tuple[str, int]:
    """Return the program's output on both streams, and its exit code."""
    try:
        done = subprocess.run(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PROGRAM_SECONDS_MAX
        )
    except subprocess.TimeoutExpired as late:
        printed = late.stdout or b""
        text = printed.decode(errors="replace") if isinstance(printed, bytes) else printed
        return f"{text}\nFAIL the program: not done after {PROGRAM_SECONDS_MAX} s\n", 1
    return done.stdout, done.returncode
