"""Spark's reader objects. They plan on the driver, and read on executors in the same way for batches and streams."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from ottla.columns.rows import RowColumns
from ottla.protocol.primitives import uuid_to_str
from ottla.spark import planning, segments
from ottla.spark.client.cluster import BlockingCluster
from ottla.spark.client.fetch import RangeReader, data_loss, topic_replaced
from ottla.spark.client.offsets import READ_COMMITTED, commit_offsets, committed_offsets
from ottla.spark.errors import ConnectorError
from ottla.spark.options import ConnectorOptions
from ottla.spark.ranges import Checkpoint, Offsets, Range, from_json, ids_in, limited, split, to_json

logger = logging.getLogger(__name__)


def read_range(options: ConnectorOptions, wanted: Range, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the range with these columns. Raises ConnectorError."""
    if options.segments is not None and "bootstrap.servers" in options.client:
        first = segments.first_in(options.segments, wanted)
        if wanted.start < first:  # in remote storage (KIP-405), or deleted: the broker says which
            yield from _fetched(options, wanted._replace(end=min(first, wanted.end)), columns)
            wanted = wanted._replace(start=min(first, wanted.end))
    if options.segments is None:
        yield from _fetched(options, wanted, columns)
    elif wanted.size > 0:
        rows = RowColumns(wanted.topic, wanted.partition, wanted.start, wanted.end, columns)
        files = segments.SegmentReader(options.segments, wanted, options)
        yield from rows.batches(files.batches(), files.filter)


def _fetched(options: ConnectorOptions, wanted: Range, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    rows = RowColumns(wanted.topic, wanted.partition, wanted.start, wanted.end, columns)
    place = (wanted.topic, wanted.partition)
    with BlockingCluster(options.client) as cluster:
        reader = RangeReader(
            cluster,
            place,
            wanted.start,
            wanted.end,
            options.isolation,
            fail_on_loss=options.fail_on_loss,
            topic_id=wanted.topic_id,
        )
        yield from rows.batches(reader.batches(), reader.filter)


class RangePartition(InputPartition):
    """A partition of Spark: one range of offsets."""

    def __init__(self, wanted: Range) -> None:
        super().__init__(wanted)
        self.wanted = wanted


class RecordReader(DataSourceReader):
    """The reader of a batch query. The plan is made once, on the driver."""

    def __init__(self, options: ConnectorOptions) -> None:
        self.options = options

    def partitions(self) -> Sequence[InputPartition]:
        options = self.options
        if options.segments is not None and "bootstrap.servers" not in options.client:
            ranges = _ranges_of_files(options)
        else:
            with BlockingCluster(options.client) as cluster:
                ranges = planning.batch_ranges(cluster, options)
        return [RangePartition(each) for each in split(ranges, options.partitions_min, options.records_max)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return iter(()) if partition is None else read_range(self.options, partition.wanted, self.options.columns)


def _ranges_of_files(options: ConnectorOptions) -> list[Range]:
    """Return the ranges in a log directory, without a broker: from the log start or the given offsets to the high watermark."""
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
    """The reader of a streaming query. Spark keeps the offsets in its checkpoint, in the JVM source's form, with the ids of the topics beside them.

    An offset is valid only for the topic with its id: a topic that was deleted and created again has the same name, and its
    first records would be skipped as if they had been read. With failOnDataLoss the query ends with the reason; without it the
    query begins at the new topic's first record, and reports that.

    pyspark 4.0 asks where the next micro-batch ends before it says where a restarted query begins. With kafka.group.id the
    offsets are also committed to that group, from which a restarted query takes them, so that maxOffsetsPerTrigger holds at
    once.
    """

    def __init__(self, options: ConnectorOptions) -> None:
        self.options = options
        self._cluster: BlockingCluster | None = None
        self._position: Offsets | None = None
        #: The ids of the topics that the position belongs to.
        self._ids: dict[str, bytes] = {}

    @property
    def cluster(self) -> BlockingCluster:
        if self._cluster is None:
            self._cluster = BlockingCluster(self.options.client)
        return self._cluster

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options, "_cluster": None, "_position": None, "_ids": {}}

    def initialOffset(self) -> Checkpoint:
        places = planning.partitions_of(self.cluster, self.options)
        self._ids = self._ids_of(places)
        self._position = planning.offsets_at(self.cluster, self.options, places, self.options.starting, "starting")
        return to_json(self._position, self._ids)

    def latestOffset(self) -> Checkpoint:
        options = self.options
        places = planning.partitions_of(self.cluster, options)
        ids = self._ids_of(places)
        ends = planning.latest(self.cluster, options, places)
        if options.offsets_max is None:
            return to_json(ends, ids)
        if self._position is None and options.group:
            self._position = self._committed(options.group, places, ids) or None
        if self._position is None:
            return to_json(ends, ids)
        self._position = {place: at for place, at in self._position.items() if not self._is_replaced(place, ids)}
        self._ids = ids
        if new := [place for place in places if place not in self._position]:
            self._position |= planning.earliest(self.cluster, options, new)
        return to_json(limited(self._position, ends, options.offsets_max), ids)

    def _ids_of(self, places: Iterable[tuple[str, int]]) -> dict[str, bytes]:
        return self.cluster.topic_ids({name for name, _ in places})

    def _is_replaced(self, place: tuple[str, int], ids: Mapping[str, bytes]) -> bool:
        known = self._ids.get(place[0])
        return known is not None and ids.get(place[0], known) != known

    def _committed(self, group: str, places: Iterable[tuple[str, int]], ids: Mapping[str, bytes]) -> Offsets:
        """Return the group's offsets in these topics. Offsets of topics with other ids do not count."""
        kept = committed_offsets(self.cluster, group)
        texts = {name: _metadata(topic_id) for name, topic_id in ids.items()}
        return {
            place: kept[place][0]
            for place in places
            if place in kept and kept[place][1] in ("", texts.get(place[0], kept[place][1]))
        }

    def partitions(self, start: Checkpoint, end: Checkpoint) -> Sequence[InputPartition]:
        options = self.options
        starts, ends = from_json(start), from_json(end)
        known, ids = ids_in(start), ids_in(end)
        changed = {name for name, topic_id in known.items() if ids.get(name, topic_id) != topic_id}
        if replaced := sorted(place for place in starts if place[0] in changed):
            if options.fail_on_loss:
                raise topic_replaced(*replaced[0], starts[replaced[0]])
            for name in sorted(changed):
                logger.warning("topic %s was created again: the query goes on with its first record", name)
            starts = {place: offset for place, offset in starts.items() if place not in replaced}
        new = [place for place in ends if place not in starts]
        starts |= planning.earliest(self.cluster, options, new)
        self._position, self._ids = dict(ends), ids
        gone = sorted(place for place in starts if place not in ends or ends[place] < starts[place])
        if gone and options.fail_on_loss:
            raise data_loss(f"{gone[0][0]}-{gone[0][1]}", starts[gone[0]], ends.get(gone[0], 0))
        ranges = [Range(*place, starts[place], ends[place], ids.get(place[0])) for place in ends]
        return [RangePartition(each) for each in split(ranges, options.partitions_min, options.records_max)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(self.options, partition.wanted, self.options.columns)

    def commit(self, end: Checkpoint) -> None:
        if self.options.group:
            texts = {name: _metadata(topic_id) for name, topic_id in ids_in(end).items()}
            commit_offsets(self.cluster, self.options.group, from_json(end), texts)

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.close()


def _metadata(topic_id: bytes) -> str:
    """Return the metadata of a committed offset: the id of its topic."""
    return f"topic.id={uuid_to_str(topic_id)}"
