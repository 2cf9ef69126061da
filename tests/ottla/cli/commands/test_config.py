"""`ottla config` against a node."""

from __future__ import annotations

import pytest

from ottla.cli.errors import FAILED
from tests.ottla.conftest import Cli


def value_of(cli: Cli, topic: str, key: str) -> tuple[object, object]:
    (row,) = cli.rows("config", "get", "topic", topic, key)
    return row["value"], row["source"]


def test_a_setting_is_set_and_given_back(cli: Cli) -> None:
    topic = cli.topic()
    default = value_of(cli, topic, "retention.ms")
    assert default[1] == "default"
    said = cli("config", "set", "topic", topic, "retention.ms=5000", "cleanup.policy=compact,delete").err
    assert f"topic {topic}: retention.ms {default[0]} -> 5000\n" in said
    assert value_of(cli, topic, "retention.ms") == ("5000", "topic")
    assert value_of(cli, topic, "cleanup.policy") == ("compact,delete", "topic")
    changed = {row["name"] for row in cli.rows("config", "get", "topic", topic, "--changed")}
    assert {"retention.ms", "cleanup.policy"} <= changed and "segment.bytes" not in changed
    assert f"retention.ms 5000 -> {default[0]} (default)" in cli("config", "unset", "topic", topic, "retention.ms").err
    assert value_of(cli, topic, "retention.ms") == default


@pytest.mark.ours
def test_the_settings_of_tables_are_set_and_asked_for_where_a_topic_has_no_table(cli: Cli) -> None:
    topic = cli.topic()
    assert value_of(cli, topic, "ottla.table.format") == ("none", "default")
    cli.ok("config", "set", "topic", topic, "ottla.table.commit.interval.ms=5000")
    assert value_of(cli, topic, "ottla.table.commit.interval.ms") == ("5000", "topic")
    shown = {row["name"] for row in cli.rows("config", "get", "topic", topic)}
    assert "ottla.table.commit.interval.ms" in shown and "ottla.table.format" not in shown


def test_a_dry_run_changes_nothing(cli: Cli) -> None:
    topic = cli.topic()
    before = value_of(cli, topic, "retention.ms")
    cli.ok("config", "set", "topic", topic, "retention.ms=5000", "--dry-run")
    assert value_of(cli, topic, "retention.ms") == before


def test_wrong_names_and_values_are_refused_and_change_nothing(cli: Cli) -> None:
    topic = cli.topic()
    before = cli.rows("config", "get", "topic", topic)
    unknown = cli("config", "set", "topic", topic, "retention.mss=1")
    assert unknown.code == FAILED and "'retention.ms'" in unknown.err
    asked = cli("config", "get", "topic", topic, "retention.mss")
    assert asked.code == FAILED and "'retention.ms'" in asked.err
    wrong = cli("config", "set", "topic", topic, "retention.ms=soon")
    assert wrong.code == FAILED and "INVALID_CONFIG" in wrong.err
    assert cli.rows("config", "get", "topic", topic) == before


def test_a_topic_that_is_not_there(cli: Cli) -> None:
    done = cli("config", "get", "topic", "no-such-topic-at-all")
    assert done.code == FAILED and "UNKNOWN_TOPIC_OR_PARTITION" in done.err


def test_a_broker_shows_its_own_settings(cli: Cli) -> None:
    (broker, *_) = cli.rows("cluster", "info")
    rows = {row["name"]: row for row in cli.rows("config", "get", "broker", str(broker["broker"]), "--docs")}
    assert rows["node.id"]["value"] == str(broker["broker"])
    assert rows["node.id"]["read_only"] is True
    assert rows["log.retention.hours"]["documentation"]
