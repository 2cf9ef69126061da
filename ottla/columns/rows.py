"""Record batches become Arrow columns. Values are copied once, from the decompressed batches into Arrow's own memory.

As Arrow arrays of binary have their values end to end, the payload is first seen as one array of gaps, keys and values, without
a copy, of which `take` selects every fourth element. Several batches of a log become one batch of Arrow: what a call of Arrow
costs would otherwise be paid for each few records.

`columns` decides what is looked at: without `key`, `value` and `headers` nothing is copied.

Arrays are made of buffers: pyarrow's own conversions of values would import pandas, for 0.2 s of CPU in each process of a task.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ottla.columns.batches import BatchFilter, ColumnsError
from ottla.columns.layout import Fields, InvalidRecord, Layout
from ottla.protocol.errors import KafkaError
from ottla.protocol.records.batch import BatchView
from ottla.protocol.records.compression import NO_COMPRESSION, decompress

Flags = np.ndarray[Any, np.dtype[np.bool_]]
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TIMESTAMP = pa.timestamp("us", tz="UTC")
#: The columns of the JVM source with their types, in its order, and the further columns of tables.
TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": TIMESTAMP,
    "timestampType": pa.int32(),
    "headers": HEADERS,
    "leaderEpoch": pa.int32(),
}
#: An Arrow batch has about this many bytes of records, or this many records.
BYTES_MAX = 4 * 1024 * 1024
RECORDS_MAX = 1 << 16
_US_PER_MS = 1000
_TIMESTAMP_MS_MAX = ((1 << 63) - 1) // _US_PER_MS
#: The positions of keys and values among the pieces of a payload: gap, key, gap, value, for each record.
_KEY, _VALUE, _PIECES = 1, 3, 4


class RowColumns:
    """The rows of a range of one partition, as Arrow batches with these columns."""

    def __init__(self, topic: str, partition: int, start: int, end: int, columns: Sequence[str]) -> None:
        self.topic = topic
        self.partition = partition
        self.start = start
        self.end = end
        self.columns = tuple(columns)
        self.schema = pa.schema([(name, TYPES[name]) for name in columns])

    def batches(self, batches: Iterable[BatchView], limits: BatchFilter | None = None) -> Iterator[pa.RecordBatch]:
        """Yield Arrow batches of about BYTES_MAX. Raises ColumnsError with the offset for a batch that cannot be decoded.

        The batches come from `limits`, which knows the first offset with rows after a loss.
        """
        layout = Layout()
        for batch in batches:
            if limits is not None and limits.floor > self.start:
                if len(layout):
                    yield self._made(layout)
                    layout = Layout()
                self.start = limits.floor
            codec = batch.compression
            try:
                payload = batch.payload if codec == NO_COMPRESSION else decompress(codec, batch.payload)
                layout.add(
                    payload,
                    batch.count,
                    batch.base_offset,
                    batch.base_timestamp,
                    batch.append_time,
                    batch.partition_leader_epoch,
                )
            except KafkaError as fault:
                raise self._unreadable(batch.base_offset, fault) from None
            if len(layout.data) > BYTES_MAX or len(layout) > RECORDS_MAX:
                yield self._made(layout)
                layout = Layout()
        if len(layout):
            yield self._made(layout)

    def _made(self, layout: Layout) -> pa.RecordBatch:
        try:
            fields = layout.fields()
        except InvalidRecord as fault:
            raise self._unreadable(fault.offset, fault) from None
        try:
            pieces = _pieces(layout, fields) if {"key", "value"} & {*self.columns} else None
            arrays = [self._column(name, layout, fields, pieces) for name in self.columns]
        except InvalidRecord as fault:
            raise self._unreadable(fault.offset, fault) from None
        except (pa.ArrowInvalid, OverflowError) as fault:
            raise self._unreadable(int(fields.offsets[0]), fault) from None
        made = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        first, end = (int(each) for each in np.searchsorted(fields.offsets, (self.start, self.end)))
        return made.slice(first, max(0, end - first))

    def _unreadable(self, offset: int, fault: Exception) -> ColumnsError:
        return ColumnsError(
            f"{self.topic}-{self.partition}: the records at offset {offset} cannot be read: {fault}",
            "start behind them: startingOffsets",
        )

    def _column(self, name: str, layout: Layout, fields: Fields, pieces: pa.Array | None) -> pa.Array:
        count = len(layout)
        if name == "value":
            return _taken(pieces, _VALUE, fields.value_lengths < 0)
        if name == "key":
            return _taken(pieces, _KEY, fields.key_lengths < 0)
        if name == "offset":
            return _numbers(pa.int64(), fields.offsets)
        if name == "timestamp":
            times = fields.timestamps
            if ((times > _TIMESTAMP_MS_MAX) | (times < -_TIMESTAMP_MS_MAX)).any():
                raise OverflowError("a timestamp overflows the microseconds of Spark")
            return _numbers(TIMESTAMP, times * _US_PER_MS)
        if name == "topic":
            text = self.topic.encode()
            bounds = np.arange(count + 1, dtype=np.int32) * len(text)
            return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(bounds), pa.py_buffer(text * count)])
        if name == "partition":
            return _numbers(pa.int32(), np.full(count, self.partition, np.int32))
        if name == "timestampType":
            return _numbers(pa.int32(), layout.timestamp_types().astype(np.int32))
        if name == "leaderEpoch":
            return _numbers(pa.int32(), layout.leader_epochs().astype(np.int32))
        assert name == "headers", name
        if not len(fields.headers):
            return pa.nulls(count, HEADERS)
        headers: list[object] = [None] * count  # a record without headers has null, as with the JVM source
        for index, begin in zip(fields.headers.tolist(), fields.value_ends[fields.headers].tolist(), strict=True):
            headers[index] = layout.headers_of(index, begin)
        return pa.array(headers, HEADERS)


def _numbers(kind: pa.DataType, numbers: np.ndarray[Any, Any], is_null: Flags | None = None) -> pa.Array:
    valid = None if is_null is None else pa.py_buffer(np.packbits(~is_null, bitorder="little"))
    return pa.Array.from_buffers(kind, len(numbers), [valid, pa.py_buffer(numbers)])


def _pieces(layout: Layout, fields: Fields) -> pa.Array:
    """Return the payload as gap, key, gap, value, gap, key ...: each element begins where the one before it ends."""
    if len(layout.data) >= 1 << 31:
        raise OverflowError(f"{len(layout.data)} bytes are more than an array of Arrow holds")
    bounds = np.zeros(_PIECES * len(layout) + 1, np.int32)
    for place, positions in enumerate((fields.key_begins, fields.key_ends, fields.value_begins, fields.value_ends), 1):
        bounds[place::_PIECES] = positions
    return pa.Array.from_buffers(pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(layout.data)])


def _taken(pieces: pa.Array, first: int, is_null: Flags) -> pa.Array:
    """Return every fourth piece from `first` on, or null."""
    indices = np.arange(first, _PIECES * len(is_null), _PIECES)
    return pieces.take(_numbers(pa.int64(), indices, is_null if is_null.any() else None))
