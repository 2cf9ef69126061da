"""The tables that do not contain records: the offsets of topics, and the lag of groups.

Also a compacted topic as its latest rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ottla.columns.rows import TYPES
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.spark import planning
from ottla.spark.client.cluster import BlockingCluster
from ottla.spark.client.offsets import (
    EARLIEST,
    LATEST,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    committed_offsets,
    list_offsets,
)
from ottla.spark.errors import check
from ottla.spark.options import ConnectorOptions
from ottla.spark.ranges import Range, split
from ottla.spark.reader import RangePartition, read_range

SQL_TYPES = {
    "offsets": "topic STRING, partition INT, leader INT, earliest BIGINT, lastStable BIGINT, latest BIGINT",
    "groups": "group STRING, topic STRING, partition INT, committed BIGINT, metadata STRING, latest BIGINT, lag BIGINT",
}
#: One Arrow batch has at most this many rows.
ROWS_MAX = 10_000


class OffsetsReader(DataSourceReader):
    """One row for each selected partition."""

    def __init__(self, options: ConnectorOptions) -> None:
        self.options = options

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        edges = ((EARLIEST, READ_UNCOMMITTED), (LATEST, READ_COMMITTED), (LATEST, READ_UNCOMMITTED))
        with BlockingCluster(self.options.client) as cluster:
            places = planning.partitions_of(cluster, self.options)
            found = [list_offsets(cluster, dict.fromkeys(places, time), isolation) for time, isolation in edges]
            leaders = {place: cluster.retry(partial(cluster.leader, place)) for place in places}
        for place in places:
            yield (*place, leaders[place], *(row[place] for row in found))


class GroupsReader(DataSourceReader):
    """One row for each offset that a group has committed in a selected partition; `kafka.group.id` selects one group."""

    def __init__(self, options: ConnectorOptions) -> None:
        self.options = options

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        with BlockingCluster(self.options.client) as cluster:
            places = {*planning.partitions_of(cluster, self.options)}
            groups = [self.options.group] if self.options.group else groups_of(cluster)
            kept = {group: committed_offsets(cluster, group) for group in groups}
            wanted = [place for rows in kept.values() for place in rows if place in places]
            ends = planning.latest(cluster, self.options, wanted)
        for group, rows in sorted(kept.items()):
            for place, (offset, metadata) in sorted(rows.items()):
                if place in ends:
                    yield group, *place, offset, metadata, ends[place], max(0, ends[place] - offset)


def groups_of(cluster: BlockingCluster) -> list[str]:
    """Return the groups of all brokers. Raises ConnectorError."""
    cluster.topics([])
    found: list[str] = []
    for node in cluster.brokers:
        response = cluster.retry(partial(cluster.call_node, node, ListGroupsRequest(), 4))
        check(f"groups of broker {node}", response.error_code)
        found += [row.group_id for row in response.groups]
    return sorted(found)


class LatestReader(DataSourceReader):
    """A topic as a table: the last row of each key, without rows whose value is null. Rows without a key are left out.

    A task keeps one row for each key of its partition in memory. The order is that of the offsets.
    """

    def __init__(self, options: ConnectorOptions) -> None:
        self.options = options

    def partitions(self) -> Sequence[InputPartition]:
        with BlockingCluster(self.options.client) as cluster:
            ranges = planning.batch_ranges(cluster, self.options)
        return [RangePartition(each) for each in split(ranges, None, None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return iter(()) if partition is None else latest_rows(self.options, partition.wanted)


def latest_rows(options: ConnectorOptions, wanted: Range) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the range that compaction would keep."""
    names = options.columns
    last: dict[bytes, dict[str, object]] = {}
    for batch in read_range(options, wanted, tuple(dict.fromkeys((*names, "key", "value")))):
        columns = batch.to_pydict()
        for index, (key, value) in enumerate(zip(columns["key"], columns["value"], strict=True)):
            if key is None:
                continue
            last.pop(key, None)  # delete the key first, so that the dictionary has the order of the offsets
            if value is not None:
                last[key] = {name: columns[name][index] for name in names}
    rows = list(last.values())
    schema = pa.schema([(name, TYPES[name]) for name in names])
    for start in range(0, len(rows), ROWS_MAX):
        yield pa.RecordBatch.from_pylist(rows[start : start + ROWS_MAX], schema=schema)
