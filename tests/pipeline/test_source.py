"""Spark's stock source on a live node: every common option, and topics that change while a stream reads them."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.needs import needs_packages

needs_packages("pyspark")

from ottla.pipeline.config import Config
from ottla.pipeline.explain import explained
from tests.pipeline.conftest import Node

pytestmark = pytest.mark.timeout(600)  # the first test of a worker starts Spark, on a machine that may be busy
MINUTE = 60


def batch(spark: Any, node: Node, **options: str) -> Any:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", node.bootstrap)
    return reader.options(**options).load()


def read(spark: Any, node: Node, **options: str) -> list[Any]:
    found: list[Any] = batch(spark, node, **options).collect()
    return found


def places(rows: list[Any]) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in rows)


# -- Which partitions ------------------------------------------------------------------------------------------------


@pytest.mark.compat
def test_subscribe_pattern_and_assign_select_what_they_say(spark: Any, node: Node) -> None:
    first, second = node.topic(), node.topic()
    node.send(first, 3, partition=0)
    node.send(first, 2, partition=1)
    node.send(second, 4)
    both = {first: 5, second: 4}
    assert Counter(row.topic for row in read(spark, node, subscribe=f"{first},{second}")) == both
    assert Counter(row.topic for row in read(spark, node, subscribePattern=f"{first}|{second}")) == both
    assert len(read(spark, node, assign=json.dumps({first: [1], second: [0]}))) == 6


def test_min_partitions_splits_a_partition_and_loses_nothing(spark: Any, node: Node) -> None:
    topic = node.topic(1)
    node.send(topic, 100)
    frame = batch(spark, node, subscribe=topic, minPartitions="4")
    assert frame.rdd.getNumPartitions() == 4
    assert sorted(int(row.value) for row in frame.collect()) == list(range(100))


# -- From where to where ---------------------------------------------------------------------------------------------


def test_offsets_are_given_as_json_with_earliest_and_latest(spark: Any, node: Node) -> None:
    topic = node.topic()
    node.send(topic, 10, partition=0)
    node.send(topic, 5, partition=1)
    start, end = json.dumps({topic: {"0": 7, "1": -2}}), json.dumps({topic: {"0": -1, "1": 2}})
    rows = read(spark, node, subscribe=topic, startingOffsets=start, endingOffsets=end)
    assert places(rows) == [(0, 7), (0, 8), (0, 9), (1, 0), (1, 1)]
    words = read(spark, node, subscribe=topic, startingOffsets="earliest", endingOffsets="latest")
    assert len(words) == 15


@pytest.mark.compat
def test_times_select_by_the_time_of_the_record(spark: Any, node: Node) -> None:
    topic = node.topic()
    for number, time_ms in enumerate((1_000, 2_000, 3_000, 4_000)):
        node.send(topic, 1, partition=number % 2, timestamp=time_ms + 1_700_000_000_000)
    both = read(spark, node, subscribe=topic, startingTimestamp="1700000002000", endingTimestamp="1700000004000")
    assert sorted(row.timestamp.timestamp() for row in both) == [1_700_000_002, 1_700_000_003]
    start = json.dumps({topic: {"0": 1_700_000_002_500, "1": 1_700_000_000_000}})
    assert places(read(spark, node, subscribe=topic, startingOffsetsByTimestamp=start)) == [(0, 1), (1, 0), (1, 1)]
    end = json.dumps({topic: {"0": 1_700_000_002_500, "1": 1_700_000_009_000}})
    assert places(read(spark, node, subscribe=topic, endingOffsetsByTimestamp=end)) == [(0, 0), (1, 0), (1, 1)]


@pytest.mark.compat
def test_a_stream_begins_at_the_configured_offsets(spark: Any, node: Node) -> None:
    """A stream without the option begins at the end. With a time that no record has reached, it begins as the strategy says."""
    topic = node.topic(1)
    node.send(topic, 3)
    future = json.dumps({topic: {"0": int(time.time() * 1000) + 3_600_000}})
    beginnings: dict[str, dict[str, str]] = {
        "latest": {},
        "earliest": {"startingOffsets": "earliest"},
        "json": {"startingOffsets": json.dumps({topic: {"0": 1}})},
        "time": {
            "startingOffsetsByTimestamp": future,
            "startingOffsetsByTimestampStrategy": "latest",
        },
    }
    streams = {name: Stream(spark, node, subscribe=topic, **options) for name, options in beginnings.items()}
    try:
        for each in streams.values():
            each.catch_up()
        node.send(topic, 1)
        found = {name: each.catch_up().offsets() for name, each in streams.items()}
    finally:
        for each in streams.values():
            each.query.stop()
    assert found == {"latest": [3], "earliest": [0, 1, 2, 3], "json": [1, 2, 3], "time": [3]}
    with Stream(spark, node, subscribe=topic, startingOffsetsByTimestamp=future,
                startingOffsetsByTimestampStrategy="error").open() as strict, pytest.raises(Exception, match="No offset matched"):  # fmt: skip
        strict.catch_up()


# -- What is in a row ------------------------------------------------------------------------------------------------


def test_a_row_has_key_headers_and_both_kinds_of_timestamp(spark: Any, node: Node) -> None:
    topic, stamped = node.topic(), node.topic(message_timestamp_type="LogAppendTime")
    node.send(topic, 1, key=b"k", headers=[("a", b"1"), ("a", None)], timestamp=1_700_000_000_000)
    node.send(stamped, 1, timestamp=1_700_000_000_000)
    row = read(spark, node, subscribe=topic, includeHeaders="true")[0]
    assert (bytes(row.key), row.timestampType) == (b"k", 0)
    assert [(each.key, each.value and bytes(each.value)) for each in row.headers] == [("a", b"1"), ("a", None)]
    assert not hasattr(read(spark, node, subscribe=topic)[0], "headers")
    late = read(spark, node, subscribe=stamped)[0]
    assert late.timestampType == 1 and abs(late.timestamp.timestamp() - time.time()) < MINUTE


def test_the_sink_writes_keys_headers_and_tombstones(spark: Any, node: Node) -> None:
    topic = node.topic(1)
    frame = spark.sql(
        "SELECT CAST('a' AS BINARY) AS key, CAST(NULL AS BINARY) AS value, "
        "array(named_struct('key', 'h', 'value', CAST('1' AS BINARY))) AS headers"
    )
    frame.write.format("kafka").option("kafka.bootstrap.servers", node.bootstrap).option("topic", topic).save()
    row = read(spark, node, subscribe=topic, includeHeaders="true")[0]
    assert (bytes(row.key), row.value, row.headers[0].key) == (b"a", None, "h")


def test_aborted_rows_are_seen_unless_only_committed_ones_are_read(spark: Any, node: Node) -> None:
    from confluent_kafka import Producer

    topic = node.topic(1)
    producer = Producer({"bootstrap.servers": node.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for number, is_kept in enumerate((True, False, True)):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number)
        producer.flush(30)  # an abort would drop records that were not sent yet
        producer.commit_transaction(30) if is_kept else producer.abort_transaction(30)
    # Each transaction ends with a marker, which has an offset but is no row.
    assert places(read(spark, node, subscribe=topic)) == [(0, 0), (0, 2), (0, 4)]
    committed = {"kafka.isolation.level": "read_committed"}
    assert places(read(spark, node, subscribe=topic, **committed)) == [(0, 0), (0, 4)]


# -- A topic that changes while a stream reads it --------------------------------------------------------------------


class Stream:
    """A running query whose rows are kept; `held` makes its first micro-batch wait, so that things happen in its middle."""

    def __init__(self, spark: Any, node: Node, *, held: bool = False, **options: str) -> None:
        self._rows: list[Any] = []
        self.in_batch, self.go_on = threading.Event(), threading.Event()
        if not held:
            self.go_on.set()
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", node.bootstrap)
        self.query = reader.options(**options).load().writeStream.foreachBatch(self._take).start()

    def _take(self, rows: Any, batch_id: int) -> None:
        self._rows += rows.select("partition", "offset").collect()
        self.in_batch.set()
        assert self.go_on.wait(MINUTE)

    @contextmanager
    def open(self) -> Iterator[Stream]:
        try:
            yield self
        finally:
            self.go_on.set()
            self.query.stop()

    def catch_up(self) -> Stream:
        self.go_on.set()
        self.query.processAllAvailable()
        return self

    def places(self) -> list[tuple[int, int]]:
        return places(self._rows)

    def offsets(self) -> list[int]:
        return [offset for _, offset in self.places()]


def from_start(spark: Any, node: Node, topic: str, **options: str) -> Stream:
    stream = Stream(spark, node, held=True, subscribe=topic, startingOffsets="earliest", **options)
    assert stream.in_batch.wait(MINUTE), stream.query.exception()
    return stream


def test_a_new_partition_is_read_from_its_beginning(spark: Any, node: Node) -> None:
    from confluent_kafka.admin import NewPartitions

    topic = node.topic(1)
    node.send(topic, 2)
    with from_start(spark, node, topic).open() as stream:
        for future in node.admin.create_partitions([NewPartitions(topic, 2)]).values():
            future.result(20)
        node.send(topic, 2, partition=1)
        assert stream.catch_up().places() == [(0, 0), (0, 1), (1, 0), (1, 1)]


def recreate(node: Node, topic: str) -> None:
    for future in node.admin.delete_topics([topic]).values():
        future.result(20)
    eventually(lambda: topic not in node.admin.list_topics(timeout=10).topics)
    node.topic(1, name=topic)
    node.send(topic, 2)


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + MINUTE
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def overtake(node: Node, topic: str) -> None:
    node.send(topic, 5)
    node.drop_before(topic, 8)


#: What happens to a topic whose 5 records were all read, and the offsets that are read next if the loss is allowed.
LOSSES: dict[str, tuple[Callable[[Node, str], None], list[int]]] = {
    "retention overtakes the reader": (overtake, [*range(5), 8, 9]),
    "the topic is recreated": (recreate, [*range(5)]),
}
#: A fetch that waits at the end would return the lost records before they are lost.
AT_ONCE = {"kafka.fetch.max.wait.ms": "1"}


@pytest.mark.parametrize("loss", LOSSES)
def test_lost_offsets_stop_a_stream_with_words_for_people(spark: Any, node: Node, tmp_path: Path, loss: str) -> None:
    topic = node.topic(1)
    node.send(topic, 5)
    with from_start(spark, node, topic, **AT_ONCE).open() as stream:
        LOSSES[loss][0](node, topic)
        with pytest.raises(Exception) as caught:
            stream.catch_up()
        explanation = str(explained(caught.value, node.config(tmp_path)))
    assert "offsets that were to be read are gone" in explanation and "fail_on_data_loss" in explanation
    assert stream.offsets() == [*range(5)]


@pytest.mark.compat
@pytest.mark.parametrize("loss", LOSSES)
def test_lost_offsets_are_passed_over_if_that_is_wanted(spark: Any, node: Node, loss: str) -> None:
    topic = node.topic(1)
    node.send(topic, 5)
    happens, offsets = LOSSES[loss]
    with from_start(spark, node, topic, failOnDataLoss="false", **AT_ONCE).open() as stream:
        happens(node, topic)
        assert stream.catch_up().offsets() == offsets
        # Later records are read, in a new topic from the old one's offset on.
        node.send(topic, 10)
        assert stream.catch_up().offsets()[-1] == node.end(topic) - 1


# -- Mistakes --------------------------------------------------------------------------------------------------------


def test_an_expired_offset_and_a_partition_without_one_are_explained(spark: Any, node: Node, tmp_path: Path) -> None:
    topic = node.topic(2)
    node.send(topic, 10)
    node.drop_before(topic, 6)

    def explanation(**options: str) -> str:
        with pytest.raises(Exception) as caught:
            read(spark, node, subscribe=topic, **options)
        return str(explained(caught.value, node.config(tmp_path)))

    assert "offsets that were to be read are gone" in explanation(startingOffsets=json.dumps({topic: {"0": 2, "1": 0}}))
    assert "an offset for every partition" in explanation(startingOffsets=json.dumps({topic: {"0": 7}}))


def test_an_unknown_failure_is_one_line_and_a_file(tmp_path: Path, node: Node) -> None:
    config: Config = node.config(tmp_path)
    explanation = explained(RuntimeError("An error occurred while calling o1.x.\n: first\nsecond\n\tat third"), config)
    assert str(explanation).startswith("Spark failed: first; ") and "second" not in str(explanation)
    assert "at third" in (tmp_path / "error.log").read_text()
