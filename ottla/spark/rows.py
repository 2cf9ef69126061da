"""Record batches to Arrow columns. Values are copied once, from the decompressed batches into Arrow's own memory.

As Arrow arrays of binary have their values end to end, the payload is first seen as one array of gaps, keys and values, without
a copy, of which `take` selects every fourth element. Several batches of a log become one batch of Arrow: what a call of Arrow
costs would otherwise be paid for each few records.

`columns` decides what is looked at: without `key`, `value` and `headers` nothing is copied.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

import pyarrow as pa
import pyarrow.compute as pc

from ottla.protocol.errors import KafkaError
from ottla.protocol.records.batch import BatchView
from ottla.protocol.records.compression import NO_COMPRESSION, decompress
from ottla.spark.client.batches import BatchFilter
from ottla.spark.errors import ConnectorError
from ottla.spark.layout import Layout

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TIMESTAMP = pa.timestamp("us", tz="UTC")
#: The columns of the JVM source with their types, in its order.
TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": TIMESTAMP,
    "timestampType": pa.int32(),
    "headers": HEADERS,
}
#: So many bytes of records, or so many records, are one Arrow batch.
BYTES_MAX = 4 * 1024 * 1024
RECORDS_MAX = 1 << 16
_US_PER_MS = pa.scalar(1000, pa.int64())
#: The places of keys and values among the pieces of a payload: gap, key, gap, value, for each record.
_KEY, _VALUE, _PIECES = 1, 3, 4


class Rows:
    """The rows of a range of one partition, as Arrow batches with these columns."""

    def __init__(self, topic: str, partition: int, start: int, end: int, columns: Sequence[str]) -> None:
        self.topic = topic
        self.partition = partition
        self.start = start
        self.end = end
        self.columns = tuple(columns)
        self.schema = pa.schema([(name, TYPES[name]) for name in columns])

    def batches(self, batches: Iterable[BatchView], limits: BatchFilter | None = None) -> Iterator[pa.RecordBatch]:
        """Yields Arrow batches of about BYTES_MAX. Raises ConnectorError with the offset for a batch that cannot be decoded.

        `limits`, which the batches come from, says from which offset on there are rows after a loss.
        """
        layout, types = Layout(), array("i")
        for batch in batches:
            if limits is not None and limits.floor > self.start:
                if len(layout):
                    yield self._made(layout, types)
                    layout, types = Layout(), array("i")
                self.start = limits.floor
            codec = batch.compression
            try:
                payload = batch.payload if codec == NO_COMPRESSION else decompress(codec, batch.payload)
                layout.add(payload, batch.count, batch.base_offset, batch.base_timestamp, batch.append_time)
            except KafkaError as fault:
                raise self._unreadable(batch.base_offset, fault) from None
            types.extend(array("i", (batch.timestamp_type,)) * batch.count)
            if len(layout.data) > BYTES_MAX or len(layout) > RECORDS_MAX:
                yield self._made(layout, types)
                layout, types = Layout(), array("i")
        if len(layout):
            yield self._made(layout, types)

    def _made(self, layout: Layout, types: array[int]) -> pa.RecordBatch:
        try:
            pieces = _pieces(layout) if {"key", "value"} & {*self.columns} else None
            arrays = [self._column(name, layout, pieces, types) for name in self.columns]
        except (pa.ArrowInvalid, OverflowError, KafkaError) as fault:
            raise self._unreadable(layout.offsets[0], fault) from None
        made = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        first = bisect_left(layout.offsets, self.start)
        return made.slice(first, max(0, bisect_left(layout.offsets, self.end) - first))

    def _unreadable(self, offset: int, fault: Exception) -> ConnectorError:
        return ConnectorError(
            f"{self.topic}-{self.partition}: the records at offset {offset} cannot be read: {fault}",
            "start behind them: startingOffsets",
        )

    def _column(self, name: str, layout: Layout, pieces: pa.Array | None, types: array[int]) -> pa.Array:
        count = len(layout)
        if name == "value":
            return _taken(pieces, _VALUE, count, layout.null_values)
        if name == "key":
            return _taken(pieces, _KEY, count, layout.null_keys)
        if name == "offset":
            return _numbers(pa.int64(), layout.offsets)
        if name == "timestamp":
            return pc.multiply_checked(_numbers(pa.int64(), layout.timestamps), _US_PER_MS).cast(TIMESTAMP)
        if name == "topic":
            return pa.repeat(pa.scalar(self.topic, pa.string()), count)
        if name == "partition":
            return pa.repeat(pa.scalar(self.partition, pa.int32()), count)
        if name == "timestampType":
            return _numbers(pa.int32(), types)
        assert name == "headers", name
        if not layout.with_headers:
            return pa.nulls(count, HEADERS)
        headers: list[object] = [None] * count  # no headers are null, as in the JVM source
        for number, index in enumerate(layout.with_headers):
            headers[index] = layout.headers_of(number)
        return pa.array(headers, HEADERS)


def _numbers(kind: pa.DataType, numbers: array[int]) -> pa.Array:
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


def _pieces(layout: Layout) -> pa.Array:
    """Returns the payload as gap, key, gap, value, gap, key ...: each element begins where the one before it ends."""
    bounds = array("i", layout.bounds)
    return pa.Array.from_buffers(pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(layout.data)])


def _taken(pieces: pa.Array, first: int, count: int, nulls: list[int]) -> pa.Array:
    """Returns every fourth piece from `first` on; those of the records in `nulls` are null."""
    if len(nulls) == count:
        return pa.nulls(count, pa.binary())
    if not nulls:
        return pieces.take(_every_fourth(first)[:count] if count <= RECORDS_MAX else _indices(first, count))
    valid = bytearray(b"\1" * count)
    for index in nulls:
        valid[index] = 0
    mask = pa.array(valid, pa.uint8()).cast(pa.bool_())
    return pieces.take(pc.if_else(mask, _indices(first, count), pa.scalar(None, pa.int64())))


@cache
def _every_fourth(first: int) -> pa.Array:
    return _indices(first, RECORDS_MAX)


def _indices(first: int, count: int) -> pa.Array:
    return _numbers(pa.int64(), array("q", range(first, _PIECES * count, _PIECES)))
