"""Sources and synonyms, compared with those of Apache Kafka 4.3.1 for the same settings (invariant 52)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_configs import DescribeConfigsResourceResult
from ottla.protocol.releases import RELEASES
from ottla.server.config.dynamic import (
    DEDUPE_BUFFER_MIN,
    check_broker_configs,
    describe_broker,
    describe_broker_defaults,
    describe_client_metrics,
    describe_group,
    describe_topic,
)
from ottla.server.config.key import ConfigError
from ottla.server.config.node_config import NodeConfig

#: The rows of each resource (type:name): name, value, read-only, source, sensitive, type, synonyms.
GOLDEN: dict[str, list[list[Any]]] = json.loads(
    (Path(__file__).parent.parent / "golden" / "describe_configs_4_3_1.json").read_text()
)
GOLDEN_4_4: dict[str, list[list[Any]]] = json.loads(
    (Path(__file__).parent.parent / "golden" / "describe_configs_4_4_0.json").read_text()
)
STATIC = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:22150",
    "listeners": "PLAINTEXT://localhost:22050,CONTROLLER://localhost:22150",
    "advertised.listeners": "PLAINTEXT://localhost:22050",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "log.dirs": "/data/node1",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "num.partitions": "1",
}
OF_BROKER_1 = {
    "log.retention.ms": "7200000",
    "num.io.threads": "5",
    "listener.name.plaintext.ssl.keystore.password": "x",
    "my.own": "1",
}
OF_ALL_BROKERS = {
    "log.retention.ms": "3600000",
    "message.max.bytes": "2000000",
    "log.cleaner.min.cleanable.ratio": "0.25",
    "min.insync.replicas": "1",
}
TOPIC = {"retention.ms": "1000", "cleanup.policy": "compact,delete", "max.message.bytes": "5"}
GROUP = {"consumer.session.timeout.ms": "50000", "share.isolation.level": "read_committed"}


@pytest.fixture
def config() -> NodeConfig:
    config = NodeConfig(STATIC)
    config.set_dynamic(OF_BROKER_1, OF_ALL_BROKERS)
    return config


def rows(described: list[DescribeConfigsResourceResult]) -> dict[str, list[Any]]:
    return {
        row.name: [
            row.name, row.value, row.read_only, row.config_source, row.is_sensitive, row.config_type,
            [[synonym.name, synonym.value, synonym.source] for synonym in row.synonyms],
        ]
        for row in described
        if not row.name.startswith("ottla.")  # the configurations of tables, which Kafka does not have
    }  # fmt: skip


def compare(described: list[DescribeConfigsResourceResult], resource: str) -> None:
    ours = rows(described)
    theirs = {row[0]: row for row in GOLDEN[resource]}
    assert {name: ours.get(name) for name in theirs} == theirs


def test_a_broker(config: NodeConfig) -> None:
    described = describe_broker(config.levels, config.values)
    compare(described, "4:1")
    assert rows(described).keys() - {row[0] for row in GOLDEN["4:1"]} <= RELEASES["4.3.1"].lacks_configs("broker")


@pytest.mark.parametrize("resource", ["4:1", "2:t1", "32:g1", "32:g0"])
def test_everything_is_described_as_by_the_newest_release_and_nothing_else(config: NodeConfig, resource: str) -> None:
    described = {
        "4:1": lambda: describe_broker(config.levels, config.values),
        "2:t1": lambda: describe_topic(TOPIC, config.levels, config.values),
        "32:g1": lambda: describe_group(GROUP, config.levels, config.values),
        "32:g0": lambda: describe_group({}, config.levels, config.values),
    }[resource]()
    assert rows(described) == {row[0]: row for row in GOLDEN_4_4[resource]}


def test_an_internal_setting_of_a_group_is_described_where_it_is_set(config: NodeConfig) -> None:
    described = rows(describe_group({"streams.num.warmup.replicas": "3"}, config.levels, config.values))
    assert len(described) == len(GOLDEN_4_4["32:g0"]) + 1
    assert described["streams.num.warmup.replicas"][1] == "3"


def test_what_was_set_for_all_brokers(config: NodeConfig) -> None:
    compare(describe_broker_defaults(config.levels), "4:")


def test_a_topic(config: NodeConfig) -> None:
    compare(describe_topic(TOPIC, config.levels, config.values), "2:t1")


def test_groups_with_and_without_their_own_values(config: NodeConfig) -> None:
    compare(describe_group(GROUP, config.levels, config.values), "32:g1")
    compare(describe_group({}, config.levels, config.values), "32:g2")


def test_a_subscription_to_client_metrics() -> None:
    compare(describe_client_metrics({"interval.ms": "5000", "match": "client_id=a.*"}), "16:sub")


def test_no_secret_is_ever_shown(config: NodeConfig) -> None:
    secret = NodeConfig(
        {**STATIC, "ssl.key.password": "hunter2", "sasl.jaas.config": "hunter2", "unknown.thing": "hunter2"}
    )
    assert "hunter2" not in repr(describe_broker(secret.levels, secret.values))


#: Attempts to set a config, for one broker (True) or for all, and Kafka's response (None: accepted).
ATTEMPTS = [
    (
        True,
        "log.segment.bytes",
        "abc",
        "Invalid value abc for configuration log.segment.bytes: Not a number of type INT",
    ),
    (
        True,
        "log.segment.bytes",
        "1",
        "Invalid value 1 for configuration log.segment.bytes: Value must be at least 1048576",
    ),
    (True, "num.io.threads", "0", "Invalid value 0 for configuration num.io.threads: Value must be at least 1"),
    (True, "broker.id", "5", "Cannot update these configs dynamically: [broker.id]"),
    (True, "nosuch", "x", None),
    (
        True,
        "ssl.keystore.location",
        "x",
        "These security configs can be dynamically updated only per-listener using the listener prefix: [ssl.keystore.location]",
    ),
    (True, "listener.name.foo.ssl.keystore.location", "x", None),
    (True, "log.retention.hours", "5", "Cannot update these configs dynamically: [log.retention.hours]"),
    (True, "log.retention.ms", "5", None),
    (False, "log.retention.ms", "5", None),
    (False, "num.partitions", "3", "Cannot update these configs dynamically: [num.partitions]"),
    (
        False,
        "listener.name.foo.ssl.keystore.location",
        "x",
        "Cannot update these configs at default cluster level, broker id must be specified: [listener.name.foo.ssl.keystore.location]",
    ),
    (
        False,
        "listeners",
        "PLAINTEXT://:1",
        "Cannot update these configs at default cluster level, broker id must be specified: [listeners]",
    ),
    (True, "listeners", "PLAINTEXT://:1", "Cannot update these configs without a restart: [listeners]"),
    (
        False,
        "log.cleaner.dedupe.buffer.size",
        str(DEDUPE_BUFFER_MIN - 1),
        "requirement failed: log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
    ),
    (True, "log.cleaner.dedupe.buffer.size", str(DEDUPE_BUFFER_MIN), None),
    # Kafka 4.3.1 does not parse it either: it applies to listeners that are opened later.
    (True, "listener.name.foo.scram-sha-256.sasl.jaas.config", "no login module", None),
    # With a listener's name, it has the mode of the property without the prefix.
    (False, "listener.name.foo.max.connections", "5", None),
    (True, "listener.name.foo.num.partitions", "5", None),
    (
        False,
        "listener.name.foo.sasl.enabled.mechanisms",
        "PLAIN",
        "Cannot update these configs at default cluster level, broker id must be specified: [listener.name.foo.sasl.enabled.mechanisms]",
    ),
]


def test_one_bad_config_is_named_whatever_stands_beside_it() -> None:
    with pytest.raises(ConfigError) as refusal:
        check_broker_configs({"log.retention.ms": "5", "num.partitions": "3"}, per_broker=True)
    assert str(refusal.value) == "Cannot update these configs dynamically: [num.partitions]"


@pytest.mark.parametrize(("per_broker", "name", "value", "said"), ATTEMPTS)
def test_what_may_be_set_while_brokers_run(per_broker: bool, name: str, value: str, said: str | None) -> None:
    if said is None:
        check_broker_configs({name: value}, per_broker=per_broker)
        return
    with pytest.raises(ConfigError) as refusal:
        check_broker_configs({name: value}, per_broker=per_broker)
    assert str(refusal.value) == said
    assert refusal.value.as_reply().code is ErrorCode.INVALID_REQUEST
