"""The layout of a topic's table, which never changes: a struct `_kafka` with the record's position and metadata, then the
value's columns.

It is one struct, so that hardly any field of a value collides with it. A value with a field `_kafka` is rejected, and is in the
table of rejected records.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from ottla.columns.rows import HEADERS, TIMESTAMP

KAFKA, VALUE, REASON = "_kafka", "value", "reason"
#: The columns of records from which a row is made.
RECORD_COLUMNS = ("key", "value", "partition", "offset", "timestamp", "timestampType", "leaderEpoch", "headers")


class SchemaMoved(Exception):
    """The subject has a newer schema, and a value was written with it: make a new shape, and begin a new file with this value."""


class DecodedColumns(NamedTuple):
    """Values as columns of the same length. `wrong` has the reason for each row that did not fit; its columns are null."""

    columns: list[pa.Array]
    wrong: dict[int, str]


class ColumnShape(Protocol):
    """The conversion of keys or values to columns."""

    @property
    def fields(self) -> list[pa.Field]: ...

    def columns(self, raw: pa.Array) -> DecodedColumns: ...


class BytesShape:
    """Bytes without a conversion."""

    def __init__(self, name: str) -> None:
        self.fields = [pa.field(name, pa.binary())]

    def columns(self, raw: pa.Array) -> DecodedColumns:
        return DecodedColumns([raw], {})


class StringShape:
    """UTF-8. Other bytes do not fit."""

    def __init__(self, name: str) -> None:
        self.fields = [pa.field(name, pa.string())]

    def columns(self, raw: pa.Array) -> DecodedColumns:
        try:
            return DecodedColumns([raw.cast(pa.string())], {})
        except pa.ArrowInvalid:
            return self._one_by_one(raw)

    @staticmethod
    def _one_by_one(raw: pa.Array) -> DecodedColumns:
        texts: list[str | None] = []
        wrong: dict[int, str] = {}
        for index, each in enumerate(raw.to_pylist()):
            try:
                texts.append(None if each is None else each.decode())
            except UnicodeDecodeError as fault:
                texts.append(None)
                wrong[index] = f"it is no UTF-8: {fault.reason} at byte {fault.start}"
        return DecodedColumns([pa.array(texts, pa.string())], wrong)


class RowLayout:
    """Makes rows from records, by the shapes of their keys and values."""

    def __init__(self, key: ColumnShape, value: ColumnShape) -> None:
        self._key, self._value = key, value
        self.schema = pa.schema([_kafka_field(key.fields[0]), *value.fields])
        self.rejected_schema = pa.schema(
            [_kafka_field(pa.field("key", pa.binary())), pa.field(VALUE, pa.binary()), pa.field(REASON, pa.string())]
        )

    def rows(self, records: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Return the rows, and the rejected records with their reasons."""
        keys = self._key.columns(records.column("key"))
        values = self._value.columns(records.column("value"))
        wrong = {row: f"value: {why}" for row, why in values.wrong.items()}
        wrong |= {row: f"key: {why}" for row, why in keys.wrong.items()}
        place = _struct(self.schema.field(KAFKA).type, records, keys.columns[0])
        rows = pa.RecordBatch.from_arrays([place, *values.columns], schema=self.schema)
        if not wrong:
            return rows, _empty(self.rejected_schema)
        mask = np.zeros(len(records), np.bool_)
        mask[list(wrong)] = True
        bad = records.filter(pa.array(mask))
        place = _struct(self.rejected_schema.field(KAFKA).type, bad, bad.column("key"))
        reasons = pa.array([wrong[row] for row in sorted(wrong)], pa.string())
        rejected = pa.RecordBatch.from_arrays([place, bad.column("value"), reasons], schema=self.rejected_schema)
        return rows.filter(pa.array(~mask)), rejected


def _kafka_field(key: pa.Field) -> pa.Field:
    fields: list[Any] = [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIMESTAMP),
        ("timestamp_type", pa.int32()),
        ("leader_epoch", pa.int32()),
        ("key", key.type),
        ("headers", HEADERS),
    ]
    return pa.field(KAFKA, pa.struct(fields))


def _struct(kind: pa.DataType, records: pa.RecordBatch, key: pa.Array) -> pa.Array:
    names = ("partition", "offset", "timestamp", "timestampType", "leaderEpoch")
    columns = [*(records.column(name) for name in names), key, records.column("headers")]
    return pa.StructArray.from_arrays(columns, fields=list(kind))


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
