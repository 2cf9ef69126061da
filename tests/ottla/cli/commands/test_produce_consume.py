"""`ottla produce` and `ottla consume` against a node."""

from __future__ import annotations

import json
import signal
import subprocess
import time

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
    assert cli("consume", topic, "--format", r"%t %p %o %k %v{hex}\n").out == f"{topic} 0 0 k ff0076\n"
    keyless = cli.topic()
    cli.ok("produce", keyless, stdin="a\nb\n")
    assert cli.ok("consume", keyless) == "a\nb\n"
    assert "%k" in cli("consume", topic, "--format", "%q").err


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
        (["--from", "2", "--to", "5"], range(2, 5)),
        (["--from", f"@{start + 1}", "--to", f"@{start + 3}"], [1, 2]),
        (["--to", "-8"], [0, 1]),
        (["--value", "[13]", "--from", "2"], [3]),
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
            command("consume", topic, "--follow", "-n", "2", "-o", "value", "-b", cli.bootstrap),
            stdout=subprocess.PIPE,
            cwd=ROOT,
        ) as reader,
    ):
        assert ottla.stdin is not None and ottla.stderr is not None and reader.stdout is not None
        for text, read in ((b"first\n", b"first\n"), (b"second\nthird has no end yet", b"second\n")):
            ottla.stdin.write(text)
            ottla.stdin.flush()
            assert reader.stdout.readline() == read
        ottla.send_signal(signal.SIGINT)
        assert ottla.wait(30) == INTERRUPTED
        # A reader may get the second record before the producer gets its acknowledgement.
        assert ottla.stderr.read().decode() in (
            f"2 records acknowledged in topic {topic}\n",
            f"1 record acknowledged in topic {topic}; repeat line 2, which may have been written, and all after line 2\n",
        )


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
    assert "1 record acknowledged" in done.err or "repeat line 1" in done.err


def test_a_record_that_is_too_large_says_what_to_raise(cli: Cli) -> None:
    topic = cli.topic()
    done = cli("produce", topic, stdin="x" * 1_200_000)
    assert done.code == FAILED and "MESSAGE_TOO_LARGE" in done.err and "max.message.bytes" in done.err


def test_a_topic_that_does_not_exist_is_created_for_a_producer_as_for_stock_clients(cli: Cli) -> None:
    name = f"{cli.topic()}-new"
    assert "did you mean" in cli("consume", name).err
    cli.ok("produce", name, stdin="first\n")
    assert cli.ok("consume", name) == "first\n"
    refused = cli("produce", "no/such", stdin="x\n")
    assert refused.code == FAILED and "INVALID_TOPIC_EXCEPTION" in refused.err


def test_members_of_a_group_share_the_partitions_and_go_on_where_it_was(cli: Cli) -> None:
    topic, group = cli.topic(partitions=2), f"{cli.topic()}-group"
    rows: list[dict[str, object]] = [{"value": f"{n}", "partition": n % 2} for n in range(10)]
    cli.ok("produce", topic, "-i", "json", stdin=as_input(rows))
    first = cli.ok("consume", topic, "-g", group, "-n", "3").split()
    rest = cli.ok("consume", topic, "-g", group).split()
    assert sorted(first + rest, key=int) == [str(n) for n in range(10)]
    assert cli.ok("consume", topic, "-g", group) == ""
    assert {row["lag"] for row in cli.rows("group", "describe", group)} == {0}

    def member() -> subprocess.Popen[str]:
        arguments = command("consume", topic, "-g", group, "-f", "--format", r"%p %v\n", "-b", cli.bootstrap)
        return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=ROOT)

    with member() as one, member() as other:
        deadline = time.monotonic() + 60
        # A member that waits for the rebalance is in the list, too, but has no partition yet.
        while len({row["member"] for row in cli.rows("group", "describe", group) if row.get("topic")}) < 2:
            assert time.monotonic() < deadline, "the two members do not share the partitions"
        cli.ok("produce", topic, "-i", "json", stdin=as_input([{"value": "x", "partition": n} for n in (0, 1)]))
        assert one.stdout is not None and other.stdout is not None
        assert sorted([one.stdout.readline(), other.stdout.readline()]) == ["0 x\n", "1 x\n"]
        for each in (one, other):
            each.send_signal(signal.SIGINT)
            assert each.wait(30) == INTERRUPTED
    described = cli.rows("group", "describe", group)
    assert {(row["lag"], row["member"]) for row in described} == {(0, None)}


def test_a_partition_that_is_not_there(cli: Cli) -> None:
    topic = cli.topic()
    assert "no partition 3" in cli("produce", topic, "-p", "3", stdin="x\n").err
    done = cli("consume", topic, "-p", "3")
    assert done.code == FAILED and f"{topic}-3" in done.err


def test_a_topic_that_was_misspelt_is_said_to_have_been_created(cli: Cli) -> None:
    """A producer without records creates the topic all the same (auto.create.topics.enable), and the command reports that."""
    topic = cli.topic() + "-typo"
    said = cli("produce", topic, stdin="").err.splitlines()
    assert said[0] == f"topic {topic} did not exist: the broker has created it (auto.create.topics.enable)"
    assert len(cli("produce", topic, stdin="").err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--max", "0"), "--max 0 is not above 0"),
        (("--to", "5", "--follow"), "--to and --follow exclude each other"),
        (("--group", "g", "--partition", "0"), "a group has its own offsets and partitions"),
        (("--group", "g", "--from", "-5"), "a group has its own offsets and partitions"),
        (("--registry", "http://127.0.0.1:1", "--registry-config", "/no/such/file"), "--registry-config: "),
    ],
)
def test_options_that_contradict_each_other_are_refused(cli: Cli, arguments: tuple[str, ...], text: str) -> None:
    done = cli("consume", cli.topic(), *arguments)
    assert done.code == USAGE and text in done.err


def test_values_of_a_registry_that_is_away_end_the_command_and_others_are_shown(cli: Cli) -> None:
    topic = cli.topic()
    cli.ok("produce", topic, stdin="plain\n")
    registry = ("--registry", "http://127.0.0.1:1")
    done = cli("consume", topic, *registry)
    assert (done.code, done.out) == (0, "plain\n")
    cli.ok("produce", topic, stdin=b"\x00\x00\x00\x00\x01{}\n")
    done = cli("consume", topic, *registry)
    assert done.code == FAILED and "without --registry the bytes are shown as they are" in done.err


def test_the_latest_offset_without_follow_reads_nothing_and_says_so(cli: Cli) -> None:
    topic = cli.topic()
    cli.ok("produce", topic, stdin="a\n")
    done = cli("consume", topic, "--from", "latest")
    assert (done.code, done.out) == (0, "") and "records that come later are shown with -f" in done.err
