"""`ottla topic copy` against nodes: the parts of a record that it keeps, how it goes on after an end, and its rejections."""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import time

import pytest
from confluent_kafka import Producer

from ottla.cli.errors import FAILED, INTERRUPTED, TIMED_OUT, USAGE
from ottla.testing import Cluster
from tests.ottla.conftest import Cli, command

WAIT_SECONDS_MAX = 30
#: The time limit of each step of a copy that is to fail. It is longer than the pauses of a busy machine.
STEP_SECONDS = 8


def records(cli: Cli, topic: str) -> list[dict[str, object]]:
    """Return all records with all their fields except for the name of their topic."""
    lines = cli.ok("consume", topic, "-o", "json", "--isolation", "read_committed").splitlines()
    found = [{name: value for name, value in json.loads(line).items() if name != "topic"} for line in lines]
    return sorted(found, key=lambda row: (row["partition"], row["offset"]))


def write(cli: Cli, topic: str, numbers: range, partitions: int = 2) -> None:
    lines = [
        {
            "partition": number % partitions,
            "timestamp": 1_700_000_000_000 + number,
            "key_base64": "/w==",
            "value": f"v{number}",
            "headers": [{"key": "h", "value_base64": "gA=="}],
        }
        for number in numbers
    ]
    cli.ok("produce", topic, "-i", "json", stdin="\n".join(map(json.dumps, lines)))


def wait_for(cli: Cli, topic: str, count: int) -> None:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while len(records(cli, topic)) < count:
        assert time.monotonic() < deadline, f"{topic} has no {count} records"
        time.sleep(0.05)


def test_a_copy_has_the_same_records_and_goes_on_where_it_was(cli: Cli) -> None:
    source = cli.topic(partitions=2)
    target = f"{source}-copy"
    cli.ok("config", "set", "topic", source, "max.message.bytes=777777")
    write(cli, source, range(20))
    done = cli("topic", "copy", source, target, "--dry-run")
    assert f"would create {target} and copy 20 records" in done.err
    assert "20 records copied" in cli("topic", "copy", source, target).err
    assert records(cli, target) == records(cli, source)
    assert "777777" in cli.ok("config", "get", "topic", target, "max.message.bytes")
    write(cli, source, range(20, 30))
    assert "go on with" in cli("topic", "copy", source, target, "--dry-run").err
    assert "10 records copied" in cli("topic", "copy", source, target, "-z", "lz4").err
    assert "0 records copied" in cli("topic", "copy", source, target).err
    assert records(cli, target) == records(cli, source)


@pytest.mark.ours
def test_the_copy_of_a_table_is_no_table(cli: Cli) -> None:
    source = cli.topic()
    target = f"{source}-copy"
    cli.ok("config", "set", "topic", source, "ottla.table.commit.interval.ms=5000")
    cli.ok("topic", "copy", source, target)
    assert "60000" in cli.ok("config", "get", "topic", target, "ottla.table.commit.interval.ms")


def test_offsets_are_kept_where_the_source_has_no_records(cli: Cli) -> None:
    source = cli.topic()
    target = f"{source}-copy"
    write(cli, source, range(10), 1)
    producer = Producer({"bootstrap.servers": cli.bootstrap, "transactional.id": f"id-of-{source}"})
    producer.init_transactions(WAIT_SECONDS_MAX)
    for committed in (True, False, True):
        producer.begin_transaction()
        producer.produce(source, f"committed {committed}")
        producer.flush(WAIT_SECONDS_MAX)  # an abort drops records that were not sent yet
        (producer.commit_transaction if committed else producer.abort_transaction)(WAIT_SECONDS_MAX)
    cli.ok("topic", "delete-records", source, "--before", "7")
    cli.ok("topic", "copy", source, target)
    assert [row["offset"] for row in records(cli, target)] == [7, 8, 9, 10, 14]
    assert records(cli, target) == records(cli, source)
    ends = [
        (row["first_offset"], row["next_offset"])
        for name in (source, target)
        for row in cli.rows("topic", "describe", name)
    ]
    assert ends == [(7, 16), (7, 16)]
    write(cli, source, range(3), 1)
    cli.ok("topic", "copy", source, target)
    assert records(cli, target) == records(cli, source)


def test_a_target_with_other_records_is_not_written_to(cli: Cli) -> None:
    source, target = cli.topic(), cli.topic()
    write(cli, source, range(5), 1)
    cli.ok("produce", target, stdin="other\n")
    before = records(cli, target)
    done = cli("topic", "copy", source, target)
    assert done.code == FAILED and "has another record at offset 0" in done.err and "another target" in done.err
    cli.ok("produce", target, stdin="x\n" * 9)
    assert "ends at offset 10" in cli("topic", "copy", source, target).err
    assert records(cli, target)[:1] == before


def test_what_cannot_be_copied_is_refused(cli: Cli) -> None:
    source, other = cli.topic(partitions=2), cli.topic()
    assert cli("topic", "copy", source, source).code == USAGE
    assert "has 1 partition," in cli("topic", "copy", source, other).err
    done = cli("topic", "copy", source + "x", other)
    assert done.code == FAILED and "did you mean" in done.err
    assert "INVALID_TOPIC_EXCEPTION" in cli("topic", "copy", source, "bad name!").err
    assert "INVALID_REPLICATION_FACTOR" in cli("topic", "copy", source, "cli-many", "-r", "99").err
    away = cli("topic", "copy", source, "t", "--to", "localhost:1")
    assert away.code in (FAILED, TIMED_OUT) and "localhost:1" in away.err


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_a_copy_that_follows_is_stopped_and_goes_on(cli: Cli, stop: int) -> None:
    source = cli.topic()
    target = f"{source}-copy"
    write(cli, source, range(5), 1)
    arguments = command("topic", "copy", source, target, "--follow", "-b", cli.bootstrap)
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as copying:
        assert copying.stderr is not None
        assert copying.stderr.readline() == f"created topic {target}\n"
        write(cli, source, range(5, 9), 1)
        wait_for(cli, target, 9)
        write(cli, source, range(9, 10), 1)
        wait_for(cli, target, 10)
        copying.send_signal(stop)
        code = copying.wait()
        if stop == signal.SIGINT:
            # The last record is already in the target when its acknowledgement has not come yet.
            assert code == INTERRUPTED
            assert re.search("stopped after (9|10) records; the same command goes on", copying.stderr.read())
    write(cli, source, range(10, 13), 1)
    assert "3 records copied" in cli("topic", "copy", source, target).err
    assert records(cli, target) == records(cli, source)


@pytest.mark.chaos
def test_a_full_disk_ends_a_copy_with_its_reason_and_it_goes_on_when_there_is_room(cli: Cli) -> None:
    source = cli.topic(partitions=2)
    write(cli, source, range(30))
    with Cluster(1) as other:
        arguments = ("topic", "copy", source, "full", "--to", other.bootstrap)
        cli.ok(*arguments)
        cli.ok("produce", source, "-z", "none", stdin=(random.Random(1).randbytes(25_000).hex() + "\n") * 10)
        other.disk_full(1)
        done = cli(*arguments, "--timeout", f"{STEP_SECONDS}")
        assert done.code in (FAILED, TIMED_OUT), done.err
        assert "STORAGE" in done.err and "\n  " in done.err
        other.disk_full(1, full=False)
        assert "all 40 offsets" in cli(*arguments).err
        assert records(Cli(other.bootstrap), "full") == records(cli, source)


@pytest.mark.chaos
def test_a_cluster_that_goes_away_ends_a_copy_with_its_address(cli: Cli) -> None:
    source = cli.topic()
    write(cli, source, range(5), 1)
    with Cluster(1) as other:
        arguments = ("topic", "copy", source, "gone", "--to", other.bootstrap, "--follow")
        running = subprocess.Popen(
            command(*arguments, "--timeout", f"{STEP_SECONDS}", "-b", cli.bootstrap), stderr=subprocess.PIPE, text=True
        )  # the command ends by itself
        assert running.stderr is not None and running.stderr.readline() == "created topic gone\n"
        wait_for(Cli(other.bootstrap), "gone", 5)
        other.kill(1)
        write(cli, source, range(5, 9), 1)
        _, error = running.communicate(timeout=WAIT_SECONDS_MAX)
    assert running.returncode in (FAILED, TIMED_OUT) and other.bootstrap in error and "Traceback" not in error
