"""The readers without Spark: micro-batches, a restart, lost offsets, and the tables, on the test's own node."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.needs import needs_packages

needs_packages("pyspark", "pyarrow", "fastavro")

from ottla.spark.errors import ConnectorError
from ottla.spark.options import ConnectorOptions
from ottla.spark.reader import RecordStreamReader
from ottla.spark.schema.reader import SchemaStreamReader
from ottla.spark.source import OttlaDataSource
from ottla.spark.tables import GroupsReader, LatestReader, OffsetsReader
from ottla.testing import Cluster
from tests.ottla.columns.avro.values import written
from tests.ottla.registry.stand_in import registry_of
from tests.pipeline.conftest import Node


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(1) as started:
        yield started


@pytest.fixture(scope="module")
def node(cluster: Cluster) -> Node:
    return Node(cluster.bootstrap)


def options(node: Node, *, is_stream: bool = False, **given: str) -> ConnectorOptions:
    return ConnectorOptions({"kafka.bootstrap.servers": node.bootstrap, **given}, is_stream=is_stream)


def stream(node: Node, **given: str) -> RecordStreamReader:
    return RecordStreamReader(options(node, is_stream=True, startingOffsets="earliest", **given))


def offsets(reader: Any, start: Any, end: Any) -> list[int]:
    """Return the offsets of a micro-batch, as an executor reads them."""
    plan = pickle.loads(pickle.dumps(reader.partitions(start, end)))
    executor = pickle.loads(pickle.dumps(reader))
    return sorted(offset for each in plan for part in executor.read(each) for offset in part["offset"].to_pylist())


def test_a_stream_that_is_started_again_keeps_to_its_limit(node: Node) -> None:
    topic = node.topic(1)
    node.send(topic, 100)
    given = {"subscribe": topic, "maxOffsetsPerTrigger": "40", "kafka.group.id": topic}
    reader, sizes = stream(node, **given), []
    start: Any = reader.initialOffset()
    while (end := reader.latestOffset()) != start:
        sizes.append(len(offsets(reader, start, end)))
        reader.commit(end)
        start = end
    assert sizes == [40, 40, 20]
    reader.stop()
    node.send(topic, 50)
    again = stream(node, **given)
    end = again.latestOffset()
    assert offsets(again, start, end) == list(range(100, 140))
    again.stop()


def test_offsets_that_are_lost_are_an_error_or_passed_over(node: Node) -> None:
    topic = node.topic(1)
    node.send(topic, 15)
    node.drop_before(topic, 9)
    start, end = {topic: {"0": 5}}, {topic: {"0": 15}}
    with pytest.raises(ConnectorError, match="offsets that were to be read are gone"):
        offsets(stream(node, subscribe=topic), start, end)
    assert offsets(stream(node, subscribe=topic, failOnDataLoss="false"), start, end) == list(range(9, 15))


def recreate(node: Node, topic: str, count: int) -> None:
    for future in node.admin.delete_topics([topic], operation_timeout=20).values():
        future.result(20)
    node.topic(1, name=topic)
    node.send(topic, count)


def test_offsets_beyond_the_end_are_an_error(node: Node) -> None:
    topic = node.topic(1)
    node.send(topic, 2)
    with pytest.raises(ConnectorError, match="are gone"):
        stream(node, subscribe=topic).partitions({topic: {"0": 5}}, {topic: {"0": 2}})


@pytest.mark.parametrize("count", [3, 12], ids=["shorter", "longer"])
def test_a_topic_that_was_created_again_ends_the_query_or_is_read_from_its_first_record(
    node: Node, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    topic = node.topic(1)
    node.send(topic, 5)
    reader = stream(node, subscribe=topic)
    start = json.loads(json.dumps(reader.latestOffset()))
    recreate(node, topic, count)
    end = reader.latestOffset()
    with pytest.raises(
        ConnectorError, match=f"{topic}-0: the topic was deleted or created again, and what it had from offset 5"
    ):
        offsets(reader, start, end)
    reader.stop()
    tolerant = stream(node, subscribe=topic, failOnDataLoss="false")
    assert offsets(tolerant, start, end) == list(range(count))
    assert f"topic {topic} was created again" in caplog.text
    tolerant.stop()


@pytest.mark.parametrize("count", [3, 12], ids=["shorter", "longer"])
def test_nothing_is_read_of_a_topic_that_was_created_again_after_the_plan(node: Node, count: int) -> None:
    topic = node.topic(1)
    node.send(topic, 5)
    for fail_on_loss in ("true", "false"):
        reader = stream(node, subscribe=topic, failOnDataLoss=fail_on_loss)
        plan = reader.partitions(reader.initialOffset(), reader.latestOffset())
        recreate(node, topic, count)
        if fail_on_loss == "true":
            with pytest.raises(ConnectorError, match="deleted or created again"):
                list(reader.read(plan[0]))
        else:
            assert [part.num_rows for part in reader.read(plan[0])] == []
        reader.stop()


def test_a_limited_stream_begins_at_the_first_record_of_a_topic_that_was_created_again(node: Node) -> None:
    topic = node.topic(1)
    node.send(topic, 5)
    given = {"subscribe": topic, "maxOffsetsPerTrigger": "4", "kafka.group.id": topic, "failOnDataLoss": "false"}
    reader = stream(node, **given)
    reader.initialOffset()
    first = reader.latestOffset()
    reader.commit(first)
    recreate(node, topic, 12)
    lasting = reader.latestOffset()
    # four of the new topic's records, and not only those behind the fourth of the old one
    assert lasting[topic] == {"0": 4}
    assert offsets(reader, first, lasting) == [0, 1, 2, 3]
    reader.stop()
    again = stream(node, **given)  # a new process, which has only the group's offsets
    assert again.latestOffset()[topic] == {"0": 12}
    again.stop()


def test_segment_files_of_another_topic_of_the_name_are_not_read(node: Node, cluster: Cluster) -> None:
    topic = node.topic(1)
    node.send(topic, 5)
    (log,) = {folder.parent for folder in Path(cluster.directory).rglob(f"{topic}-0")}
    reader = stream(node, subscribe=topic, segments=f"segments://{log}", failOnDataLoss="false")
    plan = reader.partitions(reader.initialOffset(), reader.latestOffset())
    assert sum(part.num_rows for part in reader.read(plan[0])) == 5
    recreate(node, topic, 12)
    assert [part.num_rows for part in reader.read(plan[0])] == []
    reader.stop()


def test_a_new_partition_is_read_from_its_beginning(node: Node) -> None:
    topic = node.topic(2)
    node.send(topic, 3, partition=1)
    assert offsets(stream(node, subscribe=topic), {topic: {"0": 0}}, {topic: {"0": 0, "1": 3}}) == [0, 1, 2]


def test_a_stream_of_avro_has_decoded_columns_and_says_where_a_malformed_value_is(node: Node) -> None:
    topic = node.topic(1)
    for value in (written("string", "a"), None, written("string", "b"), b"plain"):
        node.send(topic, 1, value=value)
    start, end = {topic: {"0": 0}}, {topic: {"0": 4}}
    subject = {"version": 1, "id": 1, "schema": '"string"'}
    with registry_of({f"/subjects/{topic}-value/versions/latest": subject, "/schemas/ids/1": subject}) as (url, _):
        given = {"kafka.bootstrap.servers": node.bootstrap, "schema.registry.url": url, "subscribe": topic}
        for mode in ("PERMISSIVE", "FAILFAST"):
            table = {"table": "schema", "columns": "value,topic", "mode": mode}
            reader = OttlaDataSource({**given, **table}).streamReader(None)
            assert isinstance(reader, SchemaStreamReader)
            plan, executor = pickle.loads(pickle.dumps((reader.partitions(start, end), reader)))
            if mode == "PERMISSIVE":
                found = [row for each in plan for part in executor.read(each) for row in part.to_pylist()]
                assert found == [{"value": value, "topic": topic} for value in ("a", None, "b", None)]
                continue
            with pytest.raises(ConnectorError, match=f"{topic}-0 at offset 3: the value cannot be decoded"):
                list(executor.read(plan[0]))


def test_the_tables_show_offsets_lag_and_the_latest_rows(node: Node) -> None:
    topic = node.topic(1)
    for key, value in ((b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"b", None), (None, b"4")):
        node.send(topic, 1, key=key, value=value)
    reader = stream(node, subscribe=topic, **{"kafka.group.id": topic})
    reader.commit({topic: {"0": 2}})
    reader.stop()
    one = options(node, subscribe=topic, table="offsets")
    (row,) = OffsetsReader(one).read(OffsetsReader(one).partitions()[0])
    assert row == (topic, 0, 1, 0, 5, 5)
    groups = GroupsReader(options(node, subscribe=topic, table="groups"))
    assert list(groups.read(groups.partitions()[0])) == [(topic, topic, 0, 2, "", 5, 3)]
    latest = LatestReader(options(node, subscribe=topic, table="latest", columns="key,offset"))
    rows = [row for each in latest.partitions() for part in latest.read(each) for row in part.to_pylist()]
    assert rows == [{"key": b"a", "offset": 2}]
