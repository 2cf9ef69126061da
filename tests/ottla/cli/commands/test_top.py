"""`ottla top` against a node."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess

from ottla.cli.commands.top import ENTER, LEAVE
from ottla.cli.errors import INTERRUPTED, USAGE
from tests.ottla.conftest import Cli, command


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


def test_a_terminal_gets_its_screen_back_after_ctrl_c(cli: Cli) -> None:
    ours, theirs = pty.openpty()
    arguments = command("top", "--every", "0.1", "-b", cli.bootstrap)
    with subprocess.Popen(arguments, stdin=theirs, stdout=theirs, stderr=theirs) as running:
        os.close(theirs)
        shown = b""
        while shown.count(b"NODE") < 2:
            shown += os.read(ours, 65536)
        running.send_signal(signal.SIGINT)
        assert running.wait() == INTERRUPTED
        while LEAVE.encode() not in shown:
            shown += os.read(ours, 65536)
    os.close(ours)
    assert shown.startswith(ENTER.encode())


def test_an_interval_of_nothing_is_wrong(cli: Cli) -> None:
    assert cli("top", "--every", "nan").code == USAGE
