"""`format("ottla")` on a live node: the same rows in the same order as the JVM source, from the wire and from segment files.

The sink is killed here in its own process; `python -m tests.pipeline.sink_chaos` kills Spark and brokers. Further tests of
streams are in tests/ottla/spark, without Spark, and in test_stages.py, where bronze reads with the connector.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.needs import needs_packages

needs_packages("pyspark")

from pyspark import cloudpickle

from ottla.spark import register
from ottla.testing import Cluster
from tests.ottla.registry.instances import Registries
from tests.pipeline import sink_job
from tests.pipeline.conftest import Node
from tests.pipeline.test_source import eventually

pytestmark = pytest.mark.timeout(600)  # the first test of a worker starts Spark, on a machine that may be busy
COMMITTED = {"kafka.isolation.level": "read_committed"}


@pytest.fixture(scope="module")
def spark(spark: Any) -> Any:
    register(spark)
    cloudpickle.register_pickle_by_value(sink_job)  # Spark's Python processes have no module of the tests
    spark.dataSource.register(sink_job.SteppedSource)
    return spark


def frame(spark: Any, node: Node, form: str, **options: str) -> Any:
    reader = spark.read.format(form).option("kafka.bootstrap.servers", node.bootstrap)
    return reader.options(**options).load()


def rows(spark: Any, node: Node, form: str, **options: str) -> list[Any]:
    """Return the rows in the order in which they come, partition by partition."""
    found: list[Any] = frame(spark, node, form, **options).collect()
    return sorted(
        found, key=lambda row: (row.topic, row.partition)
    )  # stable: within a partition it is the order of the source


def same(spark: Any, node: Node, **options: str) -> list[Any]:
    """Return the rows, which both sources must read alike."""
    ours, theirs = (rows(spark, node, form, **options) for form in ("ottla", "kafka"))
    assert ours == theirs
    return ours


def transactions(node: Node, topic: str, *kept: bool) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": node.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for number, is_kept in enumerate(kept):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number, partition=0)
        producer.flush(30)  # an abort would drop records that were not sent yet
        producer.commit_transaction(30) if is_kept else producer.abort_transaction(30)


def fill(node: Node) -> str:
    """A topic with everything that a log can have: every codec, keys, headers, nulls, gaps, markers, large records, two
    partitions.
    """
    from confluent_kafka import Producer

    topic = node.topic(2, max_message_bytes="4000000", retention_ms="-1")
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer(
            {"bootstrap.servers": node.bootstrap, "compression.type": codec, "message.max.bytes": 4_000_000}
        )
        for number in range(60):
            producer.produce(
                topic,
                None if number % 7 == 0 else codec.encode() * number,
                b"" if number % 5 == 0 else None if number % 5 == 1 else b"key",
                partition=number % 2,
                headers=[("a", b"1"), ("", None), ("a", b"")] if number % 11 == 0 else None,
                timestamp=1_700_000_000_000 + number * (1 if number % 3 else -400_000),
            )
        producer.produce(topic, codec.encode() * 300_000, partition=1)
        assert producer.flush(30) == 0
    transactions(node, topic, True, False, True)
    node.drop_before(topic, 10)
    return topic


@pytest.mark.compat
def test_rows_and_order_are_those_of_the_jvm_source(spark: Any, node: Node) -> None:
    topic = fill(node)
    everything = same(spark, node, subscribe=topic, includeHeaders="true")
    assert len(everything) == 5 * 61 + 3 - 10
    committed = same(spark, node, subscribe=topic, **COMMITTED)
    assert len(committed) == len(everything) - 1
    split = frame(spark, node, "ottla", subscribe=topic, minPartitions="6")
    assert split.rdd.getNumPartitions() == 6 and split.count() == len(everything)
    narrow = frame(spark, node, "ottla", subscribe=topic, columns="offset,partition,timestamp").collect()
    assert sorted((row.partition, row.offset, row.timestamp) for row in narrow) == sorted(
        (row.partition, row.offset, row.timestamp) for row in everything
    )


@pytest.mark.compat
def test_a_compacted_topic_has_the_rows_that_are_left(spark: Any, node: Node) -> None:
    settings = {"cleanup_policy": "compact", "segment_ms": "100", "min_cleanable_dirty_ratio": "0.01"}
    topic = node.topic(1, retention_ms="-1", **settings)
    for number in range(3):
        for key in (b"a", b"b", b"c"):
            node.send(topic, 5, key=key, timestamp=1_700_000_000_000 + number)
    same(spark, node, subscribe=topic)


@pytest.mark.compat
@pytest.mark.parametrize(
    "limits",
    [
        {"startingTimestamp": "1700000002000", "endingTimestamp": "1700000004000"},
        {"startingOffsetsByTimestamp": {"0": 1_700_000_002_500, "1": 1_700_000_000_000}},
        {"endingOffsetsByTimestamp": {"0": 1_700_000_002_500, "1": 1_700_000_009_000}},
        {"startingOffsets": {"0": 1, "1": -2}, "endingOffsets": {"0": -1, "1": 1}},
    ],
    ids=lambda limits: "-".join(limits),
)
def test_a_range_is_given_as_to_the_jvm_source(spark: Any, node: Node, limits: dict[str, Any]) -> None:
    topic = node.topic(retention_ms="-1")
    for number in range(1, 5):
        node.send(topic, 1, partition=number % 2, timestamp=number * 1000 + 1_700_000_000_000)
    given = {name: json.dumps({topic: each}) if isinstance(each, dict) else each for name, each in limits.items()}
    assert same(spark, node, subscribe=topic, **given)


@pytest.mark.compat
def test_topics_are_selected_by_pattern_and_partitions_by_assign(spark: Any, node: Node) -> None:
    first, second = node.topic(), node.topic()
    node.send(first, 3, partition=1)
    node.send(second, 4)
    assert len(same(spark, node, subscribePattern=f"{first}|{second}")) == 7
    assert len(same(spark, node, assign=json.dumps({first: [1], second: [0]}))) == 7


#: Mistakes in options, and the text that the message must have.
MISTAKES: dict[str, tuple[dict[str, str], str]] = {
    "no topic": ({"subscribe": "nothing-here"}, "UNKNOWN_TOPIC_OR_PARTITION"),
    "nothing selected": ({}, "assign, subscribe and subscribePattern"),
    "a column that is not there": ({"subscribe": "t", "columns": "key,valu"}, "option columns has valu"),
    "an address that is none": ({"subscribe": "t", "kafka.bootstrap.servers": "here"}, "cannot be reached"),
    "a deserializer": ({"subscribe": "t", "kafka.value.deserializer": "x"}, "kafka.value.deserializer is not supported"),
    "offsets of some partitions": ({"subscribe": "TOPIC", "startingOffsets": '{"TOPIC": {"0": 1}}'}, "an offset for every partition"),
    "an offset that is gone": ({"subscribe": "TOPIC", "startingOffsets": '{"TOPIC": {"0": 1, "1": 0}}'}, "are gone: offset 1 was asked for"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_explained(spark: Any, node: Node, mistake: str) -> None:
    topic = node.topic(2)
    node.send(topic, 5)
    node.drop_before(topic, 3)
    options, said = MISTAKES[mistake]
    given = {name: text.replace("TOPIC", topic) for name, text in options.items()}
    with pytest.raises(Exception) as caught:
        rows(spark, node, "ottla", **given)
    assert said in str(caught.value)


# -- The table schema ------------------------------------------------------------------------------------------------

#: Kafka's own group.min.session.timeout.ms, which these brokers have.
SESSION_MS_OF_BROKERS = 6_000
OLD = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
NEW = {**OLD, "fields": [*OLD["fields"], {"name": "who", "type": ["null", "string"], "default": None}]}


def test_values_of_a_stock_avro_serializer_are_columns_by_the_latest_schema(spark: Any, node: Node) -> None:
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    topic, registries = node.topic(1), Registries(node.bootstrap, session_ms=SESSION_MS_OF_BROKERS)
    try:
        url = registries.start().url
        client = SchemaRegistryClient({"url": url})
        context = SerializationContext(topic, MessageField.VALUE)
        orders = [{"id": 1, "at": 1_700_000_000_123}, {"id": 2, "at": 1_700_000_000_456, "who": "alice"}]
        for schema, order in zip((OLD, NEW), orders, strict=True):
            node.send(topic, 1, value=AvroSerializer(client, json.dumps(schema))(order, context))
        node.send(topic, 1, value=b"{}")
        given = {"subscribe": topic, "table": "schema", "schema.registry.url": url, "columns": "value,offset"}
        found = frame(spark, node, "ottla", mode="PERMISSIVE", **given)
        assert found.schema.simpleString() == "struct<value:struct<id:bigint,at:timestamp,who:string>,offset:bigint>"
        rows = found.selectExpr("value.id", "unix_millis(value.at)", "value.who", "offset").collect()
        assert [tuple(row) for row in rows] == [
            (1, 1_700_000_000_123, None, 0),
            (2, 1_700_000_000_456, "alice", 1),
            (None, None, None, 2),
        ]
        with pytest.raises(Exception, match="at offset 2: the value cannot be decoded: it does not begin"):
            frame(spark, node, "ottla", **given).collect()
    finally:
        registries.stop()


# -- Segment files ---------------------------------------------------------------------------------------------------


@pytest.mark.compat
def test_segment_files_have_the_rows_of_the_wire_up_to_the_high_watermark(spark: Any) -> None:
    with Cluster(1, properties={"log.segment.bytes": "20000", "log.index.interval.bytes": "1000"}) as cluster:
        node = Node(cluster.bootstrap)
        topic = node.topic(2)
        for number in range(8):
            node.send(topic, 100, partition=number % 2, value=b"v" * 200)
        transactions(node, topic, True, False, True)
        eventually(lambda: any(Path(cluster.directory).rglob("replication-offset-checkpoint")))
        (log,) = {file.parent for file in Path(cluster.directory).rglob("replication-offset-checkpoint")}
        for wanted in ({}, COMMITTED, {"startingOffsets": json.dumps({topic: {"0": 157, "1": 390}})}):
            over_the_wire = rows(spark, node, "ottla", subscribe=topic, **wanted)
            assert rows(spark, node, "ottla", subscribe=topic, segments=f"segments://{log}", **wanted) == over_the_wire
        everything = rows(spark, node, "ottla", subscribe=topic)
        cluster.stop(1)
        alone = spark.read.format("ottla").options(subscribe=topic, segments=f"segments://{log}").load().collect()
        assert sorted(alone) == sorted(everything) and len(everything) == 803


# -- The exactly-once sink -------------------------------------------------------------------------------------------


def copy(spark: Any, node: Node, topics: tuple[str, str], folder: Path) -> None:
    """Copy what exists and is not copied yet, according to the checkpoint in the folder."""
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", node.bootstrap)
    rows = reader.options(subscribe=topics[0], startingOffsets="earliest").load().select("key", "value")
    writer = rows.writeStream.format("ottla-stepped").option("kafka.bootstrap.servers", node.bootstrap)
    writer = writer.options(topic=topics[1], folder=str(folder), checkpointLocation=str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()


@pytest.mark.chaos
def test_a_stream_is_written_once_though_its_commit_is_killed(spark: Any, node: Node, tmp_path: Path) -> None:
    topics = node.topic(2), node.topic(2)
    node.send(topics[0], 20)
    node.send(topics[0], 20, partition=1)
    sink_job.want(tmp_path, sink_job.DECIDED, "die")
    with pytest.raises(Exception, match="crashed"):
        copy(spark, node, topics, tmp_path)
    copy(spark, node, topics, tmp_path)
    found = rows(spark, node, "kafka", subscribe=topics[1], **COMMITTED)
    assert sorted(int(row.value) for row in found) == sorted([*range(20), *range(20)])
