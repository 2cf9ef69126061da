"""Apache Kafka's own command-line tools against a node; skipped with the reason where Java is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.broker.conftest import eventually
from tests.broker.groups.share.wire_member import WireMember
from tests.broker.wire import Wire
from tests.needs import needs_apache_kafka
from tools.apache_kafka import ToolSession, run_tool

pytestmark = [
    needs_apache_kafka,
    pytest.mark.timeout(300),
]


#: Runs a tool, which has to succeed, and returns its output.
Tool = Callable[..., str]
#: Tools of 4.3.1 that catch every exception, also a timeout, print it and exit with 0: a list that has failed looks like an
#: empty one.
EXITS_WITH_0 = ("kafka-share-groups",)


@pytest.fixture(scope="module")
def session() -> Iterator[ToolSession]:
    with ToolSession() as running:
        yield running


@pytest.fixture
def tool(session: ToolSession, bootstrap: str) -> Tool:
    def run(name: str, *args: str, stdin: str = "") -> str:
        done = session.run(name, "--bootstrap-server", bootstrap, *args, stdin=stdin)
        assert done.returncode == 0, f"{name} {' '.join(args)}: {done.stdout}{done.stderr}"
        assert name not in EXITS_WITH_0 or "Error: " not in done.stdout, (
            f"{name} {' '.join(args)}: {done.stdout}{done.stderr}"
        )
        return done.stdout

    return run


def test_topics_are_created_described_altered_and_deleted(tool: Tool, topic: str) -> None:
    created = tool("kafka-topics", "--create", "--topic", topic, "--partitions", "3", "--config", "retention.ms=60000")
    assert f"Created topic {topic}." in created
    described = tool("kafka-topics", "--describe", "--topic", topic)
    assert "PartitionCount: 3" in described
    assert "ReplicationFactor: 1" in described
    assert "retention.ms=60000" in described
    tool("kafka-topics", "--alter", "--topic", topic, "--partitions", "4")
    assert topic in tool("kafka-topics", "--list").split()
    tool("kafka-topics", "--delete", "--topic", topic)


def test_the_console_producer_writes_what_the_console_consumer_reads(tool: Tool, bootstrap: str, topic: str) -> None:
    tool("kafka-topics", "--create", "--topic", topic)
    lines = "".join(f"k{i}:line {i}\n" for i in range(10))
    tool("kafka-console-producer", "--topic", topic, "--reader-property", "parse.key=true",
         "--reader-property", "key.separator=:", stdin=lines)  # fmt: skip
    read = run_tool(
        "kafka-console-consumer", "--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning", "--max-messages", "10",
        "--group", f"{topic}-g", "--timeout-ms", "20000",
    ).stdout  # fmt: skip
    assert sorted(read.split("\n")[:10]) == sorted(f"line {i}" for i in range(10))
    groups = tool("kafka-consumer-groups", "--describe", "--group", f"{topic}-g")
    row = next(line.split() for line in groups.splitlines() if topic in line)
    assert row[3:6] == ["10", "10", "0"], groups
    assert f"{topic}-g" in tool("kafka-consumer-groups", "--list").split()
    tool(
        "kafka-consumer-groups",
        "--reset-offsets",
        "--group",
        f"{topic}-g",
        "--topic",
        topic,
        "--to-earliest",
        "--execute",
    )
    tool("kafka-consumer-groups", "--delete", "--group", f"{topic}-g")


def test_configs_of_topics_and_brokers_are_altered_and_described(
    tool: Tool, session: ToolSession, bootstrap: str, topic: str
) -> None:
    tool("kafka-topics", "--create", "--topic", topic)
    tool(
        "kafka-configs",
        "--alter",
        "--entity-type",
        "topics",
        "--entity-name",
        topic,
        "--add-config",
        "cleanup.policy=compact",
    )
    assert "cleanup.policy=compact" in tool(
        "kafka-configs", "--describe", "--entity-type", "topics", "--entity-name", topic
    )
    everything = tool("kafka-configs", "--describe", "--entity-type", "topics", "--entity-name", topic, "--all")
    assert "synonyms={" in everything
    wrong = session.run("kafka-configs", "--bootstrap-server", bootstrap, "--alter", "--entity-type", "topics", "--entity-name", topic,
                     "--add-config", "retention.ms=soon")  # fmt: skip
    assert "Invalid value soon for configuration retention.ms" in wrong.stdout + wrong.stderr


def test_the_perf_producer_and_get_offsets_agree_on_the_number_of_records(tool: Tool, topic: str) -> None:
    tool("kafka-topics", "--create", "--topic", topic, "--partitions", "2")
    printed = tool("kafka-producer-perf-test", "--topic", topic, "--num-records", "20000", "--record-size", "100",
                "--throughput", "-1")  # fmt: skip
    assert "20000 records sent" in printed
    offsets = tool("kafka-get-offsets", "--topic", topic)
    assert sum(int(line.rpartition(":")[2]) for line in offsets.split()) == 20000


def test_the_quorum_the_features_and_the_api_versions_are_described(tool: Tool) -> None:
    assert "LeaderId:" in tool("kafka-metadata-quorum", "describe", "--status")
    assert "metadata.version" in tool("kafka-features", "describe")
    assert "Produce(0): 0 to 13 [usable: 13]" in tool("kafka-broker-api-versions")


def test_a_java_consumer_of_the_consumer_protocol_reads_commits_and_leaves(
    tool: Tool, bootstrap: str, topic: str
) -> None:
    """KIP-848: the group's type, state and offsets as the tools show them after the consumer has left."""
    group = f"{topic}-g"
    tool("kafka-topics", "--create", "--topic", topic, "--partitions", "3")
    tool("kafka-console-producer", "--topic", topic, stdin="".join(f"line {i}\n" for i in range(10)))
    read = run_tool(
        "kafka-console-consumer", "--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning",
        "--max-messages", "10", "--group", group, "--timeout-ms", "30000",
        "--command-property", "group.protocol=consumer",
    ).stdout  # fmt: skip
    assert sorted(read.split("\n")[:10]) == sorted(f"line {i}" for i in range(10))
    state = tool("kafka-consumer-groups", "--describe", "--group", group, "--state", "--verbose")
    assert "Empty" in state and "uniform" in state, state
    rows = [line.split() for line in tool("kafka-consumer-groups", "--describe", "--group", group).splitlines()]
    assert sum(int(row[3]) for row in rows if topic in row) == 10, rows
    assert any(
        row[:3] == [group, "Consumer", "consumer"]
        for row in map(str.split, tool("kafka-groups", "--list").splitlines())
    )
    tool("kafka-consumer-groups", "--delete", "--group", group)


def test_share_groups_are_listed_described_reset_and_deleted(tool: Tool, bootstrap: str, topic: str) -> None:
    group = f"{topic}-s"
    tool("kafka-topics", "--create", "--topic", topic, "--partitions", "2")
    tool(
        "kafka-producer-perf-test", "--topic", topic, "--num-records", "10", "--record-size", "10", "--throughput", "-1"
    )
    with Wire(int(bootstrap.rpartition(":")[2])) as wire:
        member = WireMember(wire, group)
        eventually(lambda: member.joins(topic), "the group coordinator")
        eventually(lambda: member.has([0, 1]), "the share partitions to be initialized")
        members = tool("kafka-share-groups", "--describe", "--group", group, "--members")
        assert members.split()[-5:] == [member.member_id, "/127.0.0.1", "wire", "2", f"{topic}:0,1"], members
        member.beat(epoch=-1)
    assert group in tool("kafka-share-groups", "--list").split()
    assert "Empty" in tool("kafka-share-groups", "--describe", "--group", group, "--state")
    reset = tool(
        "kafka-share-groups", "--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute"
    )
    assert sum(line.split()[:2] == [group, topic] for line in reset.splitlines()) == 2, reset
    rows = [line.split() for line in tool("kafka-share-groups", "--describe", "--group", group).splitlines()]
    # A partition without an offset has a row with "-". A partition whose leader answers with an error has no row.
    assert sorted(row[2] for row in rows if topic in row) == ["0", "1"], rows
    assert sum(int(row[4]) for row in rows if topic in row) == 10, rows
    assert "Successful" in tool("kafka-share-groups", "--delete-offsets", "--group", group, "--topic", topic)
    assert "successful" in tool("kafka-share-groups", "--delete", "--group", group)
    assert group not in tool("kafka-share-groups", "--list").split()
