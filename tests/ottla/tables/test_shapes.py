"""Rows of a table by a registry's schemas: which values become columns, which are rejected, and when a table waits."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.needs import needs_packages

needs_packages("pyarrow", "fastavro", "msgspec", "google.protobuf")

import pyarrow as pa
import pyarrow.parquet as pq

from ottla.columns.batches import ColumnsError
from ottla.columns.evolution import evolved
from ottla.columns.rows import TYPES
from ottla.columns.wire import RegistryWaits
from ottla.registry.client import AVRO, JSON_SCHEMA, PROTOBUF, RegistryFailed, Schema
from ottla.tables import shapes
from ottla.tables.layout import RECORD_COLUMNS, BytesShape, RowLayout, SchemaMoved
from ottla.tables.shapes import RegistryShape, json_shape
from tests.ottla.columns.avro.values import framed, record, written

SUBJECT = "orders-value"
FIRST = record(("id", "int"), ("note", ["null", "string"], None))
SECOND = record(("id", "long"), ("more", "string", "-"))
PROTO = 'syntax = "proto3"; message A { int32 id = 1; string note = 2; }'


class Registry:
    """It replaces a client of the registry, and has one subject's versions, by ids from 1 on."""

    def __init__(self, *schemas: Any, kind: str = AVRO) -> None:
        self.schemas = [Schema(each if isinstance(each, str) else json.dumps(each), kind) for each in schemas]
        self.is_down = False

    def version(self, subject: str, version: str = "latest") -> dict[str, Any]:
        self._check()
        if subject != SUBJECT or not self.schemas:
            raise RegistryFailed("Subject not found.", 40401)
        return {"id": len(self.schemas)}

    def schema(self, schema_id: int, subject: str = "") -> Schema:
        self._check()
        if not 0 < schema_id <= len(self.schemas):
            raise RegistryFailed("Schema not found", 40403)
        return self.schemas[schema_id - 1]

    def _check(self) -> None:
        if self.is_down:
            raise RegistryFailed("the schema registry at http://here cannot be reached")


def shape_of(registry: Registry, subject: str = SUBJECT, **more: Any) -> RegistryShape:
    client: Any = registry
    return RegistryShape("value", client, subject, **more)


def records(*values: bytes | None) -> pa.RecordBatch:
    count = len(values)
    columns = {
        "value": values,
        "key": [b"k"] * count,
        "partition": [0] * count,
        "offset": range(count),
        "timestampType": [0] * count,
    }
    arrays = [
        pa.array(columns[name], TYPES[name]) if name in columns else pa.nulls(count, TYPES[name])
        for name in RECORD_COLUMNS
    ]
    return pa.RecordBatch.from_arrays(arrays, list(RECORD_COLUMNS))


def rows_of(shape: Any, *values: bytes | None) -> tuple[list[dict[str, Any]], list[tuple[int, str]]]:
    """Return the columns of the rows, and offset and reason of the rejected ones, after writing them to Parquet and reading
    them back.
    """
    rows, rejected = RowLayout(BytesShape("key"), shape).rows(records(*values))
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_batches([rows]), sink)
    read = pq.read_table(sink.getvalue()).to_pylist()
    kept = [{name: value for name, value in row.items() if name != "_kafka"} for row in read]
    return kept, [(row["_kafka"]["offset"], row["reason"]) for row in rejected.to_pylist()]


GOOD = written(FIRST, {"id": 1, "note": "x"})


def test_the_fields_of_a_record_are_columns_and_what_cannot_be_decoded_is_rejected_with_its_reason() -> None:
    shape = shape_of(Registry(FIRST))
    assert shape.fields == [pa.field("id", pa.int32()), pa.field("note", pa.string())]
    rows, rejected = rows_of(shape, GOOD, b"{}", None, framed(b"\2", 9), GOOD[:-1], GOOD)
    row = {"id": 1, "note": "x"}
    assert rows == [row, dict.fromkeys(row), row]
    assert [offset for offset, _ in rejected] == [1, 3, 4]
    assert rejected[1][1] == "value: the schema registry has no schema with id 9"


@pytest.mark.parametrize("kind", [AVRO, JSON_SCHEMA, PROTOBUF])
def test_each_format_of_the_registry_is_columns(kind: str) -> None:
    value, schema = {
        AVRO: (GOOD, FIRST),
        JSON_SCHEMA: (
            framed(b'{"id": 1, "note": "x"}'),
            {"properties": {"id": {"type": "integer"}, "note": {"type": "string"}}},
        ),
        PROTOBUF: (framed(b"\0\x08\1\x12\1x"), PROTO),
    }[kind]
    registry = Registry(schema, kind=kind)
    rows, rejected = rows_of(shape_of(registry), value, framed(value[5:], 7), value[5:])
    assert rows == [{"id": 1, "note": "x"}] and [offset for offset, _ in rejected] == [1, 2]


def test_a_newer_schema_ends_the_file_before_its_first_value_and_no_field_of_it_is_lost() -> None:
    registry = Registry(FIRST)
    shape = shape_of(registry)
    assert len(rows_of(shape, GOOD)[0]) == 1
    registry.schemas.append(Schema(json.dumps(SECOND)))
    assert len(rows_of(shape, GOOD)[0]) == 1, "values of known schemas do not look for newer ones"
    newer = written(SECOND, {"id": 2**40, "more": "new"}, 2)
    with pytest.raises(SchemaMoved):
        rows_of(shape, GOOD, newer)
    again = shape_of(registry)
    assert rows_of(again, GOOD, newer) == ([{"id": 1, "more": "-"}, {"id": 2**40, "more": "new"}], [])
    then = evolved(pa.schema(shape.fields), again.fields)
    assert then == pa.schema([("id", pa.int64()), ("note", pa.string()), ("more", pa.string())])


def test_an_unknown_id_ends_no_file_while_the_subject_has_no_newer_schema() -> None:
    shape = shape_of(Registry(FIRST))
    for _ in range(2):
        assert len(rows_of(shape, framed(b"\2", 9), GOOD)[1]) == 1


def test_a_registry_that_is_away_makes_the_table_wait() -> None:
    registry = Registry(FIRST, FIRST)
    shape = shape_of(registry)
    registry.is_down = True
    assert len(rows_of(shape, written(FIRST, {"id": 1, "note": None}, 2))[0]) == 1, "the reader's own schema is there"
    for call in (lambda: shape_of(registry), lambda: rows_of(shape, GOOD)):
        with pytest.raises(RegistryWaits, match="http://here cannot be reached"):
            call()
    registry.is_down = False
    assert len(rows_of(shape, GOOD)[0]) == 1


def test_a_key_is_one_column_and_waits_for_its_schema() -> None:
    shape = shape_of(Registry(FIRST), is_flat=False)
    (field,) = shape.fields
    assert pa.types.is_struct(field.type)
    assert shape.columns(pa.array([GOOD, None], pa.binary())).columns[0].to_pylist() == [{"id": 1, "note": "x"}, None]
    with pytest.raises(RegistryWaits, match="no subject orders-key"):
        shape_of(Registry(FIRST), "orders-key", is_flat=False)


def wide(count: int) -> Any:
    return record(*((f"f{number}", "int") for number in range(count)))


REFUSED: dict[str, tuple[Any, str]] = {
    "a field named as the table's own column": (record(("_kafka", "int")), "a field is named _kafka"),
    "ten thousand columns": (wide(10_000), "more than 10000 types"),
    "a thousand columns and one": (wide(1_001), "more than 1000 columns"),
    "names that differ by capital letters": (record(("id", "int"), ("ID", "int")), "id and ID differ by capital letters"),
    "a record without fields inside": (record(("a", record(("b", record(name="C")), name="B"))), "a.b is of a type without values"),
    "a list inside itself": (record(("next", ["null", "R"])), "the schema is recursive"),
    "no schema at all": ("{", "the schema is not valid"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_schema_that_is_no_table_rejects_each_record_with_the_reason(name: str) -> None:
    schema, said = REFUSED[name]
    shape = shape_of(Registry(schema))
    assert shape.fields == []
    rows, rejected = rows_of(shape, GOOD, None, b"")
    assert rows == [{}] and [offset for offset, _ in rejected] == [0, 2]
    assert said in rejected[0][1] and SUBJECT in rejected[0][1]


def test_a_subject_that_is_not_there_rejects_each_record_with_the_reason() -> None:
    rows, rejected = rows_of(shape_of(Registry()), GOOD)
    assert (rows, rejected) == ([], [(0, f"value: the schema registry has no subject {SUBJECT}")])


def test_fields_that_say_nothing_are_left_out() -> None:
    schema = record(("id", "int"), ("nothing", "null"), ("empty", record(name="E")))
    shape = shape_of(Registry(schema))
    assert [field.name for field in shape.fields] == ["id"]
    assert rows_of(shape, framed(b"\2")) == ([{"id": 1}], [])


def test_a_value_of_50_mb_is_rejected_and_hurts_no_other() -> None:
    large = framed(b"\2\2" + b"\x80\xe1\xeb\x2f" + b"x" * 50_000_000)
    rows, rejected = rows_of(shape_of(Registry(FIRST)), GOOD, large, GOOD)
    assert len(rows) == 2 and rejected == [(1, f"value: it has {len(large)} bytes, more than {shapes.VALUE_BYTES_MAX}")]


def test_json_of_a_given_schema_is_columns() -> None:
    shape = json_shape("value", '{"properties": {"a": {"type": "integer"}}}')
    rows, rejected = rows_of(shape, b'{"a": 1}', b"\0\0\0\0\1" + b'{"a": 2}', b"{", None)
    assert rows == [{"a": 1}, {"a": 2}, {"a": None}] and [offset for offset, _ in rejected] == [2]
    assert json_shape("value", '{"type": "integer"}').fields == [pa.field("value", pa.int64())]
    for text, said in (
        ("{", "not valid"),
        ('{"properties": {"_kafka": {"type": "string"}}}', "named _kafka"),
        ('{"properties": {"": {}}}', "no name"),
    ):
        with pytest.raises(ColumnsError, match=said):
            json_shape("value", text)
