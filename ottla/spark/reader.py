"""Spark's reader objects: plans on the driver, and the same reading on executors for batches and streams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from ottla.spark import planning, segments
from ottla.spark.client.cluster import Cluster
from ottla.spark.client.fetch import RangeReader, data_loss
from ottla.spark.client.offsets import READ_COMMITTED, commit_offsets, committed_offsets
from ottla.spark.errors import ConnectorError
from ottla.spark.options import Options
from ottla.spark.ranges import Offsets, Range, from_json, limited, split, to_json
from ottla.spark.rows import Rows


def read_range(options: Options, wanted: Range, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yields the rows of the range with these columns. Raises ConnectorError."""
    rows = Rows(wanted.topic, wanted.partition, wanted.start, wanted.end, columns)
    if options.segments is not None:
        files = segments.SegmentReader(options.segments, wanted, options)
        yield from rows.batches(files.batches(), files.filter)
        return
    place = (wanted.topic, wanted.partition)
    with Cluster(options.client) as cluster:
        reader = RangeReader(
            cluster, place, wanted.start, wanted.end, options.isolation, fail_on_loss=options.fail_on_loss
        )
        yield from rows.batches(reader.batches(), reader.filter)


class RangePartition(InputPartition):
    """A partition of Spark: one range of offsets."""

    def __init__(self, wanted: Range) -> None:
        super().__init__(wanted)
        self.wanted = wanted


class RecordReader(DataSourceReader):
    """Batches. The plan is made once, on the driver."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def partitions(self) -> Sequence[InputPartition]:
        options = self.options
        if options.segments is not None and "bootstrap.servers" not in options.client:
            ranges = _ranges_of_files(options)
        else:
            with Cluster(options.client) as cluster:
                ranges = planning.batch_ranges(cluster, options)
        return [RangePartition(each) for each in split(ranges, options.partitions_min, options.records_max)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return iter(()) if partition is None else read_range(self.options, partition.wanted, self.options.columns)


def _ranges_of_files(options: Options) -> list[Range]:
    """Returns the ranges of a log directory, without a broker: from the log start or given offsets to the high watermark."""
    if options.isolation == READ_COMMITTED:
        raise ConnectorError(
            "which transactions are open is not in the files of a log",
            "give kafka.bootstrap.servers beside segments://, or read uncommitted",
        )
    if options.starting.is_time or options.ending.is_time or options.selection != "subscribe":
        raise ConnectorError(
            "segments:// without kafka.bootstrap.servers takes subscribe, startingOffsets and endingOffsets",
            "give kafka.bootstrap.servers for times, patterns and single partitions",
        )
    assert options.segments is not None
    ends, starts = segments.partitions_in(options.segments), segments.starts_in(options.segments)
    if missing := {*options.selected} - {topic for topic, _ in ends}:
        raise ConnectorError(f"{options.segments} has no partition of topic {min(missing)}")
    found = []
    for place in sorted(place for place in ends if place[0] in options.selected):
        start, end = options.starting.each.get(place, -2), options.ending.each.get(place, -1)
        found.append(
            Range(*place, starts[place] if start < 0 else start, ends[place] if end < 0 else min(end, ends[place]))
        )
    return found


class RecordStreamReader(DataSourceStreamReader):
    """Micro-batches. Spark keeps the offsets in its checkpoint, in the JVM source's form.

    pyspark 4.0 does not say where a restarted query begins before it asks where the next micro-batch ends. With kafka.group.id the
    offsets are also committed to that group, from which a restarted query takes them, so that maxOffsetsPerTrigger holds at once.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self._cluster: Cluster | None = None
        self._position: Offsets | None = None

    @property
    def cluster(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(self.options.client)
        return self._cluster

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options, "_cluster": None, "_position": None}

    def initialOffset(self) -> dict[str, dict[str, int]]:
        places = planning.partitions_of(self.cluster, self.options)
        self._position = planning.offsets_at(self.cluster, self.options, places, self.options.starting, "starting")
        return to_json(self._position)

    def latestOffset(self) -> dict[str, dict[str, int]]:
        options = self.options
        places = planning.partitions_of(self.cluster, options)
        ends = planning.latest(self.cluster, options, places)
        if options.offsets_max is None:
            return to_json(ends)
        if self._position is None and options.group:
            kept = committed_offsets(self.cluster, options.group)
            self._position = {place: kept[place][0] for place in places if place in kept} or None
        if self._position is None:
            return to_json(ends)
        self._add_new(places)
        return to_json(limited(self._position, ends, options.offsets_max))

    def _add_new(self, places: list[tuple[str, int]]) -> None:
        assert self._position is not None
        if new := [place for place in places if place not in self._position]:
            self._position |= planning.earliest(self.cluster, self.options, new)

    def partitions(self, start: dict[str, dict[str, int]], end: dict[str, dict[str, int]]) -> Sequence[InputPartition]:
        options = self.options
        starts, ends = from_json(start), from_json(end)
        new = [place for place in ends if place not in starts]
        starts |= planning.earliest(self.cluster, options, new)
        self._position = dict(ends)
        gone = sorted(place for place in starts if place not in ends or ends[place] < starts[place])
        if gone and options.fail_on_loss:
            raise data_loss(f"{gone[0][0]}-{gone[0][1]}", starts[gone[0]], ends.get(gone[0], 0))
        ranges = [Range(*place, starts[place], ends[place]) for place in ends]
        return [RangePartition(each) for each in split(ranges, options.partitions_min, options.records_max)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(self.options, partition.wanted, self.options.columns)

    def commit(self, end: dict[str, dict[str, int]]) -> None:
        if self.options.group:
            commit_offsets(self.cluster, self.options.group, from_json(end))

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
