"""The values that topics, groups and client-metrics subscriptions may have, with Kafka's messages (taken from 4.3.1)."""

from __future__ import annotations

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.server.config.broker import BROKER_CONFIGS
from ottla.server.config.key import ConfigError
from ottla.server.config.resource_configs import (
    check_client_metrics,
    check_group_configs,
    check_topic_configs,
    effective_group_values,
    topic_values,
)

DEFAULTS = {name: key.default for name, key in BROKER_CONFIGS.items()}

TOPIC_ATTEMPTS = [
    ({"retention.ms": "abc"}, "Invalid value abc for configuration retention.ms: Not a number of type LONG"),
    ({"retention.ms": "-5"}, "Invalid value -5 for configuration retention.ms: Value must be at least -1"),
    (
        {"cleanup.policy": "foo"},
        "Invalid value foo for configuration cleanup.policy: String must be one of: compact, delete",
    ),
    ({"cleanup.policy": ""}, None),
    (
        {"min.cleanable.dirty.ratio": "2"},
        "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
    ),
    (
        {"compression.type": "foo"},
        "Invalid value foo for configuration compression.type: String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
    ),
    (
        {"compression.gzip.level": "0"},
        "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1",
    ),
    (
        {"preallocate": "maybe"},
        "Invalid value maybe for configuration preallocate: Expected value to be either true or false",
    ),
    (
        {"leader.replication.throttled.replicas": "x"},
        "Invalid value [x] for configuration leader.replication.throttled.replicas: leader.replication.throttled.replicas must be "
        "the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],...",
    ),
    ({"leader.replication.throttled.replicas": "0:1,1:2"}, None),
    ({"follower.replication.throttled.replicas": "*"}, None),
    ({"segment.bytes": "5"}, "Invalid value 5 for configuration segment.bytes: Value must be at least 1048576"),
    (
        {"segment.bytes": "99999999999"},
        "Invalid value 99999999999 for configuration segment.bytes: Not a number of type INT",
    ),
    (
        {"message.timestamp.type": "foo"},
        "Invalid value foo for configuration message.timestamp.type: String must be one of: CreateTime, LogAppendTime",
    ),
    ({"nosuch": "1"}, "Unknown topic config name: nosuch"),
    ({"max.message.bytes": ""}, "Invalid value  for configuration max.message.bytes: Not a number of type INT"),
    (
        {"compression.lz4.level": "18"},
        "Invalid value 18 for configuration compression.lz4.level: Value must be no more than 17",
    ),
    (
        {"remote.storage.enable": "true"},
        "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.",
    ),
    ({"retention.ms": " 100 "}, None),
    (
        {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
        "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
    ),
]

GROUP_ATTEMPTS = [
    (
        {"consumer.session.timeout.ms": "abc"},
        "Invalid value abc for configuration consumer.session.timeout.ms: Not a number of type INT",
    ),
    (
        {"consumer.session.timeout.ms": "1"},
        "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
    ),
    (
        {"share.auto.offset.reset": "foo"},
        "Invalid value foo for configuration share.auto.offset.reset: Invalid value `foo` for configuration "
        "share.auto.offset.reset. The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'.",
    ),
    ({"share.auto.offset.reset": "by_duration:PT5M"}, None),
    ({"share.auto.offset.reset": "by_duration:P2DT3H4M5.5S"}, None),
    (
        {"share.isolation.level": "foo"},
        "Invalid value foo for configuration share.isolation.level: String must be one of: read_committed, read_uncommitted",
    ),
    ({"nosuch": "1"}, "Unknown group config name: nosuch"),
    (
        {"consumer.heartbeat.interval.ms": "100000"},
        "consumer.heartbeat.interval.ms must be less than or equal to group.consumer.max.heartbeat.interval.ms",
    ),
    (
        {"share.record.lock.duration.ms": "1"},
        "Invalid value 1 for configuration share.record.lock.duration.ms: Value must be at least 1000",
    ),
    (
        {"streams.num.standby.replicas": "99"},
        "streams.num.standby.replicas must be less than or equal to group.streams.max.standby.replicas",
    ),
    ({"consumer.session.timeout.ms": "50000"}, None),
]

CLIENT_METRICS_ATTEMPTS = [
    ({"interval.ms": "abc"}, "Invalid value abc for configuration interval.ms: Not a number of type INT"),
    ({"interval.ms": "1"}, "Invalid value 1 for interval.ms, interval must be between 100 and 3600000 (1 hour)"),
    ({"match": "foo"}, "Illegal client matching pattern: foo"),
    ({"match": "foo=bar"}, "Illegal client matching pattern: foo=bar"),
    ({"match": "client_id=["}, "Illegal client matching pattern: client_id=["),
    ({"match": "client_id=a=b"}, "Illegal client matching pattern: client_id=a=b"),
    ({"match": "client_id="}, "Illegal client matching pattern: client_id="),
    ({"match": "client_id=a{1001}"}, "Illegal client matching pattern: client_id=a{1001}"),
    ({"nosuch": "1"}, "Unknown client metrics configuration: nosuch"),
    ({"metrics": "", "interval.ms": "60000", "match": "client_id=a.*"}, None),
]


def said(check: object, *arguments: object) -> str | None:
    try:
        check(*arguments)
    except ConfigError as refusal:
        return str(refusal)
    return None


@pytest.mark.parametrize(("configs", "expected"), TOPIC_ATTEMPTS, ids=str)
def test_topics(configs: dict[str, str], expected: str | None) -> None:
    assert said(check_topic_configs, configs, DEFAULTS) == expected


@pytest.mark.parametrize(("configs", "expected"), GROUP_ATTEMPTS, ids=str)
def test_groups(configs: dict[str, str], expected: str | None) -> None:
    assert said(check_group_configs, configs, DEFAULTS) == expected


def test_a_value_of_a_group_is_within_bounds_that_the_broker_got_later() -> None:
    overrides = {"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "6000"}
    later = {
        **DEFAULTS,
        "group.consumer.max.session.timeout.ms": 47_000,
        "group.consumer.min.heartbeat.interval.ms": 7_000,
    }
    values = effective_group_values(overrides, later)
    assert (values["consumer.session.timeout.ms"], values["consumer.heartbeat.interval.ms"]) == (47_000, 7_000)
    # The broker's own default is not bounded.
    assert effective_group_values({}, later)["consumer.heartbeat.interval.ms"] == 5_000


@pytest.mark.parametrize(("configs", "expected"), CLIENT_METRICS_ATTEMPTS, ids=str)
def test_client_metrics(configs: dict[str, str], expected: str | None) -> None:
    assert said(check_client_metrics, configs) == expected


def test_client_metrics_patterns_that_are_too_deep_are_refused() -> None:
    text = "client_id=" + "(" * 5000
    assert said(check_client_metrics, {"match": text}) == f"Illegal client matching pattern: {text}"


def test_an_unknown_subscription_is_an_invalid_request() -> None:
    with pytest.raises(ConfigError) as refusal:
        check_client_metrics({"nosuch": "1"})
    assert refusal.value.as_reply().code is ErrorCode.INVALID_REQUEST


def test_a_topic_takes_the_brokers_value_in_its_own_unit() -> None:
    values = topic_values({}, {**DEFAULTS, "log.retention.hours": 2, "log.roll.hours": 3})
    assert values["retention.ms"] == 2 * 3_600_000
    assert values["segment.ms"] == 3 * 3_600_000
    assert topic_values({}, {**DEFAULTS, "log.retention.minutes": 5})["retention.ms"] == 300_000
    assert topic_values({}, {**DEFAULTS, "log.retention.ms": 7, "log.retention.minutes": 5})["retention.ms"] == 7
    assert topic_values({}, {**DEFAULTS, "log.retention.hours": -1})["retention.ms"] == -1
    assert topic_values({"retention.ms": "9"}, {**DEFAULTS, "log.retention.ms": 7})["retention.ms"] == 9


def test_remote_storage_is_refused_where_the_broker_has_none() -> None:
    configs, system = {"remote.storage.enable": "true"}, "remote.log.storage.system.enable"
    check_topic_configs(configs, {**DEFAULTS, system: True})
    for policy in ({}, {"cleanup.policy": "compact"}):  # Kafka 4.3 checks the broker first
        with pytest.raises(ConfigError, match="Tiered Storage functionality is disabled in the broker"):
            check_topic_configs(configs | policy, {**DEFAULTS, system: False})


@pytest.mark.parametrize(
    ("policy", "is_allowed"), [("delete", True), ("", True), ("compact", False), ("compact,delete", False)]
)
def test_remote_storage_is_for_topics_that_are_not_compacted(policy: str, is_allowed: bool) -> None:
    configs = {"remote.storage.enable": "true", "cleanup.policy": policy}
    refusal = said(
        lambda asked: check_topic_configs(asked, {**DEFAULTS, "remote.log.storage.system.enable": True}), configs
    )
    text = "Remote log storage only supports topics with cleanup.policy=delete or cleanup.policy being an empty list."
    assert refusal == (None if is_allowed else text)
