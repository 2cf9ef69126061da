"""Values become typed columns: each type of Avro, older and newer writers, and malformed values."""

from __future__ import annotations

import datetime
import uuid
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.needs import needs_packages

needs_packages("pyspark", "pyarrow", "fastavro")

import pyarrow as pa

from ottla.columns import wire
from ottla.registry.client import JSON_SCHEMA, RegistryFailed
from ottla.spark.errors import ConnectorError
from ottla.spark.schema.decode import ColumnDecoder
from ottla.spark.schema.reader import ddl_of
from tests.ottla.columns.avro.values import READER_ID, Shelf, framed, reader_schema, record, written

MOMENT = datetime.datetime(2026, 1, 31, 12, 0, 0, 123000)
INSTANT = MOMENT.replace(tzinfo=datetime.UTC)
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
#: Avro's type, the column's type in Spark (as with from_avro), a value as it is written, and the value as it is read.
TYPES: dict[str, tuple[Any, str, Any, Any]] = {
    "boolean": ("boolean", "BOOLEAN", True, True),
    "int": ("int", "INT", -7, -7),
    "long": ("long", "BIGINT", 2**60, 2**60),
    "float": ("float", "FLOAT", 0.5, 0.5),
    "double": ("double", "DOUBLE", 0.1, 0.1),
    "bytes": ("bytes", "BINARY", b"\xff", b"\xff"),
    "string": ({"type": "string", "avro.java.string": "String"}, "STRING", "é", "é"),
    "null": ("null", "VOID", None, None),
    "enum": ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "STRING", "B", "B"),
    "fixed": ({"type": "fixed", "name": "F", "size": 2}, "BINARY", b"ab", b"ab"),
    "date": ({"type": "int", "logicalType": "date"}, "DATE", MOMENT.date(), MOMENT.date()),
    "timestamp-millis": ({"type": "long", "logicalType": "timestamp-millis"}, "TIMESTAMP", INSTANT, INSTANT),
    "timestamp-micros": ({"type": "long", "logicalType": "timestamp-micros"}, "TIMESTAMP", INSTANT, INSTANT),
    "local-timestamp-millis": ({"type": "long", "logicalType": "local-timestamp-millis"}, "TIMESTAMP_NTZ", MOMENT, MOMENT),
    "local-timestamp-micros": ({"type": "long", "logicalType": "local-timestamp-micros"}, "TIMESTAMP_NTZ", MOMENT, MOMENT),
    "time-millis": ({"type": "int", "logicalType": "time-millis"}, "INT", datetime.time(0, 0, 1), 1000),
    "uuid": ({"type": "string", "logicalType": "uuid"}, "STRING", uuid.UUID(int=5), str(uuid.UUID(int=5))),
    "decimal": (PRICE, "DECIMAL(9, 2)", Decimal("-12.50"), Decimal("-12.50")),
    "decimal of a fixed": ({**PRICE, "type": "fixed", "name": "D", "size": 4}, "DECIMAL(9, 2)", Decimal("1.01"), Decimal("1.01")),
    "array": ({"type": "array", "items": ["null", "long"]}, "ARRAY<BIGINT>", [1, None], [1, None]),
    "array of decimals": ({"type": "array", "items": PRICE}, "ARRAY<DECIMAL(9, 2)>", [Decimal("0.01")], [Decimal("0.01")]),
    "map": ({"type": "map", "values": "int"}, "MAP<STRING, INT>", {"a": 1}, [("a", 1)]),
    "map of times": (
        {"type": "map", "values": {"type": "long", "logicalType": "timestamp-millis"}},
        "MAP<STRING, TIMESTAMP>",
        {"a": INSTANT}, [("a", INSTANT)],
    ),
    "record": (
        record(("at", {"type": "long", "logicalType": "timestamp-millis"}), ("odd `name`", "int")),
        "STRUCT<`at`: TIMESTAMP, `odd ``name```: INT>",
        {"at": INSTANT, "odd `name`": 1}, {"at": INSTANT, "odd `name`": 1},
    ),
    "a name used twice": (
        record(("a", record(("x", "int"), name="n.X")), ("b", "n.X")),
        "STRUCT<`a`: STRUCT<`x`: INT>, `b`: STRUCT<`x`: INT>>",
        {"a": {"x": 1}, "b": {"x": 2}}, {"a": {"x": 1}, "b": {"x": 2}},
    ),
    "null or a string": (["null", "string"], "STRING", "a", "a"),
    "null or a string: null": (["null", "string"], "STRING", None, None),
    "int or long": (["int", "long"], "BIGINT", 5, 5),
    "float or double or null": (["float", "null", "double"], "DOUBLE", 0.5, 0.5),
    "int or string": (["null", "int", "string"], "STRUCT<`member0`: INT, `member1`: STRING>", "a", {"member0": None, "member1": "a"}),
    "two records": (
        [record(("x", "int"), name="A"), record(("x", "int"), name="B")],
        "STRUCT<`member0`: STRUCT<`x`: INT>, `member1`: STRUCT<`x`: INT>>",
        ("B", {"x": 1}), {"member0": None, "member1": {"x": 1}},
    ),
    "a record or a map": (
        [record(("x", PRICE)), {"type": "map", "values": "int"}],
        "STRUCT<`member0`: STRUCT<`x`: DECIMAL(9, 2)>, `member1`: MAP<STRING, INT>>",
        {"x": Decimal("1.00")}, {"member0": {"x": Decimal("1.00")}, "member1": None},
    ),
}  # fmt: skip


def decoder(schema: Any, shelf: Shelf | None = None, *fields: str, mode: str = "FAILFAST") -> ColumnDecoder:
    client: Any = shelf or Shelf()
    return ColumnDecoder(reader_schema(schema, *fields), client, is_strict=mode == "FAILFAST")


def decoded(found: ColumnDecoder, *values: bytes | None) -> list[Any]:
    return found.array(pa.array(values, pa.binary()), lambda index: f"t-0 at offset {index}").to_pylist()


@pytest.mark.parametrize("name", TYPES)
def test_a_type_of_avro_is_the_column_that_from_avro_makes_of_it(name: str) -> None:
    schema, sql, given_value, expected = TYPES[name]
    assert ddl_of(reader_schema(schema).prepared()[1].arrow) == sql
    assert decoded(decoder(schema), written(schema, given_value), None) == [expected, None]


def test_values_of_older_and_newer_writers_are_read_with_the_readers_schema() -> None:
    inner = record(("n", "int", 4), ("raw", "bytes", "\u00ff"), name="Inner")
    newest = record(
        ("id", "long"),
        ("name", "string", "none"),
        ("price", PRICE, "\u0000\u00c8"),
        ("inner", inner, {"n": 5}),
        ("kind", {"type": "enum", "name": "K", "symbols": ["A", "OTHER"], "default": "OTHER"}, "A"),
        ("either", ["string", "bytes"], "s"),
    )
    oldest = record(("id", "int"), ("gone", {"type": "map", "values": "string"}))
    other = record(("id", "long"), ("kind", {"type": "enum", "name": "K", "symbols": ["A", "NEW"]}))
    found = decoded(
        decoder(newest, Shelf(oldest, other)),
        written(oldest, {"id": 1, "gone": {"a": "b"}}, 2),
        written(other, {"id": 2, "kind": "NEW"}, 3),
    )
    defaults = {
        "name": "none",
        "price": Decimal("2.00"),
        "inner": {"n": 5, "raw": b"\xff"},
        "kind": "A",
        "either": {"member0": "s", "member1": None},
    }
    assert found == [{**defaults, "id": 1}, {**defaults, "id": 2, "kind": "OTHER"}]


def test_a_record_that_was_written_alone_is_the_member_of_its_name_in_a_readers_union() -> None:
    first, second = record(("x", "int"), name="s.A"), record(("x", "int"), name="s.B")
    (row,) = decoded(decoder([first, second], Shelf(second)), written(second, {"x": 1}, 2))
    assert row == {"member0": None, "member1": {"x": 1}}


def test_only_fields_that_are_asked_for_are_read() -> None:
    schema = record(("a", record(("x", "int"), name="X")), ("b", "X"), ("c", "string"))
    value = written(schema, {"a": {"x": 1}, "b": {"x": 2}, "c": "s"})
    assert decoded(decoder(schema, None, "b"), value) == [{"b": {"x": 2}}]
    assert decoded(decoder(["null", schema], None, "c", "b"), framed(b"\2" + value[5:])) == [{"b": {"x": 2}, "c": "s"}]


def test_a_writers_schema_is_asked_for_once_and_the_readers_own_never() -> None:
    schema, shelf = record(("id", "int")), Shelf(record(("id", "int"), ("more", "int")))
    found = decoder(schema, shelf)
    old, new = written(schema, {"id": 1}), framed(b"\4\6", 2)
    assert decoded(found, old, new, old, new) == [{"id": 1}, {"id": 2}, {"id": 1}, {"id": 2}]
    assert shelf.asked == [2]


def test_schemas_that_are_kept_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "WRITERS_MAX", 2)
    schema, shelf = record(("id", "int")), Shelf(*[record(("id", "int"))] * 3)
    found = decoder(schema, shelf)
    assert len(decoded(found, *(framed(b"\2", schema_id) for schema_id in (2, 3, 4)))) == 3
    assert len(decoded(found, framed(b"\2", 2))) == 1
    assert shelf.asked == [2, 3, 4, 2]


LIST = record(("next", ["null", "List"]), name="List")
#: Values for a reader with the schema ROW, and the messages about them. Writers' schemas are those of SHELF, by ids from 2 on.
ROW = record(
    ("id", "long"), ("at", ["null", {"type": "long", "logicalType": "timestamp-millis"}], None), ("p", PRICE, "\0")
)
WRITERS = (
    record(("id", "string")),
    record(("id", "long"), ("p", PRICE)),
    record(("id", "long"), ("list", LIST)),
    {"type": "nothing"},
)
MALFORMED = {
    "no bytes": (b"", "it does not begin with a zero byte and the id of a schema: no bytes"),
    "plain JSON": (b'{"id": 1}', "a zero byte and the id of a schema: 7b22696422"),
    "an id that is cut off": (b"\0\0\0", "000000"),
    "an id that no schema has": (framed(b"", 99), "the schema registry has no schema with id 99"),
    "bytes that end too early": (written(ROW, {"id": 2**40, "at": None, "p": Decimal(1)})[:-2], "schema 1: "),
    "a branch that is none": (framed(b"\2\x08\0"), "schema 1: "),
    "a type that cannot be resolved": (framed(b"\2a", 2), "schema 2: Schema mismatch"),
    "more digits than the decimal has": (framed(b"\2\x0a\x7f\xff\xff\xff\xff", 3), "schema 3: a decimal has more than 9 digits"),
    "a recursive schema": (framed(b"\2\0", 4), r"schema 4: the schema is recursive \(List -> List\)"),
    "a schema that is not valid": (framed(b"\2", 5), "schema 5: the schema is not valid"),
    "a time that Spark does not have": (framed(b"\2\2" + b"\xfe" + b"\xff" * 8 + b"\1" + b"\0"), "t-0 at offset 1: the value cannot be decoded"),
}  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_value_fails_the_query_or_is_a_row_of_nulls(name: str) -> None:
    value, said = MALFORMED[name]
    good = written(ROW, {"id": 1, "at": None, "p": Decimal("1.00")})
    with pytest.raises(ConnectorError, match=said) as caught:
        decoded(decoder(ROW, Shelf(*WRITERS)), good, value)
    assert "t-0 at offset 1: the value cannot be decoded" in str(caught.value) and "PERMISSIVE" in str(caught.value)
    row = {"id": 1, "at": None, "p": Decimal("1.00")}
    nulls = dict.fromkeys(row)
    found = decoder(ROW, Shelf(*WRITERS), mode="PERMISSIVE")
    assert decoded(found, good, value, good, value, None) == [row, nulls, row, nulls, None]


def test_a_malformed_value_of_a_plain_type_is_null() -> None:
    assert decoded(decoder("string", mode="PERMISSIVE"), b"x", written("string", "a"), framed(b"\2\xff")) == [
        None,
        "a",
        None,
    ]


def test_a_schema_of_another_format_is_malformed() -> None:
    shelf = Shelf({"type": "object"}, kind=JSON_SCHEMA)
    with pytest.raises(ConnectorError, match="schema 2: the schema is of JSON"):
        decoded(decoder("string", shelf), framed(b"{}", 2))


def test_a_registry_that_is_away_is_no_malformed_value() -> None:
    class Away(Shelf):
        def schema(self, schema_id: int, subject: str = "") -> Any:
            raise RegistryFailed("the schema registry at http://here cannot be reached")

    with pytest.raises(
        ConnectorError, match="the schema with id 2: the schema registry at http://here cannot be reached"
    ):
        decoded(decoder("string", Away(), mode="PERMISSIVE"), framed(b"\2a", 2))


ANYTHING = record(
    ("id", "long"),
    ("map", {"type": "map", "values": ["null", PRICE]}),
    (
        "list",
        {
            "type": "array",
            "items": record(("e", {"type": "enum", "name": "E", "symbols": ["A"]}), ("f", "float"), name="I"),
        },
    ),
    ("either", ["int", "string", record(("d", {"type": "int", "logicalType": "date"}), name="J")]),
)


@given(st.binary(max_size=40))
def test_any_bytes_are_a_row_or_a_row_of_nulls(payload: bytes) -> None:
    (row,) = decoded(decoder(ANYTHING, mode="PERMISSIVE"), framed(payload, READER_ID))
    assert row.keys() == {"id", "map", "list", "either"}
