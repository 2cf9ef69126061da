"""Spark on a live node: the options people use, and the stages end to end, every count against the truth.

One file, so that one worker runs it all with one JVM.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra [pipeline] is not installed: pip install 'ottla[pipeline]'")

from pipeline import backfill, bronze, generate, tables, topics, verify
from pipeline import run as stages
from pipeline.config import Config, changed
from pipeline.errors import PipelineError
from pipeline.explain import explained
from tests.pipeline.conftest import Node

pytestmark = pytest.mark.timeout(180)


def read(spark: Any, node: Node, **options: str) -> list[Any]:
    """A batch of the stock source."""
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", node.bootstrap)
    found: list[Any] = reader.options(**options).load().collect()
    return found


def values(rows: list[Any]) -> list[int]:
    return sorted(int(row.value) for row in rows)


def set_of(config: Config, **settings: str) -> Config:
    for name, value in settings.items():
        config = changed(config, "source", name, value, "test")
    return config


# -- Options of the source -------------------------------------------------------------------------------------------


def test_subscribe_pattern_and_assign_select_what_they_say(spark: Any, node: Node) -> None:
    first, second = node.topic(), node.topic()
    node.send(first, 3, partition=0)
    node.send(first, 2, partition=1)
    node.send(second, 4)
    assert Counter(row.topic for row in read(spark, node, subscribe=f"{first},{second}")) == {first: 5, second: 4}
    assert Counter(row.topic for row in read(spark, node, subscribePattern=f"{first}|{second}")) == {
        first: 5,
        second: 4,
    }
    assert len(read(spark, node, assign=json.dumps({first: [1], second: [0]}))) == 6


def test_offsets_are_given_as_json_with_earliest_and_latest(spark: Any, node: Node) -> None:
    topic = node.topic()
    node.send(topic, 10, partition=0)
    node.send(topic, 5, partition=1)
    start, end = json.dumps({topic: {"0": 7, "1": -2}}), json.dumps({topic: {"0": -1, "1": 2}})
    rows = read(spark, node, subscribe=topic, startingOffsets=start, endingOffsets=end)
    assert sorted((row.partition, row.offset) for row in rows) == [(0, 7), (0, 8), (0, 9), (1, 0), (1, 1)]


def test_times_select_by_the_time_of_the_record(spark: Any, node: Node) -> None:
    topic = node.topic()
    for number, time_ms in enumerate((1_000, 2_000, 3_000, 4_000)):
        node.send(topic, 1, partition=number % 2, timestamp=time_ms + 1_700_000_000_000)
    both = read(spark, node, subscribe=topic, startingTimestamp="1700000002000", endingTimestamp="1700000004000")
    assert sorted(row.timestamp.timestamp() for row in both) == [1_700_000_002, 1_700_000_003]
    by_partition = json.dumps({topic: {"0": 1_700_000_002_500, "1": 1_700_000_000_000}})
    rows = read(spark, node, subscribe=topic, startingOffsetsByTimestamp=by_partition)
    assert sorted((row.partition, row.offset) for row in rows) == [(0, 1), (1, 0), (1, 1)]


def test_a_row_has_key_headers_and_both_kinds_of_timestamp(spark: Any, node: Node) -> None:
    topic, stamped = node.topic(), node.topic(message_timestamp_type="LogAppendTime")
    node.send(topic, 1, key=b"k", headers=[("a", b"1"), ("a", None)], timestamp=1_700_000_000_000)
    node.send(stamped, 1, timestamp=1_700_000_000_000)
    row = read(spark, node, subscribe=topic, includeHeaders="true")[0]
    assert (bytes(row.key), row.timestampType) == (b"k", 0)
    assert [(each.key, each.value and bytes(each.value)) for each in row.headers] == [("a", b"1"), ("a", None)]
    assert not hasattr(read(spark, node, subscribe=topic)[0], "headers")
    late = read(spark, node, subscribe=stamped)[0]
    assert late.timestampType == 1 and abs(late.timestamp.timestamp() - time.time()) < 60


def test_min_partitions_splits_a_partition_and_loses_nothing(spark: Any, node: Node) -> None:
    topic = node.topic(1)
    node.send(topic, 100)
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", node.bootstrap).option("subscribe", topic)
    frame = reader.option("minPartitions", "4").load()
    assert frame.rdd.getNumPartitions() == 4
    assert values(frame.collect()) == list(range(100))


def test_a_micro_batch_holds_no_more_offsets_than_allowed(spark: Any, node: Node, tmp_path: Path) -> None:
    config = set_of(node.config(tmp_path), max_offsets_per_trigger="40", min_partitions="2")
    topics.ensure(config)
    node.send(config.kafka.events, 100)
    stages.run(config, ["bronze"])
    batches = [json.loads(line) for line in (tmp_path / "progress.jsonl").read_text().splitlines()]
    assert [each["rows"] for each in batches if each["rows"]] == [40, 40, 20]
    assert [each["lag_offsets"] for each in batches if each["rows"]] == [60, 20, 0]
    assert values_of_bronze(config) == list(range(100))


def values_of_bronze(config: Config) -> list[int]:
    return sorted(int(row["value"]) for row in tables.rows(tables.sink(config, "bronze", ["value"])))


def test_the_sink_writes_keys_headers_and_tombstones(spark: Any, node: Node) -> None:
    topic = node.topic(1)
    frame = spark.sql(
        "SELECT CAST('a' AS BINARY) AS key, CAST(NULL AS BINARY) AS value, "
        "array(named_struct('key', 'h', 'value', CAST('1' AS BINARY))) AS headers"
    )
    frame.write.format("kafka").option("kafka.bootstrap.servers", node.bootstrap).option("topic", topic).save()
    row = read(spark, node, subscribe=topic, includeHeaders="true")[0]
    assert (bytes(row.key), row.value, row.headers[0].key) == (b"a", None, "h")


# -- A stream whose topic changes under it ---------------------------------------------------------------------------


def test_new_partitions_are_read_from_their_beginning(spark: Any, node: Node, tmp_path: Path) -> None:
    from confluent_kafka.admin import NewPartitions

    config = node.config(tmp_path, "kafka.partitions=1")
    topics.ensure(config)
    node.send(config.kafka.events, 5)
    stages.run(config, ["bronze"])
    for future in node.admin.create_partitions([NewPartitions(config.kafka.events, 2)]).values():
        future.result(20)
    node.send(config.kafka.events, 5, partition=1)
    stages.run(config, ["bronze"])
    rows = tables.rows(tables.sink(config, "bronze", ["partition", "offset"]))
    assert sorted(tuple(row.values()) for row in rows) == [(p, o) for p in (0, 1) for o in range(5)]


def delete_records(node: Node, topic: str, before: int) -> None:
    from confluent_kafka import TopicPartition

    for future in node.admin.delete_records([TopicPartition(topic, 0, before)]).values():
        future.result(20)


def test_retention_that_overtakes_the_reader_stops_it_or_is_passed_over_as_configured(
    spark: Any, node: Node, tmp_path: Path
) -> None:
    config = node.config(tmp_path, "kafka.partitions=1")
    topics.ensure(config)
    node.send(config.kafka.events, 5)
    stages.run(config, ["bronze"])
    node.send(config.kafka.events, 10)
    delete_records(node, config.kafka.events, 9)
    with pytest.raises(PipelineError, match="fail_on_data_loss"):
        stages.run(config, ["bronze"])
    stages.run(set_of(config, fail_on_data_loss="false"), ["bronze"])
    rows = tables.rows(tables.sink(config, "bronze", ["offset"]))
    assert sorted(row["offset"] for row in rows) == [*range(5), *range(9, 15)]


def test_a_topic_made_anew_is_data_loss_and_can_be_passed_over(spark: Any, node: Node, tmp_path: Path) -> None:
    config = node.config(tmp_path, "kafka.partitions=1")
    topics.ensure(config)
    node.send(config.kafka.events, 5)
    stages.run(config, ["bronze"])
    for future in node.admin.delete_topics([config.kafka.events]).values():
        future.result(20)
    eventually(lambda: config.kafka.events not in node.admin.list_topics(timeout=10).topics)
    topics.ensure(config)
    node.send(config.kafka.events, 3)
    with pytest.raises(PipelineError, match="the topic was made anew"):
        stages.run(config, ["bronze"])
    stages.run(set_of(config, fail_on_data_loss="false"), ["bronze"])
    assert len(values_of_bronze(config)) >= 5


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


# -- The stages ------------------------------------------------------------------------------------------------------


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
        stages.run(config, ["bronze", "silver", "gold"])
    wrong = [check for check in verify.verify(config, path) if not check.holds]
    assert not wrong
    assert_backfill_agrees(config)


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


def test_an_empty_topic_is_no_failure(spark: Any, node: Node, tmp_path: Path) -> None:
    stages.run(node.config(tmp_path), ["bronze", "silver", "gold"])


# -- Mistakes --------------------------------------------------------------------------------------------------------


def test_a_wrong_address_and_a_missing_topic_are_said_in_one_line(spark: Any, node: Node, tmp_path: Path) -> None:
    config = node.config(tmp_path)
    away = replace(config, kafka=replace(config.kafka, bootstrap_servers="127.0.0.1:1"))
    with pytest.raises(PipelineError, match="no broker answers"):
        topics.ensure(away)
    missing = set_of(config, subscribe="nobody-made-this")
    with pytest.raises(Exception) as caught:
        bronze.batch(spark, missing).collect()
    found = explained(caught.value, missing)
    assert found is not None and "a topic of the source does not exist" in str(found)
