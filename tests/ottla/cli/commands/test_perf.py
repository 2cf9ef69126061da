"""`ottla perf` measures, and leaves nothing behind."""

from __future__ import annotations

import signal
import subprocess

import pytest

from ottla.cli.commands.perf import PREFIX
from ottla.cli.errors import FAILED, INTERRUPTED, USAGE
from tests.ottla.conftest import Cli, command


def left(cli: Cli) -> list[str]:
    return [str(row["topic"]) for row in cli.rows("topic", "list") if str(row["topic"]).startswith(PREFIX)]


def test_what_was_written_is_counted_with_percentiles_and_the_topic_is_gone_afterwards(cli: Cli) -> None:
    (row,) = cli.rows("perf", "produce", "-n", "3000", "-s", "100", "-p", "2")
    assert (row["what"], row["records"]) == ("produce", 3000)
    assert 0 < float(str(row["p50_ms"])) <= float(str(row["p99_ms"])) <= float(str(row["max_ms"]))
    (row,) = cli.rows("perf", "consume", "-n", "3000", "-s", "100")
    assert (row["what"], row["records"]) == ("consume", 3000)
    assert left(cli) == []


def test_a_topic_that_is_named_is_used_and_kept(cli: Cli) -> None:
    topic = cli.topic()
    (row,) = cli.rows("perf", "produce", topic, "-n", "50", "-s", "10", "--rate", "1000", "-z", "lz4")
    assert row["records"] == 50 and float(str(row["seconds"])) >= 0.049
    (row,) = cli.rows("perf", "consume", topic)
    assert row["records"] == 50
    acknowledged, end_to_end = cli.rows("perf", "latency", topic, "-n", "20")
    assert (acknowledged["what"], end_to_end["what"]) == ("acknowledged", "end to end")
    assert len(cli.ok("consume", topic, "-o", "hex").splitlines()) == 70


def test_ctrl_c_deletes_the_topic_of_its_own(cli: Cli) -> None:
    arguments = command("perf", "produce", "--rate", "10", "-b", cli.bootstrap)
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        assert running.stderr.readline().startswith(f"topic {PREFIX}")
        assert running.stderr.readline().startswith('{"progress"')  # by now it has written some records
        running.send_signal(signal.SIGINT)
        assert running.wait() == INTERRUPTED
    assert left(cli) == []


@pytest.mark.parametrize(
    "wrong", [["-n", "0"], ["-s", "-1"], ["-s", "9999999999"], ["--rate", "-1"], ["--rate", "nan"]]
)
def test_numbers_that_mean_nothing_are_usage_errors(cli: Cli, wrong: list[str]) -> None:
    assert cli("perf", "produce", *wrong).code == USAGE


def test_a_topic_that_is_not_there_is_not_made(cli: Cli) -> None:
    done = cli("perf", "consume", "no-such-topic")
    assert done.code == FAILED and "UNKNOWN_TOPIC_OR_PARTITION" in done.err
