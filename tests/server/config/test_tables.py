"""The tables agree with the definitions of Apache Kafka 4.4: names, types, defaults, importance, rules."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import pytest

from ottla.server.config.broker import BROKER_CONFIGS, DYNAMIC_ONLY, SYNONYMS, key_of, synonyms
from ottla.server.config.key import ConfigError, ConfigKey, Scope, Type
from ottla.server.config.resource_configs import (
    ASSIGNOR,
    GROUP_CONFIGS,
    TOPIC_CONFIGS,
    TOPIC_SYNONYMS,
    broker_default,
    topic_defaults,
)

GOLDEN = Path(__file__).parent.parent / "golden"
TABLES = {"broker": BROKER_CONFIGS, "topic": TOPIC_CONFIGS}


def definitions(kind: str) -> list[dict[str, str]]:
    with open(GOLDEN / f"{kind}_configs.csv", newline="") as file:
        return list(csv.DictReader(file))


ROWS = [(kind, row) for kind in TABLES for row in definitions(kind)]


@pytest.mark.parametrize("kind", TABLES)
def test_every_name_is_there_and_no_other(kind: str) -> None:
    assert {name for name in TABLES[kind] if not name.startswith("ottla.")} == {
        row["name"] for row in definitions(kind)
    }


@pytest.mark.parametrize(("kind", "row"), ROWS, ids=lambda value: value["name"] if isinstance(value, dict) else value)
def test_a_row_says_what_kafka_says(kind: str, row: dict[str, str]) -> None:
    key = TABLES[kind][row["name"]]
    assert key.type.name == row["type"]
    assert key.importance.name == row["importance"]
    assert key.internal == (row["internal"] == "true")
    if row["default"] == "<required>":
        assert key.required
    elif row["default"] == "null":
        assert key.default is None
    else:
        default = row["default"].removeprefix("class ")
        default = default.strip("[]").replace(", ", ",") if key.type is Type.LIST else default
        assert key.to_text(key.default) == default
    check_rule(key, row["validator"])


#: Kafka has no rule for these; it fails when it uses the value.
CHECKED_LATER_BY_KAFKA = {"group.share.persister.class.name", "max.connections.per.ip.overrides"}


def check_rule(key: ConfigKey, rule: str) -> None:
    """Values just inside of the bounds are valid, values just outside are not."""
    bounds = re.fullmatch(r"\[([-\d.]+),\.\.\.(?:,([-\d.]+))?\]( or -1)?", rule)
    if bounds is None:
        if rule == "null" and key.type is not Type.LIST and key.name not in CHECKED_LATER_BY_KAFKA:
            assert key.validator is None
        return
    low, high, or_minus_one = bounds.groups()
    assert accepts(key, low)
    assert not accepts(key, str(float(low) - 0.5) if "." in low or key.type is Type.DOUBLE else str(int(low) - 1))
    assert accepts(key, "-1") == (or_minus_one is not None or float(low) <= -1)
    if high is not None:
        assert accepts(key, high)
        assert not accepts(key, str(float(high) + 0.5) if key.type is Type.DOUBLE else str(int(high) + 1))


def accepts(key: ConfigKey, text: str) -> bool:
    try:
        key.parse(text)
    except ConfigError:
        return False
    return True


@pytest.mark.parametrize("name", [*BROKER_CONFIGS, *TOPIC_CONFIGS, *GROUP_CONFIGS])
def test_every_default_is_allowed_and_described(name: str) -> None:
    key = BROKER_CONFIGS.get(name) or TOPIC_CONFIGS.get(name) or GROUP_CONFIGS[name]
    assert key.doc.endswith(".")
    assert 10 < len(key.doc) < 220
    if key.validator is not None and not key.required and key.default is not None:
        key.validator(name, key.default)


def test_every_topic_configuration_gets_a_broker_default_of_its_own_type() -> None:
    for name, names in TOPIC_SYNONYMS.items():
        for synonym, factor in names:
            assert factor == 1 or TOPIC_CONFIGS[name].type is Type.LONG
            assert BROKER_CONFIGS[synonym].type is TOPIC_CONFIGS[name].type or factor > 1, synonym
    values: dict[str, Any] = {name: key.default for name, key in BROKER_CONFIGS.items()}
    assert topic_defaults(values) == {name: key.default for name, key in TOPIC_CONFIGS.items()}


def test_groups_start_from_the_brokers_defaults() -> None:
    for name, key in GROUP_CONFIGS.items():
        default = broker_default(name)
        if default is not None and name != ASSIGNOR:
            assert (BROKER_CONFIGS[default].default, BROKER_CONFIGS[default].type) == (key.default, key.type), name


def test_what_can_change_while_running_is_what_kafka_lets_change() -> None:
    changing = {name for name, key in {**BROKER_CONFIGS, **DYNAMIC_ONLY}.items() if key.dynamic is not Scope.READ_ONLY}
    assert {"log.retention.ms", "message.max.bytes", "num.io.threads", "leader.replication.throttled.rate"} <= changing
    assert not changing & {"log.retention.hours", "log.dirs", "node.id", "num.partitions", "advertised.listeners"}
    per_broker = {name for name in changing if (key_of(name) or BROKER_CONFIGS["node.id"]).dynamic is Scope.PER_BROKER}
    assert {"listeners", "ssl.keystore.location", "sasl.jaas.config"} <= per_broker
    # 102 in 4.3.1; new in 4.4 are three of logs, and the two of dead-letter topics (KAFKA-20410).
    assert (len(changing), len(per_broker)) == (107, 37)


def test_synonyms_name_rows_that_exist() -> None:
    for names in SYNONYMS:
        assert all(name in BROKER_CONFIGS for name in names)
    assert synonyms("log.retention.hours") == ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
    assert synonyms("log.flush.scheduler.interval.ms") == ("log.flush.scheduler.interval.ms",)
    assert synonyms("listener.name.a.plain.sasl.jaas.config") == (
        "listener.name.a.plain.sasl.jaas.config",
        "sasl.jaas.config",
    )
