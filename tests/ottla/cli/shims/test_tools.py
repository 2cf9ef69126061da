"""The tools with Kafka's names have the same output and exit codes as Apache Kafka 4.3.1's for the same commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.cli.shims.__main__ import TOOLS
from ottla.cli.shims.console_producer import LineReader
from ottla.cli.shims.record_text import Printable, formatter
from ottla.protocol.records.record import Record
from tests.ottla.cli.shims.recorded import SESSIONS
from tests.ottla.conftest import ROOT, Cli, Finished

Tool = Callable[..., Finished]


@pytest.fixture
def tool(cli: Cli) -> Tool:
    def run(name: str, *arguments: str, stdin: str = "") -> Finished:
        command = [sys.executable, "-m", "ottla.cli.shims", name]
        if name != "kafka-storage" and "--bootstrap-server" not in arguments:
            command += ["--bootstrap-server", cli.bootstrap]
        done = subprocess.run([*command, *arguments], input=stdin.encode(), capture_output=True, timeout=60, cwd=ROOT)
        return Finished(done.returncode, done.stdout, done.stderr.decode())

    return run


@pytest.fixture
def name() -> str:
    return f"tools-{os.getpid()}-{time.monotonic_ns()}"


@pytest.mark.parametrize("tool_name", [name for name in TOOLS if name != "kafka-server-start"])
def test_a_tool_loads_nothing_that_is_slow(tool_name: str) -> None:
    # Health checks give a tool a few seconds, and run it all day. The main cost is imports, and they can be counted on any
    # machine.
    code = f"import sys, importlib; importlib.import_module({TOOLS[tool_name]!r}); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    loaded = set(done.stdout.split())
    tops = {name.removeprefix("ottla.").partition(".")[0] for name in loaded}
    assert not tops & {"broker", "controller", "rich", "uvloop", "email", "prometheus_client"}
    assert "importlib.metadata" not in loaded
    assert len([name for name in loaded if name.partition(".")[0] not in sys.stdlib_module_names]) < 119
    # The number for kafka-storage includes the properties with the codecs and the places of tables. Python 3.14 loads five more
    # modules.
    assert len(loaded) < (286 if sys.version_info < (3, 14) else 291), len(loaded)


def test_the_page_of_tools_lists_each_of_them_and_sessions_that_exist() -> None:
    rows = re.findall(r"^\| (kafka-[\w-]+) \| ([^|]+) \|", (ROOT / "docs/CLI.md").read_text(), re.M)
    assert {name for name, _ in rows} == TOOLS.keys() - {"kafka-ready", "create-topics"}
    named = [sessions for _, sessions in rows if not sessions.startswith(("`", "none"))]
    sessions = {session.strip() for text in named for session in text.split(",")}
    assert sessions == {path.stem for path in SESSIONS}


def test_a_topic_is_created_once_described_grown_and_deleted(tool: Tool, name: str) -> None:
    create = ("kafka-topics", "--create", "--topic", name, "--partitions", "2", "--config", "retention.ms=1000")
    done = tool(*create)
    assert (done.code, done.out) == (0, f"Created topic {name}.\n")
    again = tool(*create)
    assert again.code == 1
    assert again.out.splitlines()[0] == f"Error while executing topic command : Topic '{name}' already exists."
    assert tool(*create, "--if-not-exists").code == 0
    assert name in tool("kafka-topics", "--list").out.splitlines()
    lines = tool("kafka-topics", "--describe", "--topic", name).out.splitlines()
    assert re.fullmatch(
        rf"Topic: {name}\tTopicId: \S{{22}}\tPartitionCount: 2\tReplicationFactor: 1\tConfigs: \S*retention.ms=1000\S*",
        lines[0],
    )
    assert lines[2] == f"\tTopic: {name}\tPartition: 1\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr: "
    assert tool("kafka-topics", "--describe", "--topic", name, "--under-replicated-partitions").out == ""
    assert tool("kafka-topics", "--alter", "--topic", name, "--partitions", "3").code == 0
    fewer = tool("kafka-topics", "--alter", "--topic", name, "--partitions", "1")
    assert fewer.code == 1
    assert f"The topic {name} currently has 3 partition(s); 1 would not be an increase." in fewer.out
    assert tool("kafka-topics", "--delete", "--topic", name).code == 0
    gone = tool("kafka-topics", "--describe", "--topic", name)
    assert (gone.code, gone.out) == (
        1,
        f"Error while executing topic command : Topic '{name}' does not exist as expected\n",
    )


def test_records_go_in_and_out_with_keys_headers_and_places(tool: Tool, name: str) -> None:
    tool("kafka-topics", "--create", "--topic", name)
    done = tool(
        "kafka-console-producer", "--topic", name, "--reader-property", "parse.key=true", "--reader-property", "key.separator=:",
        stdin="k1:v1\nk2:v2\n",
    )  # fmt: skip
    assert (done.code, done.err) == (0, "")
    shown = [
        f"--formatter-property=print.{what}=true" for what in ("key", "partition", "offset", "timestamp", "headers")
    ]
    read = tool(
        "kafka-console-consumer", "--topic", name, "--from-beginning", "--max-messages", "2", "--group", name, *shown
    )
    assert read.code == 0
    lines = read.out.splitlines()
    assert re.fullmatch(r"CreateTime:\d+\tPartition:0\tOffset:0\tNO_HEADERS\tk1\tv1", lines[0])
    assert read.err.splitlines()[-1] == "Processed a total of 2 messages"
    described = tool("kafka-consumer-groups", "--describe", "--group", name)
    assert f"Consumer group '{name}' has no active members." in described.err
    header, row = described.out.splitlines()[1:]
    assert header.split() == [
        "GROUP",
        "TOPIC",
        "PARTITION",
        "CURRENT-OFFSET",
        "LOG-END-OFFSET",
        "LAG",
        "CONSUMER-ID",
        "HOST",
        "CLIENT-ID",
    ]
    assert row.split() == [name, name, "0", "2", "2", "0", "-", "-", "-"]
    assert name in tool("kafka-consumer-groups", "--list").out.splitlines()


def test_the_console_consumer_joins_by_the_protocol_that_its_properties_name(
    tool: Tool, name: str, tmp_path: Path
) -> None:
    tool("kafka-topics", "--create", "--topic", name)
    tool("kafka-console-producer", "--topic", name, stdin="v1\nv2\n")
    config = tmp_path / "consumer.properties"
    config.write_text("group.protocol=consumer\ngroup.id=of-a-file\n")
    ways = {
        "Consumer": ["--group", name, "--command-property", "group.protocol=Consumer"],
        "Classic": ["--group", f"{name}-classic", "--command-property", "group.protocol=classic"],
    }
    for kind, way in ways.items():
        read = tool("kafka-console-consumer", "--topic", name, "--from-beginning", "--max-messages", "2", *way)
        assert read.out.splitlines() == ["v1", "v2"]
        listed = [line.split() for line in tool("kafka-groups", "--list").out.splitlines()]
        assert [way[1], kind, "consumer"] in listed
    first = ("--from-beginning", "--max-messages", "1")
    tool("kafka-console-consumer", "--topic", name, *first, "--command-config", str(config))
    assert ["of-a-file", "Consumer", "consumer"] in [
        line.split() for line in tool("kafka-groups", "--list").out.splitlines()
    ]
    for wrong in ("group.protocol=share", "isolation.level=READ_COMMITTED"):
        refused = tool("kafka-console-consumer", "--topic", name, "--command-property", wrong)
        property_name, value = wrong.split("=")
        assert refused.code == 1
        assert f"Invalid value {value} for configuration {property_name}: String must be one of" in refused.err


def test_a_consumer_with_a_timeout_ends_by_itself(tool: Tool, name: str) -> None:
    tool("kafka-topics", "--create", "--topic", name)
    done = tool("kafka-console-consumer", "--topic", name, "--timeout-ms", "300")
    assert (done.code, done.out) == (0, "")


def test_brokers_say_which_versions_they_serve(tool: Tool, cli: Cli) -> None:
    done = tool("kafka-broker-api-versions")
    lines = done.out.splitlines()
    assert lines[0] == f"{cli.bootstrap} (id: 1 rack: null isFenced: false) -> ("
    assert re.fullmatch(r"\tProduce\(0\): 0 to \d+ \[usable: \d+\],", lines[1])
    assert lines[-1] == ")"


def test_an_unknown_group_is_said_to_be_unknown(tool: Tool) -> None:
    done = tool("kafka-consumer-groups", "--describe", "--group", "unknown")
    assert "GroupIdNotFoundException: Group unknown not found." in done.out
    assert done.code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("kafka-topics",),
        ("kafka-topics", "--list", "--create"),
        ("kafka-topics", "--create"),
        ("kafka-topics", "--no-such-flag"),
        ("kafka-consumer-groups",),
        ("kafka-consumer-groups", "--describe"),
        ("kafka-console-consumer", "--topic", "t", "--offset", "3"),
        ("kafka-console-producer",),
        ("kafka-storage", "format"),
        ("kafka-storage", "info", "-c", "/no/such/file"),
    ],
)
def test_wrong_usage_ends_with_one(tool: Tool, arguments: tuple[str, ...]) -> None:
    done = tool(*arguments)
    assert done.code == 1
    assert done.err
    assert "Traceback" not in done.err


def test_an_unreachable_bootstrap_server_is_an_error(tool: Tool) -> None:
    assert tool("kafka-topics", "--bootstrap-server", "127.0.0.1:1", "--list").code == 1
    assert tool("kafka-broker-api-versions", "--bootstrap-server", "127.0.0.1:1").code == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("security.protocol=TLS\n", "security.protocol=TLS is unknown"),
        ("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=DIGEST-MD5\n", "sasl.mechanism=DIGEST-MD5 is not served"),
        ("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n", "sasl.jaas.config is missing"),
        ("security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=/none\n", "/none"),
    ],
)
def test_a_client_file_that_cannot_be_used_is_an_error_that_names_the_property(
    tool: Tool, tmp_path: Path, text: str, said: str
) -> None:
    config = tmp_path / "client.properties"
    config.write_text(text)
    done = tool("kafka-topics", "--list", "--command-config", str(config))
    assert done.code == 1
    assert said in done.out + done.err and str(config) in done.out + done.err
    assert "Traceback" not in done.err


def test_directories_are_formatted_once_for_one_cluster(tool: Tool, tmp_path: Path) -> None:
    config, data = tmp_path / "s.properties", tmp_path / "data"
    roles = "process.roles=broker\ncontroller.listener.names=C\ncontroller.quorum.bootstrap.servers=127.0.0.1:1\n"
    config.write_text(f"{roles}node.id=3\nlog.dirs={data}\n")
    cluster = tool("kafka-storage", "random-uuid").out.strip()
    assert re.fullmatch(r"[\w][\w-]{21}", cluster)
    arguments = ("kafka-storage", "format", "-t", cluster, "-c", str(config))
    assert "Formatting metadata directory" in tool(*arguments).out
    assert (data / "meta.properties").exists()
    again = tool(*arguments)
    assert (again.code, "is already formatted. Use --ignore-formatted" in again.err) == (1, True)
    ignored = tool(*arguments, "--ignore-formatted")
    assert (ignored.code, ignored.out) == (0, "All of the log directories are already formatted.\n")
    other = tool("kafka-storage", "format", "-g", "-t", "5L6g3nShT-eMCtK--X86sw", "-c", str(config))
    assert other.code == 1
    assert f"Expected 5L6g3nShT-eMCtK--X86sw, but read {cluster}" in other.err
    info = tool("kafka-storage", "info", "-c", str(config))
    assert info.code == 0
    assert re.search(rf"Found metadata: {{cluster.id={cluster}, directory.id=\S+, node.id=3, version=1}}", info.out)


def test_lines_with_headers_and_a_null_marker() -> None:
    reader = LineReader({"parse.key": "true", "parse.headers": "true", "null.marker": "NULL"})
    record = reader.read(b"a:1,b:NULL\tkey\tNULL", 1, 5)
    assert tuple(record)[:3] == (b"key", None, 5)
    assert record.headers == (("a", b"1"), ("b", None))


def test_the_formatter_shows_nulls() -> None:
    write = formatter({"print.key": "true", "print.headers": "true"})
    record = Record(key=None, value=None, timestamp=5, headers=(("h", b"x"),), offset=1)
    assert write(Printable(0, record)) == b"h:x\tnull\tnull\n"


def test_the_producer_measures_the_steady_state_without_the_records_before_it(tool: Tool, name: str) -> None:
    measured = ("kafka-producer-perf-test", "--topic", name, "--record-size", "10", "--throughput", "-1")
    done = tool(*measured, "--num-records", "50", "--warmup-records", "20")
    assert done.code == 0
    assert [line.split(" records sent")[0] for line in done.out.splitlines()[-2:]] == ["50", "30 steady state"]
    refused = tool(*measured, "--num-records", "5", "--warmup-records", "5")
    assert (refused.code, "strictly fewer" in refused.err) == (1, True)


def test_the_consumer_that_measures_reads_a_pattern_of_topics_and_shows_times_as_it_is_asked(
    tool: Tool, name: str
) -> None:
    tool("kafka-console-producer", "--topic", name, stdin="a\nb\n")
    measured = ("kafka-consumer-perf-test", "--include", f"{name}|no.*such", "--num-records", "2", "--hide-header")
    done = tool(*measured, "--date-format", "dd.MM.yyyy HH:mm", "--command-property", f"group.id={name}")
    assert re.match(r"(\d\d\.\d\d\.\d{4} \d\d:\d\d, ){2}", done.out), done
    assert name in tool("kafka-consumer-groups", "--list").out.splitlines()
    assert (
        tool(*measured, "--date-format", "GGG").err.splitlines()[0]
        == "Cannot parse argument 'GGG' of option date-format"
    )


@pytest.mark.parametrize(
    "command",
    [
        ("kafka-console-consumer", "--include", "a(b"),
        ("kafka-consumer-perf-test", "--include", "a(b", "--num-records", "1"),
        ("kafka-get-offsets", "--topic", "a(b"),
        ("kafka-transactions", "list", "--transactional-id-pattern", "a(b"),
        ("kafka-topics", "--describe", "--topic", "a(b"),
    ],
    ids=lambda command: command[0],
)
def test_what_is_no_regular_expression_ends_a_tool_with_a_sentence(
    tool: Tool, command: tuple[str, ...], cli: Cli
) -> None:
    name, *arguments = command
    done = tool(name, "--bootstrap-server", cli.bootstrap, *arguments)
    assert done.code == 1
    assert "a(b is an invalid regex" in done.out + done.err
    assert "Traceback" not in done.err
