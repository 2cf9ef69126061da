"""Topics and records of a mirror, as a reader of the target finds them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.cli.errors import FAILED, USAGE
from ottla.mirror.reader import ReadThrottle
from tests.ottla.conftest import run_here
from tests.ottla.mirror.conftest import Mirror


def test_a_mirror_has_the_partitions_settings_and_records_of_the_source(mirror: Mirror) -> None:
    settings = {"retention.ms": "86400000", "min.insync.replicas": "1", "message.timestamp.type": "CreateTime"}
    rows: list[dict[str, object]] = [
        {"key": "k", "value": "v", "partition": 2, "timestamp": 1_700_000_000_000, "headers": {"h": "x"}},
        {"key": None, "value": "no key", "partition": 0, "timestamp": 1_700_000_000_001},
        {"key": "k", "value": None, "partition": 2, "timestamp": 1_700_000_000_002},
    ]
    topic = mirror.west.topic(f"{mirror.name}-records", partitions=3, configs=settings, seed=rows)
    mirror.once()
    assert mirror.east.records(f"west.{topic}") == mirror.west.records(topic)
    found = run_here("config", "get", "topic", f"west.{topic}", "-b", mirror.east.bootstrap, "-o", "json").out
    own = {row["name"]: row["value"] for row in map(json.loads, found.splitlines()) if row["source"] == "topic"}
    assert own == {"retention.ms": "86400000"}


def test_a_second_run_goes_on_where_the_first_has_ended(mirror: Mirror) -> None:
    topic = mirror.west.topic(f"{mirror.name}-t", partitions=2, seed=[f"{i}" for i in range(100)])
    mirror.once()
    mirror.west.write(topic, [f"{i}" for i in range(100, 150)])
    assert "50 records" in mirror.once().err
    assert set(mirror.values(f"west.{topic}")) == {f"{i}".encode() for i in range(150)}
    assert len(mirror.values(f"west.{topic}")) == sum(mirror.positions(topic).values()) == 150


def test_settings_follow_and_a_topic_that_is_deleted_in_the_source_stays(mirror: Mirror) -> None:
    topic = mirror.west.topic(f"{mirror.name}-t", configs={"retention.ms": "86400000"}, seed=["x"])
    other = mirror.west.topic(f"{mirror.name}-other", configs={"retention.ms": "86400000"})

    def retention(name: str) -> str:
        found = run_here("config", "get", "topic", f"west.{name}", "-b", mirror.east.bootstrap, "-o", "json").out
        return str(next(row["value"] for row in map(json.loads, found.splitlines()) if row["name"] == "retention.ms"))

    mirror.once()
    for name in (topic, other):
        changed = run_here("config", "set", "topic", name, "retention.ms=3600000", "-b", mirror.west.bootstrap)
        assert changed.code == 0
    mirror.once("--no-settings")
    assert retention(topic) == "86400000"
    mirror.once()
    assert [retention(name) for name in (topic, other)] == ["3600000", "3600000"]
    assert run_here("topic", "delete", topic, "--yes", "-b", mirror.west.bootstrap).code == 0
    mirror.once()
    assert mirror.values(f"west.{topic}") == [b"x"]


def test_aliases_without_addresses_are_contexts(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    topic = mirror.west.topic(f"{mirror.name}-t", seed=["x"])
    for alias, side in (("west", mirror.west), ("east", mirror.east)):
        assert run_here("context", "set", alias, "-b", side.bootstrap).code == 0
    done = run_here("mirror", "run", "west", "east", "--topics", topic, "--once", "--no-heartbeats")
    assert done.code == 0, done.err
    assert mirror.values(f"west.{topic}") == [b"x"]


def test_a_throttle_lets_a_second_go_ahead_and_then_keeps_the_rate() -> None:
    throttle = ReadThrottle(1_000, now_ms=0)
    assert [throttle.wait_s(500, now_ms=0), throttle.wait_s(500, now_ms=0)] == [0.0, 0.0]
    assert throttle.wait_s(2_000, now_ms=0) == 2.0
    assert throttle.wait_s(500, now_ms=2_000) == 0.5
    assert throttle.wait_s(1_000, now_ms=60_000) == 0.0
    assert ReadThrottle(None, now_ms=0).wait_s(1 << 40, now_ms=0) == 0.0


def test_partitions_that_are_added_later_come_too(mirror: Mirror) -> None:
    topic = mirror.west.topic(f"{mirror.name}-t", seed=["0"])
    mirror.once()
    assert run_here("topic", "add-partitions", topic, "--to", "2", "-b", mirror.west.bootstrap).code == 0
    mirror.west.write(topic, [{"value": "1", "partition": 1}])
    mirror.once()
    assert [(row.partition, row.value) for row in mirror.east.records(f"west.{topic}")] == [(0, b"0"), (1, b"1")]


def test_a_topic_that_came_from_the_target_is_not_mirrored_back(mirror: Mirror) -> None:
    names = [f"east.{mirror.name}", f"north.east.{mirror.name}", f"north.{mirror.name}"]
    for name in names:
        mirror.west.topic(name, seed=["x"])
    said = mirror.once("--topics", f".*{mirror.name}").err
    assert f"not mirrored, because they came from east: {names[0]}, {names[1]}\n" in said
    there = {topic.name for topic in mirror.east.metadata().topics}
    assert {f"west.{name}" for name in names} & there == {f"west.{names[2]}"}


def test_aborted_and_open_transactions_stay_out(mirror: Mirror) -> None:
    topic = mirror.west.topic(f"{mirror.name}-t", seed=["plain"])
    producer = mirror.west.producer(transactional_id=f"{topic}-id")
    producer.init_transactions(30)
    for value, end in (("aborted", producer.abort_transaction), ("committed", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(30)
        end(30)
    producer.begin_transaction()
    producer.produce(topic, "open")
    producer.flush(30)
    mirror.once()
    assert mirror.values(f"west.{topic}") == [b"plain", b"committed"]
    producer.commit_transaction(30)
    mirror.once()
    assert mirror.values(f"west.{topic}") == [b"plain", b"committed", b"open"]


def test_names_stay_with_the_identity_policy(mirror: Mirror) -> None:
    topic = mirror.west.topic(f"{mirror.name}-t", seed=["x"])
    mirror.once("--policy", "identity", "--delivery", "at-least-once")
    assert mirror.values(topic) == [b"x"]
    assert mirror.positions(topic) == {0: 1}


def test_a_dry_run_says_what_it_would_do_and_changes_nothing(mirror: Mirror) -> None:
    topic = mirror.west.topic(f"{mirror.name}-t")
    before = {each.name for each in mirror.east.metadata().topics}
    said = mirror.once("--dry-run").err
    assert f"would mirror {topic} to west.{topic}, which it would create" in said
    assert {each.name for each in mirror.east.metadata().topics} == before


def test_a_cluster_is_not_mirrored_to_itself(mirror: Mirror) -> None:
    done = run_here("mirror", "run", "west", "east", "-b", mirror.west.bootstrap, "--to", mirror.west.bootstrap)
    assert done.code == FAILED
    assert "west and east are the same cluster" in done.err


def test_wrong_options_are_said_before_anything_is_done() -> None:
    for options, word in (
        (["west", "west"], "cannot be mirrored to itself"),
        (["we.st", "east"], "no alias of a cluster"),
        (["west", "east", "--topics", "("], "no regular expression"),
        (["west", "east", "--throttle", "0"], "not above 0"),
    ):
        done = run_here("mirror", "run", *options, "-b", "localhost:1", "--to", "localhost:2")
        assert (done.code, word in done.err) == (USAGE, True), done.err
