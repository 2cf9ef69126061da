"""Arguments that have the right form, but cannot be meant: each gets one sentence about it, and nothing is changed."""

from __future__ import annotations

import re

import pytest

from ottla.__main__ import main
from ottla.cli.errors import USAGE
from tests.ottla.cli.commands.conftest import Run
from tests.ottla.cli.shims.recorded import run_ours
from tests.ottla.conftest import Cli, run_here

HUGE = "99999999999999999999"
#: The character that Python makes of the byte 0xFF in an argument.
BYTE = "\udcff"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("topic create odd -p 99999999999", "CreateTopicsRequest cannot be sent: a number is out of range"),
        ("topic create odd -r 70000", "CreateTopicsRequest cannot be sent: a number is out of range"),
        (f"topic create odd{'x' * 40_000}", "string of 40003 bytes is longer than 32767"),
        (f"topic create odd{BYTE}", "has bytes that are not UTF-8"),
        (f"topic describe odd{BYTE}", "has bytes that are not UTF-8"),
        (f"group describe odd{BYTE}", "has bytes that are not UTF-8"),
        ("partition elect {topic}:99999999999", "there is no partition "),
        ("token create --hours 1e300", "CreateDelegationTokenRequest cannot be sent: a number is out of range"),
        ("txn list --open-for 1e300", "ListTransactionsRequest cannot be sent: a number is out of range"),
        (f"txn list --producer-id {HUGE}", "ListTransactionsRequest cannot be sent: a number is out of range"),
    ],
    ids=lambda value: value.split("x" * 9)[0][:60].encode("ascii", "replace").decode(),
)
def test_what_has_no_place_in_a_request_is_a_wrong_usage(cli: Cli, here: Run, words: str, said: str) -> None:
    done = here(*words.format(topic=cli.topic() if "{" in words else "").split())
    assert (done.code, done.out) == (USAGE, ""), done.err
    assert said in done.err and done.err.startswith("ottla: ")
    assert here("topic", "list", "odd*").out.count("odd") == 0


def test_a_name_that_cannot_be_sent_is_quoted_up_to_a_bound(here: Run) -> None:
    done = here("topic", "describe", "y" * 5_000 + BYTE)
    (quoted,) = re.findall(r"'(y+)'", done.err)
    assert len(quoted) == 80


def test_a_tool_of_kafka_says_the_same_without_a_trace_of_python(cli: Cli) -> None:
    words = ["--bootstrap-server", cli.bootstrap, "--describe", "--group", f"odd{BYTE}"]
    said = run_ours("kafka-consumer-groups", words, "")
    assert said.code == 1 and r"'odd\udcff' has bytes that are not UTF-8" in said.out + said.err


@pytest.mark.parametrize("command", ["start", "dev", "fork"])
@pytest.mark.parametrize("text", ["nonsense", "=1", " =1"])
def test_an_override_that_is_none_is_a_wrong_usage_of_its_own_command(
    capsys: pytest.CaptureFixture[str], command: str, text: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, *(["--dir", "nowhere"] if command == "fork" else []), "--override", text])
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (USAGE, "")
    assert err == f"ottla: --override: {text!r} is not KEY=VALUE\n  `ottla {command} --help` shows the usage\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--refresh -1", "--refresh -1 is below 0.1"),
        ("--refresh 0", "--refresh 0 is below 0.1"),
        ("--checkpoint-every 0", "--checkpoint-every 0 is below 0.1"),
        ("--throttle 0", "--throttle 0 is not above 0"),
        ("--session-timeout-ms 0", "--session-timeout-ms 0 is no time"),
        (f"--session-timeout-ms {HUGE}", f"--session-timeout-ms {HUGE} is no time"),
        ("--metrics x", "--metrics: 'x' is not HOST:PORT"),
        ("--metrics :99999", "--metrics: the port of ':99999' is not from 0 to 65535"),
    ],
)
def test_times_and_rates_of_a_mirror_that_cannot_be(here: Run, words: str, said: str) -> None:
    done = here("mirror", "run", "a", "b", "--to", "localhost:1", *words.split())
    assert done.code == USAGE and said in done.err, done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("consume t --header =x", "--header '=x' has no name"),
        ("consume t --registry registry:8081", "--registry 'registry:8081' is no URL"),
        ("txn list --open-for -1", "--open-for -1 is below 0"),
        ("config set topic t retention.ms=1 retention.ms=2", "retention.ms is given twice"),
        ("topic create t -c retention.ms=1 -c retention.ms=2", "retention.ms is given twice"),
        ("quota set user u producer_byte_rate=1 producer_byte_rate=2", "producer_byte_rate is given twice"),
        ("feature upgrade group.version=1 group.version=1", "group.version is given twice"),
    ],
)
def test_what_has_no_effect_or_two_meanings_is_refused_before_a_connection_is_made(words: str, said: str) -> None:
    done = run_here(*words.split(), "-b", "localhost:1")
    assert done.code == USAGE and said in done.err, done.err


def test_brokers_and_partitions_that_are_named_twice(cli: Cli, here: Run) -> None:
    topic = cli.topic()
    done = here("move", "plan", topic, "--to", "1,1")
    assert done.code == USAGE and "--to '1,1' names broker 1 twice" in done.err
    cli.ok("group", "reset", f"group-of-{topic}", "-t", topic, "-t", f"{topic}:0", "--to", "earliest")


def test_a_state_of_transactions_that_there_is_not_is_said(here: Run) -> None:
    done = here("txn", "list", "--state", "Nope")
    assert done.code == USAGE and "there is no state 'Nope' of transactions" in done.err
