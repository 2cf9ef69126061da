"""Commands read a topic while it is deleted and created again, shorter or longer than before: they report that, and no record
is missing.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import IO

import pytest

from tests.ottla.conftest import ROOT, Cli

BEFORE = ["old0", "old1", "old2"]
SAID = "was deleted and created again"


def recreate(cli: Cli, topic: str, values: Sequence[str]) -> None:
    """Delete and create the topic again. In the meantime a Fetch of the topic waits at the broker."""
    cli.ok("topic", "delete", topic, "--yes")
    cli.ok("topic", "create", topic)
    cli.ok("produce", topic, stdin="".join(f"{value}\n" for value in values))


def lines_of(stream: IO[str] | None, count: int) -> list[str]:
    assert stream is not None
    return [stream.readline().rstrip("\n") for _ in range(count)]


@pytest.mark.parametrize("count", [2, 7], ids=["shorter", "longer"])
@pytest.mark.parametrize("how", ["consume -f", "consume -f -g", "kafka-console-consumer"])
def test_all_records_of_the_new_topic_are_shown_and_it_is_said(cli: Cli, how: str, count: int) -> None:
    topic = cli.topic()
    cli.ok("produce", topic, stdin="".join(f"{value}\n" for value in BEFORE))
    command = [sys.executable, "-m", "ottla", "consume", topic, "-f", "-o", "value", "-b", cli.bootstrap]
    if how == "consume -f -g":
        command += ["-g", f"of-{topic}"]
    elif how == "kafka-console-consumer":
        command = [sys.executable, "-m", "ottla.cli.shims", how, "--bootstrap-server", cli.bootstrap, "--topic", topic]
        command.append("--from-beginning")
    after = [f"new{number}" for number in range(count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as reader:
        try:
            assert lines_of(reader.stdout, len(BEFORE)) == BEFORE
            recreate(cli, topic, after)
            assert lines_of(reader.stdout, count) == after
        finally:
            reader.send_signal(signal.SIGINT)
            _, said = reader.communicate(timeout=60)
    assert said.count(f"topic {topic} {SAID}: its records are read from the first one on") == 1, said
    assert "Traceback" not in said


@pytest.mark.parametrize("count", [2, 7], ids=["shorter", "longer"])
def test_a_copy_ends_because_its_offsets_are_those_of_other_records(cli: Cli, count: int) -> None:
    topic, target = cli.topic(), f"{cli.topic()}-copy"
    cli.ok("produce", topic, stdin="".join(f"{value}\n" for value in BEFORE))
    command = [sys.executable, "-m", "ottla", "topic", "copy", topic, target, "--follow", "-b", cli.bootstrap]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=ROOT) as copy:
        assert lines_of(copy.stderr, 1) == [f"created topic {target}"]
        cli.ok("consume", target, "-f", "-n", str(len(BEFORE)))
        recreate(cli, topic, [f"new{number}" for number in range(count)])
        _, said = copy.communicate(timeout=60)
    assert copy.returncode == 1
    assert f"topic {topic} {SAID} while it was copied" in said
    assert cli.ok("consume", target, "-o", "value").split() == BEFORE
