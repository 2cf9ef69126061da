"""The perf tools print windows, warm-up and warnings of a run, and reject some options."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.ottla.cli.shims.conftest import Play
from tests.ottla.cli.shims.recorded import run_ours
from tests.ottla.conftest import Cli

PRODUCE = ("kafka-producer-perf-test", "--throughput", "-1", "--num-records")
WINDOW = r"\d+ records sent, [\d.]+ records/sec \([\d.]+ MB/sec\), [\d.]+ ms avg latency, [\d.]+ ms max latency\."
TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}"


@pytest.fixture
def topic(cli: Cli, play: Play) -> str:
    """Return a topic with a hundred records of ten bytes."""
    name = cli.topic(partitions=2)
    assert play(*PRODUCE, "100", "--record-size", "10", "--topic", name).code == 0
    return name


def test_each_interval_of_a_producer_has_a_line_and_the_end_has_percentiles(cli: Cli, play: Play) -> None:
    wanted = ("--num-records", "60", "--throughput", "600", "--record-size", "10", "--reporting-interval", "20")
    said = play("kafka-producer-perf-test", "--topic", cli.topic(), *wanted)
    *windows, total = said.out.splitlines()
    assert len(windows) >= 3 and all(re.fullmatch(WINDOW, line) for line in windows), said
    assert re.fullmatch(WINDOW[:-2] + r", (\d+ ms (50|95|99|99\.9)th(, |\.)){4}", total)
    assert total.startswith("60 records sent")
    assert sum(int(line.partition(" ")[0]) for line in windows) <= 60


def test_the_windows_after_the_warm_up_are_those_of_the_steady_state(cli: Cli, play: Play) -> None:
    wanted = ("--num-records", "60", "--throughput", "600", "--record-size", "10", "--reporting-interval", "20")
    said = play("kafka-producer-perf-test", "--topic", cli.topic(), *wanted, "--warmup-records", "30")
    lines = said.out.splitlines()
    steady = lines.index("In steady state.")
    assert re.fullmatch(WINDOW, lines[steady + 1])
    assert lines.count("In steady state.") == 1
    assert [line.split(" sent")[0] for line in lines[-2:]] == ["60 records", "30 steady state records"]


def test_payloads_are_numbers_or_the_rows_of_a_file(cli: Cli, play: Play, tmp_path: Path) -> None:
    topic, file = cli.topic(), tmp_path / "payloads"
    assert play(*PRODUCE, "3", "--payload-monotonic", "--topic", topic).code == 0
    file.write_text("one\n\ntwo\n")
    said = play(*PRODUCE, "5", "--payload-file", str(file), "--topic", topic)
    assert said.out.splitlines()[:2] == [f"Reading payloads from: {file}", "Number of records read: 2"]
    values = cli.ok("consume", topic).splitlines()
    assert values[:3] == ["0", "1", "2"] and len(values) == 8 and set(values[3:]) <= {"one", "two"}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--record-size", "0"), "--record-size should be greater than zero."),
        (("--payload-file", "/none"), "File /none cannot be read: No such file or directory"),
        (("--payload-file", "/dev/null"), "File does not exist or empty file provided. /dev/null"),
        (("--record-size", "1", "--transactional-id", "t"), "transactions are not supported"),
        (("--record-size", "1", "--producer-props", "acks"), "Invalid property: acks"),
        (("--record-size", "1", "--command-property", "compression.type=arj"), "Unknown compression name: arj"),
    ],
)
def test_what_a_producer_cannot_send_is_refused_with_a_sentence(
    play: Play, arguments: tuple[str, ...], text: str
) -> None:
    said = play(*PRODUCE, "1", "--topic", "t", *arguments)
    assert said.code == 1 and text in said.err


def test_a_producer_without_an_address_says_which_options_have_one() -> None:
    said = run_ours(PRODUCE[0], [*PRODUCE[1:], "1", "--record-size", "1", "--topic", "t"], "")
    assert said.code == 1 and said.err.startswith("At least one of --bootstrap-server, ")


def test_each_interval_of_a_consumer_has_a_line_in_place_of_a_last_one(play: Play, topic: str) -> None:
    wanted = ("--num-records", "100", "--show-detailed-stats", "--reporting-interval", "0")
    said = play("kafka-consumer-perf-test", "--topic", topic, *wanted)
    header, *lines = said.out.splitlines()
    assert header.startswith("time, threadId, ") and lines
    assert all(re.fullmatch(rf"{TIME}, 0(, [\d.]+){{4}}, 0, \d+, [\d.]+, [\d.]+", line) for line in lines), lines
    assert lines[-1].split(", ")[4] == "100"


def test_a_consumer_that_gets_too_few_records_warns_after_its_timeout(play: Play, topic: str) -> None:
    said = play("kafka-consumer-perf-test", "--topic", topic, "--num-records", "101", "--timeout", "2000")
    _, warning, numbers = said.out.splitlines()
    assert warning.startswith("WARNING: Exiting before consuming the expected number of records: timeout (2000 ms)")
    assert re.fullmatch(rf"{TIME}, {TIME}, [\d.]+, [\d.]+, 100, [\d.]+, \d+, \d+, [\d.]+, [\d.]+", numbers)


def test_members_of_a_share_group_report_each_alone_and_all_together(cli: Cli, play: Play, topic: str) -> None:
    group = f"share-{topic}"
    play("kafka-configs", "--alter", "--entity-type", "groups", "--entity-name", group,
         "--add-config", "share.auto.offset.reset=earliest")  # fmt: skip
    shown = ("--show-detailed-stats", "--reporting-interval", "0", "--show-consumer-stats", "--threads", "2")
    wanted = ("--topic", topic, "--group", group, "--num-records", "100")
    said = play("kafka-share-consumer-perf-test", *wanted, *shown)
    lines = said.out.splitlines()[1:]
    window = rf"{TIME}, {TIME}(, [\d.]+){{3}}, \d+, \d+ for share consumer [12]"
    assert re.fullmatch(window, lines[0]), lines
    first, second = (line for line in lines if line.startswith("Share consumer "))
    numbers = rf"{TIME}, {TIME}, [\d.]+, [\d.]+, [\d.]+, (\d+), \d+"
    own = [
        re.fullmatch(rf"Share consumer (\d) having client id (\S+) consumption metrics- {numbers}", line)
        for line in (first, second)
    ]
    assert [found and found[2] for found in own] == ["perf-share-consumer-client-1", "perf-share-consumer-client-2"]
    total = re.fullmatch(numbers, lines[-1])
    assert total is not None and total[1] == "100"
    assert sum(int(found[3]) for found in own if found) == 100
    said = play("kafka-share-consumer-perf-test", *wanted, "--timeout", "600", "--hide-header")
    assert said.out.splitlines()[0].startswith("WARNING: Exiting before consuming")


def test_records_whose_time_is_measured_have_keys_and_headers(cli: Cli, play: Play) -> None:
    topic = cli.topic()
    sizes = ("--record-size", "20", "--record-key-size", "3", "--num-headers", "1", "--record-header-key-size", "2")
    wanted = ("--topic", topic, "--num-records", "2", "--producer-acks", "all", "--record-header-size", "4")
    said = play("kafka-e2e-latency", *wanted, *sizes)
    assert said.code == 0 and re.match(r"0\t[\d.]+\nAvg latency: [\d.]+ ms\nPercentiles: 50th = \d+,", said.out), said
    line = cli.rows("consume", topic)[0]
    assert (len(str(line["key"])), len(str(line["value"]))) == (3, 20) and len(list(line["headers"])) == 1
    refused = play("kafka-e2e-latency", *wanted[:4], "--producer-acks", "0", "--record-size", "1")
    assert refused.code == 1 and "requires synchronous acknowledgement" in refused.err
