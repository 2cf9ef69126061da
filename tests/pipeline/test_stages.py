"""The stages on a live node: every count is compared with the truth; and what the stages do when the topic has changed.

One file, so that one worker runs it all with one JVM.
"""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.needs import needs_packages

needs_packages("pyspark")

from ottla.pipeline import (
    backfill,
    bronze,
    freshness,
    generate,
    gold,
    read_topic,
    report,
    session,
    silver,
    tables,
    topics,
    verify,
)
from ottla.pipeline import run as stages
from ottla.pipeline.config import Config, changed, load
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.events import Event, to_avro, to_json
from ottla.testing import Cluster
from tests.pipeline.conftest import Node

pytestmark = pytest.mark.timeout(600)  # the first test of a worker starts Spark, on a machine that may be busy


def set_of(config: Config, **settings: str) -> Config:
    for name, value in settings.items():
        config = changed(config, "source", name, value, "test")
    return config


@pytest.mark.compat
def test_a_micro_batch_holds_no_more_offsets_than_allowed(spark: Any, node: Node, tmp_path: Path) -> None:
    config = set_of(node.config(tmp_path), max_offsets_per_trigger="40", min_partitions="2")
    topics.ensure(config)
    node.send(config.kafka.events, 100)
    stages.run(config, [bronze.STAGE])
    batches = [json.loads(line) for line in (tmp_path / "progress.jsonl").read_text().splitlines()]
    assert [each["rows"] for each in batches if each["rows"]] == [40, 40, 20]
    lags = [(each.get("lag_offsets_before"), each["lag_offsets"]) for each in batches if each["rows"]]
    assert lags == [(None, 60), (60, 20), (20, 0)]
    assert values_of_bronze(config) == list(range(100))


def test_bronze_reads_with_the_connector_without_a_jar(spark: Any, node: Node, tmp_path: Path) -> None:
    config = set_of(node.config(tmp_path), connector="ottla", max_offsets_per_trigger="40")
    topics.ensure(config)
    node.send(config.kafka.events, 100)
    stages.run(config, [bronze.STAGE])
    node.send(config.kafka.events, 1, value=b"100")
    stages.run(config, [bronze.STAGE])
    assert values_of_bronze(config) == list(range(101))


@pytest.mark.compat
def test_spark_reads_and_writes_with_the_login_of_a_file_of_client_properties(spark: Any, tmp_path: Path) -> None:
    with Cluster(1, secure=True) as cluster:
        settings = (
            f"kafka.bootstrap_servers={cluster.bootstrap}",
            f"pipeline.output={tmp_path}",
            "pipeline.trigger=once",
        )
        config = load(None, settings, cluster.client_file)
        topics.ensure(config)
        producer = Producer(cluster.client_settings)
        for number in range(10):
            producer.produce(config.kafka.events, b"%d" % number)
        assert producer.flush(30) == 0
        stages.run(config, [bronze.STAGE, silver.STAGE])
        assert values_of_bronze(config) == list(range(10))
        assert len(list(read_topic.records(config, config.kafka.dead_letters))) == 10  # a number is no event


def values_of_bronze(config: Config) -> list[int]:
    return sorted(int(row["value"]) for row in tables.rows(tables.sink(config, "bronze", ["value"])))


@pytest.mark.chaos
def test_retention_that_overtakes_the_reader_stops_it_or_is_passed_over_as_configured(
    spark: Any, node: Node, tmp_path: Path
) -> None:
    config = node.config(tmp_path, "kafka.partitions=1")
    topics.ensure(config)
    node.send(config.kafka.events, 5)
    stages.run(config, [bronze.STAGE])
    node.send(config.kafka.events, 10)
    node.drop_before(config.kafka.events, 9)
    with pytest.raises(PipelineError, match="fail_on_data_loss"):
        stages.run(config, [bronze.STAGE])
    stages.run(set_of(config, fail_on_data_loss="false"), [bronze.STAGE])
    rows = tables.rows(tables.sink(config, "bronze", ["offset"]))
    assert sorted(row["offset"] for row in rows) == [*range(5), *range(9, 15)]


def test_every_stage_holds_exactly_what_was_acknowledged(spark: Any, node: Node, tmp_path: Path) -> None:
    """Twice, so that the second run begins with checkpoints, state and tables of the first."""
    config = node.config(tmp_path)
    path = str(tmp_path / "truth.jsonl")
    for seed in (1, 2):
        mix = generate.Mix(bad=6, duplicates=6, late=10)
        counts = generate.run(
            config, rate=400, seconds=1.5, mix=mix, truth_path=path, seed=seed, show=lambda found: None
        )
        assert counts.total() == 600 and not counts["unacknowledged"]
        stages.run(config, [bronze.STAGE, silver.STAGE, gold.STAGE])
    wrong = [check for check in verify.verify(config, path) if not check.holds]
    assert not wrong
    assert_backfill_agrees(config)


@pytest.mark.compat
def test_the_brokers_table_in_place_of_bronze_gives_the_same_counts(spark: Any, node: Node, tmp_path: Path) -> None:
    needs_packages("obstore")  # the node's
    settings = (f"source.tables={node.tables}", "source.table_interval_ms=200", f"pipeline.output={tmp_path / 'table'}")
    config = node.config(tmp_path, *settings, "source.connector=table")
    path = str(tmp_path / "truth.jsonl")
    topics.ensure(config)
    mix = generate.Mix(bad=6, duplicates=6, late=10)
    generate.run(config, rate=400, seconds=1, mix=mix, truth_path=path, seed=3, show=lambda found: None)
    stages.run(config, [silver.STAGE, gold.STAGE])
    checks = verify.verify(config, path)
    assert len(checks) > 10 and not [check for check in checks if not check.holds]
    by_spark = changed(set_of(config, connector="kafka"), "pipeline", "output", str(tmp_path / "spark"), "test")
    stages.run(by_spark, [bronze.STAGE])
    places = verify.places_of_bronze(config)
    assert len(places) == 400 and sorted(places) == sorted(verify.places_of_bronze(by_spark))
    assert freshness.of_table(config) and freshness.of_stage(by_spark)
    assert all(0 <= point.age_s < 300 for point in freshness.of_table(config))
    page = Path(report.write(config))
    assert "<td>400</td>" in page.read_text() and (page.parent / "freshness.png").stat().st_size > 5_000


def test_a_topic_that_is_no_table_is_not_read_as_one(node: Node, tmp_path: Path) -> None:
    config = node.config(tmp_path, f"source.tables={node.tables}", "source.connector=table")
    node.topic(name=config.kafka.events)
    with pytest.raises(PipelineError, match=r"is no table of Parquet.*ottla config set topic"):
        topics.ensure(config)


def assert_backfill_agrees(config: Config) -> None:
    """The same topic as one batch gives the same tables."""
    backfill.run(backfill.ranged(config, "earliest", "latest"))
    for name, columns in (
        ("windows", ("window_ms", "page", "views", "duration_ms")),
        ("sessions", ("user", "start_ms", "end_ms", "events")),
    ):
        files = [str(file) for file in Path(config.path("backfill", name)).glob("*.parquet")]
        streamed, at_once = tables.rows(tables.gold(config, name)), tables.rows(tables.parquet(files, None))
        assert at_once, name
        assert {tuple(row[c] for c in columns) for row in at_once} == {
            tuple(row[c] for c in columns) for row in streamed
        }


@pytest.mark.chaos
@pytest.mark.parametrize("trigger, number", [("once", signal.SIGINT), ("1 second", signal.SIGTERM)])
def test_a_signal_ends_the_stages_after_their_micro_batch_also_where_spark_would_cut_it_short(
    spark: Any, node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trigger: str, number: signal.Signals
) -> None:
    """A new session has a handler by which Ctrl-C cancels all jobs and raises KeyboardInterrupt; ours has to be set after it."""

    def cut_short(number: int, frame: Any) -> None:
        spark.sparkContext.cancelAllJobs()
        raise KeyboardInterrupt

    def started(config: Config) -> Any:
        signal.signal(signal.SIGINT, cut_short)
        return spark

    def interrupted(running: Any, config: Config) -> list[Any]:
        queries = bronze.STAGE.start(running, config)
        signal.raise_signal(number)
        return queries

    config = node.config(tmp_path, f"pipeline.trigger={trigger}")
    topics.ensure(config)
    node.send(config.kafka.events, 100)
    monkeypatch.setattr(session, "start", started)
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        stages.run(config, [bronze.STAGE._replace(start=interrupted)])
        after = {each: signal.getsignal(each) for each in before}
    finally:
        signal.signal(signal.SIGINT, before[signal.SIGINT])
    assert after == before | {signal.SIGINT: cut_short}


def test_an_empty_topic_is_no_failure(spark: Any, node: Node, tmp_path: Path) -> None:
    stages.run(node.config(tmp_path), [bronze.STAGE, silver.STAGE, gold.STAGE])


def test_rows_that_changed_or_are_broken_do_not_stop_the_stream(spark: Any, node: Node, tmp_path: Path) -> None:
    """New fields, a missing field, broken JSON and broken Avro: each gets to its place in one run."""
    config = node.config(tmp_path, "kafka.partitions=1", "pipeline.max_lateness_ms=1000", "pipeline.watermark=1 minute")
    topics.ensure(config)
    now_ms = int(time.time() * 1000)
    events = [Event(f"id-{number}", now_ms, "anna", "/", 1, "/from") for number in range(5)]
    new_field = json.dumps({**events[0]._asdict(), "colour": {"red": 1}}).encode()
    good = [new_field, to_json(events[1]._replace(referrer=None)), to_avro(events[2], 1), to_avro(events[3], 2)]
    gone = json.dumps({key: value for key, value in events[4]._asdict().items() if key != "page"}).encode()
    bad = {b'{"event_id":': "malformed-json", to_avro(events[4], 2)[:-3]: "malformed-avro", gone: "missing-field"}
    for value in (*good, *bad, *good):
        node.send(config.kafka.events, 1, value=value, timestamp=now_ms, key=b"k", headers=[("trace", b"7")])
    stages.run(config, [bronze.STAGE, silver.STAGE])
    rows = tables.rows(tables.sink(config, "silver", ["event_id", "referrer"]))
    assert {row["event_id"]: row["referrer"] for row in rows} == {"id-0": "/from", "id-1": None, "id-2": None, "id-3": "/from"}  # fmt: skip
    assert len(rows) == 4
    letters = list(read_topic.records(config, config.kafka.dead_letters))
    assert {each.value: each.headers["error.reason"].decode() for each in letters} == bad
    assert [(each.key, each.headers["trace"], each.headers["source.offset"]) for each in letters] == [
        (b"k", b"7", b"%d" % offset) for offset in (4, 5, 6)
    ]
