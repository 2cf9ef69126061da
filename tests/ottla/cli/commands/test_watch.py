"""The options --watch and -o of each command that lists, and the lag of a group."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
import yaml

from ottla.cli.errors import FAILED, INTERRUPTED, USAGE
from tests.ottla.conftest import Cli, command

LISTS = [
    ["topic", "list"], ["group", "list"], ["broker", "list"], ["broker", "log-dirs"], ["cluster", "info"],
    ["user", "list"], ["quota", "list"], ["txn", "list"], ["feature", "list"], ["move", "show"], ["partition", "list"],
]  # fmt: skip


@pytest.mark.parametrize("words", LISTS, ids=" ".join)
def test_each_list_is_also_yaml(cli: Cli, words: list[str]) -> None:
    assert len(yaml.safe_load(cli.ok(*words, "-o", "yaml"))) == len(cli.rows(*words))


def test_a_watch_looks_again_and_ends_with_ctrl_c(cli: Cli) -> None:
    arguments = command("broker", "list", "--watch", "--every", "0.1", "-o", "json", "-b", cli.bootstrap)
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        looks = [json.loads(watching.stdout.readline())["broker"] for _ in range(3)]
        watching.send_signal(signal.SIGINT)
        assert watching.wait() == INTERRUPTED
        assert watching.stderr is not None and watching.stderr.read() == ""
    assert looks == looks[:1] * 3


def test_a_watch_of_a_cluster_that_is_away_says_so_at_each_look() -> None:
    arguments = command("topic", "list", "--watch", "--every", "0.1", "-b", "localhost:1")
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
        assert watching.stderr is not None
        lines = [watching.stderr.readline() for _ in range(4)]
        watching.send_signal(signal.SIGINT)
        assert watching.wait() == INTERRUPTED
    assert lines[0].startswith("ottla: cannot connect to localhost:1") and lines[2] == lines[0]


def test_an_interval_of_nothing_is_wrong(cli: Cli) -> None:
    assert cli("topic", "list", "--watch", "--every", "0").code == USAGE


def test_the_lag_of_a_group_and_its_picture(cli: Cli, tmp_path: Path) -> None:
    topic, picture = cli.topic(partitions=2), tmp_path / "lag.svg"
    group = f"lag-of-{topic}"
    cli.ok("produce", topic, "--partition", "1", stdin="a\nb\nc\n")
    cli.ok("group", "reset", group, "--topic", topic, "--to", "earliest")
    done = cli("group", "lag", group, "--plot", str(picture), "-o", "json")
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert [(row["partition"], row["committed"], row["end"], row["lag"]) for row in rows] == [
        (0, 0, 0, 0),
        (1, 0, 3, 3),
    ]
    assert len(re.findall("<rect x", picture.read_text())) == 2
    assert "3 records behind in 2 partitions" in cli("group", "lag", group).err


def test_a_lag_that_cannot_be_shown(cli: Cli, tmp_path: Path) -> None:
    topic = cli.topic()
    group = f"lag-of-{topic}"
    cli.ok("group", "reset", group, "--topic", topic, "--to", "earliest")
    done = cli("group", "lag", group + "x")
    assert done.code == FAILED and f"did you mean '{group}'" in done.err
    done = cli("group", "lag", group, "--plot", str(tmp_path / "no" / "such" / "folder.svg"))
    assert done.code == FAILED and "cannot be written: No such file or directory" in done.err
    assert not os.listdir(tmp_path)
