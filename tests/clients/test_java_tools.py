"""Apache Kafka's own command-line tools against a node; skipped with the reason where Java is missing."""

from __future__ import annotations

import pytest

from tools.apache_kafka import missing, run_tool

pytestmark = [
    pytest.mark.skipif(missing() is not None, reason=f"needs Apache Kafka's tools: {missing()}"),
    pytest.mark.timeout(300),
]


def tool(name: str, bootstrap: str, *args: str, stdin: str | None = None) -> str:
    done = run_tool(name, "--bootstrap-server", bootstrap, *args, stdin=stdin)
    assert done.returncode == 0, f"{name} {' '.join(args)}: {done.stdout}{done.stderr}"
    return done.stdout


def test_topics_are_created_described_altered_and_deleted(bootstrap: str, topic: str) -> None:
    created = tool(
        "kafka-topics", bootstrap, "--create", "--topic", topic, "--partitions", "3", "--config", "retention.ms=60000"
    )
    assert f"Created topic {topic}." in created
    described = tool("kafka-topics", bootstrap, "--describe", "--topic", topic)
    assert "PartitionCount: 3" in described
    assert "ReplicationFactor: 1" in described
    assert "retention.ms=60000" in described
    tool("kafka-topics", bootstrap, "--alter", "--topic", topic, "--partitions", "4")
    assert topic in tool("kafka-topics", bootstrap, "--list").split()
    tool("kafka-topics", bootstrap, "--delete", "--topic", topic)


def test_the_console_producer_writes_what_the_console_consumer_reads(bootstrap: str, topic: str) -> None:
    tool("kafka-topics", bootstrap, "--create", "--topic", topic)
    lines = "".join(f"k{i}:line {i}\n" for i in range(10))
    tool("kafka-console-producer", bootstrap, "--topic", topic, "--reader-property", "parse.key=true",
         "--reader-property", "key.separator=:", stdin=lines)  # fmt: skip
    read = tool("kafka-console-consumer", bootstrap, "--topic", topic, "--from-beginning", "--max-messages", "10", "--group", f"{topic}-g",
                "--timeout-ms", "20000")  # fmt: skip
    assert sorted(read.split("\n")[:10]) == sorted(f"line {i}" for i in range(10))
    groups = tool("kafka-consumer-groups", bootstrap, "--describe", "--group", f"{topic}-g")
    row = next(line.split() for line in groups.splitlines() if topic in line)
    assert row[3:6] == ["10", "10", "0"], groups
    assert f"{topic}-g" in tool("kafka-consumer-groups", bootstrap, "--list").split()
    tool(
        "kafka-consumer-groups",
        bootstrap,
        "--reset-offsets",
        "--group",
        f"{topic}-g",
        "--topic",
        topic,
        "--to-earliest",
        "--execute",
    )
    tool("kafka-consumer-groups", bootstrap, "--delete", "--group", f"{topic}-g")


def test_configs_of_topics_and_brokers_are_altered_and_described(bootstrap: str, topic: str) -> None:
    tool("kafka-topics", bootstrap, "--create", "--topic", topic)
    tool(
        "kafka-configs",
        bootstrap,
        "--alter",
        "--entity-type",
        "topics",
        "--entity-name",
        topic,
        "--add-config",
        "cleanup.policy=compact",
    )
    assert "cleanup.policy=compact" in tool(
        "kafka-configs", bootstrap, "--describe", "--entity-type", "topics", "--entity-name", topic
    )
    everything = tool(
        "kafka-configs", bootstrap, "--describe", "--entity-type", "topics", "--entity-name", topic, "--all"
    )
    assert "synonyms={" in everything
    wrong = run_tool("kafka-configs", "--bootstrap-server", bootstrap, "--alter", "--entity-type", "topics", "--entity-name", topic,
                     "--add-config", "retention.ms=soon")  # fmt: skip
    assert "Invalid value soon for configuration retention.ms" in wrong.stdout + wrong.stderr


def test_the_perf_producer_and_get_offsets_agree_on_the_number_of_records(bootstrap: str, topic: str) -> None:
    tool("kafka-topics", bootstrap, "--create", "--topic", topic, "--partitions", "2")
    told = tool("kafka-producer-perf-test", bootstrap, "--topic", topic, "--num-records", "20000", "--record-size", "100",
                "--throughput", "-1")  # fmt: skip
    assert "20000 records sent" in told
    offsets = tool("kafka-get-offsets", bootstrap, "--topic", topic)
    assert sum(int(line.rpartition(":")[2]) for line in offsets.split()) == 20000


def test_the_quorum_the_features_and_the_api_versions_are_described(bootstrap: str) -> None:
    assert "LeaderId:" in tool("kafka-metadata-quorum", bootstrap, "describe", "--status")
    assert "metadata.version" in tool("kafka-features", bootstrap, "describe")
    assert "Produce(0): 0 to 13 [usable: 13]" in tool("kafka-broker-api-versions", bootstrap)
