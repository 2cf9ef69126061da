"""Schemas that cannot be columns of Spark: they are not valid, recursive, too large, or have values that cannot be
distinguished.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.needs import needs_packages

needs_packages("pyarrow", "fastavro")

import pyarrow as pa

from ottla.columns.avro.column import AvroColumn
from ottla.columns.avro.types import DIGITS_MAX, TYPES_MAX
from ottla.columns.batches import ColumnsError
from tests.ottla.columns.avro.values import Shelf, framed, reader_schema, record


def doubled(depth: int) -> dict[str, Any]:
    """A schema of a few lines with 2^depth fields."""
    node = record(("a", "int"), name="R0")
    for number in range(1, depth):
        node = record(("a", node), ("b", f"R{number - 1}"), name=f"R{number}")
    return node


def nested(depth: int) -> str:
    return '{"type": "array", "items": ' * depth + '"int"' + "}" * depth


REJECTED: dict[str, tuple[Any, str]] = {
    "no JSON": ('"', "the schema is not valid"),
    "no type": ({"type": "thing"}, "the schema is not valid"),
    "a name that is not defined": (record(("a", "Missing")), "the schema is not valid"),
    "a list of nothing but itself": (record(("next", ["null", "R"])), r"recursive \(R -> R\)"),
    "a tree": (record(("a", record(("b", {"type": "array", "items": "R"}), name="B"))), r"recursive \(R -> B -> R\)"),
    "deeper than Python goes": (nested(5000), "the schema is not valid"),
    "a million columns": (doubled(20), f"more than {TYPES_MAX} types"),
    "arrays of nothing": ({"type": "array", "items": record(("a", "null"))}, "items have no bytes"),
    "a decimal of 39 digits": ({"type": "bytes", "logicalType": "decimal", "precision": DIGITS_MAX + 1}, "39 digits, and columns have 38"),
    "int or long or string": (["int", "long", "string"], "a union of int and long among others"),
}  # fmt: skip


@pytest.mark.parametrize("name", REJECTED)
def test_a_schema_that_is_no_column_is_explained(name: str) -> None:
    schema, said = REJECTED[name]
    with pytest.raises(ColumnsError, match=said):
        reader_schema(schema).prepared()


def test_a_schema_that_is_nested_deeply_is_read_or_explained_and_never_a_crash() -> None:
    for depth in (10, 100, 200, 400):
        try:
            client: Any = Shelf()
            found = AvroColumn(reader_schema(nested(depth)), client)
        except ColumnsError:
            continue
        assert found.decoded(pa.array([framed(b"\0")] * 100, pa.binary()))[1] == {}


FIELDS = {
    "a field that is not there": (record(("a", "int"), ("b", "int")), ("a", "c"), "it has no field c; its fields are a, b"),
    "a field of no record": ("string", ("a",), "its type is no record"),
    "a field of one of several": ([record(("a", "int"), name="A"), record(("a", "int"), name="B")], ("a",), "its type is no record"),
}  # fmt: skip


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_that_is_not_there_is_explained(name: str) -> None:
    schema, fields, said = FIELDS[name]
    with pytest.raises(ColumnsError, match=said):
        reader_schema(schema, *fields).prepared()


def test_a_union_of_records_that_repeats_a_name_is_not_confused_by_namespaces() -> None:
    first, second = (record(("x", "int"), name=f"{space}.Same") for space in ("a", "b"))
    kind = reader_schema(json.dumps([first, second])).prepared()[1].arrow
    assert str(kind) == "struct<member0: struct<x: int32>, member1: struct<x: int32>>"
