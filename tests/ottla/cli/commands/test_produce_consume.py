"""`ottla produce` and `ottla consume` against a node."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest

from ottla.cli.errors import FAILED, INTERRUPTED, USAGE
from tests.ottla.conftest import ROOT, Cli, command

LINES = [
    {"key": "k1", "value": "plain", "timestamp": 1_700_000_000_000, "partition": 0},
    {"key": None, "value": None, "timestamp": 1_700_000_000_001, "partition": 1},
    {"key": "", "value": "", "timestamp": 1_700_000_000_002, "partition": 2},
    {"key": "ü", "value_base64": "/wD/", "timestamp": 1_700_000_000_003, "partition": 1},
    {
        "key": "h",
        "value": "with headers",
        "timestamp": 1_700_000_000_004,
        "partition": 1,
        "headers": [{"key": "trace", "value": "a"}, {"key": "trace", "value": "b"}, {"key": "none", "value": None}],
    },
]


def as_input(lines: list[dict[str, object]]) -> str:
    return "".join(json.dumps(line) + "\n" for line in lines)


def without_place(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    kept = [{name: value for name, value in row.items() if name not in ("topic", "offset")} for row in rows]
    return sorted(kept, key=lambda row: str(row["timestamp"]))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_json_lines_make_a_round_trip_through_two_topics(cli: Cli, codec: str) -> None:
    first, second = cli.topic(partitions=3), cli.topic(partitions=3)
    cli.ok("produce", first, "-i", "json", "-z", codec, stdin=as_input(LINES))
    consumed = cli.ok("consume", first, "-o", "json")
    assert without_place([json.loads(line) for line in consumed.splitlines()]) == LINES
    cli.ok("produce", second, "-i", "json", stdin=consumed)
    assert without_place(cli.rows("consume", second)) == LINES


def test_text_lines_are_values_and_may_have_keys(cli: Cli) -> None:
    topic = cli.topic()
    cli.ok("produce", topic, stdin="one\r\n\nthree")
    cli.ok("produce", topic, "--key-separator", ":", "-H", "source=test", stdin="a:1\nb:2:3\n")
    cli.ok("produce", topic, "-k", "fixed", stdin="last\n")
    rows = [(row["key"], row["value"]) for row in cli.rows("consume", topic)]
    assert rows == [(None, "one"), (None, ""), (None, "three"), ("a", "1"), ("b", "2:3"), ("fixed", "last")]
    assert cli.rows("consume", topic)[3]["headers"] == [{"key": "source", "value": "test"}]


def test_output_formats(cli: Cli) -> None:
    topic = cli.topic()
    cli.ok("produce", topic, "--key-separator", "=", stdin=b"k=\xff\x00v\n")
    assert cli("consume", topic).raw == b"k\t\xff\x00v\n"
    assert cli("consume", topic, "-o", "value").raw == b"\xff\x00v\n"
    assert cli.ok("consume", topic, "-o", "hex") == "6b\tff0076\n"


def test_where_to_begin_and_when_to_stop(cli: Cli) -> None:
    topic = cli.topic()
    start = 1_700_000_000_000
    cli.ok("produce", topic, "-i", "json", stdin=as_input([{"value": n, "timestamp": start + n} for n in range(10)]))
    for arguments, expected in [
        (["--from", "earliest"], range(10)),
        (["--from", "latest"], []),
        (["--from", "7"], range(7, 10)),
        (["--from", "99"], []),
        (["--from", "-2"], range(8, 10)),
        (["--from", f"@{start + 4}"], range(4, 10)),
        (["--from", "2023-11-14T22:13:20.009Z"], [9]),
        (["--from", "2030-01-01"], []),
        (["--from", "2", "-n", "3"], range(2, 5)),
    ]:
        assert cli.ok("consume", topic, "-o", "value", *arguments).split() == [str(n) for n in expected], arguments
    nonsense = cli("consume", topic, "--from", "yesterday")
    assert nonsense.code == USAGE and "yesterday" in nonsense.err


def test_following_shows_what_comes_and_ends_with_ctrl_c(cli: Cli) -> None:
    topic = cli.topic()
    cli.ok("produce", topic, stdin="before\n")
    arguments = command("consume", topic, "--follow", "-o", "value", "-b", cli.bootstrap)
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as ottla:
        assert ottla.stdout is not None
        assert ottla.stdout.readline() == "before\n"
        cli.ok("produce", topic, stdin="after\n")
        assert ottla.stdout.readline() == "after\n"
        ottla.send_signal(signal.SIGINT)
        _, said = ottla.communicate(timeout=30)
    assert (ottla.returncode, said) == (INTERRUPTED, "")


def test_lines_are_sent_while_the_input_is_still_open_and_ctrl_c_ends_it(cli: Cli) -> None:
    topic = cli.topic()
    arguments = command("produce", topic, "-b", cli.bootstrap)
    with (
        subprocess.Popen(arguments, stdin=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as ottla,
        subprocess.Popen(
            command("consume", topic, "--follow", "-n", "1", "-o", "value", "-b", cli.bootstrap),
            stdout=subprocess.PIPE,
            cwd=ROOT,
        ) as reader,
    ):
        assert ottla.stdin is not None and ottla.stderr is not None and reader.stdout is not None
        ottla.stdin.write(b"first\nsecond has no end yet")
        ottla.stdin.flush()
        assert reader.stdout.read() == b"first\n"
        ottla.send_signal(signal.SIGINT)
        assert ottla.wait(30) == INTERRUPTED
        assert ottla.stderr.read() == b""


def test_a_reader_that_has_seen_enough_is_no_failure(cli: Cli) -> None:
    topic = cli.topic()
    cli.ok("produce", topic, stdin="line\n" * 200_000)
    arguments = command("consume", topic, "-b", cli.bootstrap)
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as ottla:
        assert ottla.stdout is not None and ottla.stderr is not None
        ottla.stdout.readline()
        ottla.stdout.close()
        assert ottla.wait(30) == 0
        assert ottla.stderr.read() == b""


@pytest.mark.parametrize(
    "arguments, line, said",
    [
        (["-i", "json"], "{oops", "line 2"),
        (["-i", "json"], '{"vlaue": 1}', "vlaue"),
        (["-i", "json"], '{"value": 1, "partition": 17}', "no partition 17"),
        (["--key-separator", "|"], "no key here", "key separator"),
    ],
)
def test_a_wrong_line_ends_it_with_the_line_number(cli: Cli, arguments: list[str], line: str, said: str) -> None:
    topic = cli.topic()
    good = '{"key": "k", "value": "|"}'
    done = cli("produce", topic, *arguments, stdin=f"{good}\n{line}\n")
    assert done.code in (FAILED, USAGE) and said in done.err


def test_a_record_that_is_too_large_says_what_to_raise(cli: Cli) -> None:
    topic = cli.topic()
    done = cli("produce", topic, stdin="x" * 1_200_000)
    assert done.code == FAILED and "MESSAGE_TOO_LARGE" in done.err and "max.message.bytes" in done.err


def test_a_partition_that_is_not_there(cli: Cli) -> None:
    topic = cli.topic()
    assert "no partition 3" in cli("produce", topic, "-p", "3", stdin="x\n").err
    done = cli("consume", topic, "-p", "3")
    assert done.code == FAILED and f"{topic}-3" in done.err
