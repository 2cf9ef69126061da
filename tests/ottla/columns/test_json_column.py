"""JSON becomes a typed column: the type for each JSON Schema, and values that are no JSON or do not fit."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.needs import needs_packages

needs_packages("pyarrow", "msgspec")

import pyarrow as pa

from ottla.columns.batches import ColumnsError
from ottla.columns.json_column import JsonColumn

TEXT, INT, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}
NULL = {"type": "null"}


def an_object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


#: A schema, the column's type, a JSON text and its value.
TYPES: dict[str, tuple[Any, str, str, Any]] = {
    "string": (TEXT, "string", '"é"', "é"),
    "integer": (INT, "int64", "-9007199254740993", -9007199254740993),
    "an integer as a float": (INT, "int64", "2.0", 2),
    "number": (NUMBER, "double", "2", 2.0),
    "integer or number": ({"type": ["integer", "number", "null"]}, "double", "1.5", 1.5),
    "boolean": ({"type": "boolean"}, "bool", "true", True),
    "null": (NULL, "string", "null", None),
    "an enum of text": ({"enum": ["A", "B", None]}, "string", '"A"', "A"),
    "date-time": ({"type": "string", "format": "date-time"}, "string", '"2026-01-31T12:00:00Z"', "2026-01-31T12:00:00Z"),
    "a list": ({"type": "array", "items": INT}, "list<item: int64>", "[1, null]", [1, None]),
    "a map": ({"type": "object", "additionalProperties": NUMBER}, "map<string, double>", '{"a": 1}', [("a", 1.0)]),
    "an object": (an_object(**{"a b": INT, "class": TEXT}), "struct<a b: int64, class: string>", '{"class": "c", "more": 1}', {"a b": None, "class": "c"}),
    "one or null": ({"oneOf": [NULL, TEXT]}, "string", "null", None),
    "a definition": ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": an_object(x=INT)}}, "struct<x: int64>", '{"x": 1}', {"x": 1}),
    "another schema": (an_object(a={"$ref": "other.json#/definitions/A"}), "struct<a: int64>", '{"a": 1}', {"a": 1}),
    "several types": ({"type": ["string", "integer"]}, "string", " [1,  2]", "[1,  2]"),
    "a schema inside itself": (
        an_object(name=TEXT, child={"$ref": "#"}), "struct<name: string, child: string>",
        '{"child": {"name": "c", "child": null}}', {"name": None, "child": '{"name": "c", "child": null}'},
    ),
    "anything": (an_object(a=True, b={}, c={"type": "object"}, d={"$ref": "#/no"}), "struct<a: string, b: string, c: string, d: string>",
        '{"a": 1, "b": null, "c": {}, "d": "x"}', {"a": "1", "b": None, "c": "{}", "d": '"x"'}),
    "a tuple": ({"type": "array", "items": [INT, TEXT]}, "string", "[1]", "[1]"),
}  # fmt: skip
OTHERS = {"other.json": json.dumps({"definitions": {"A": {"$ref": "#/definitions/B"}, "B": INT}})}


def decoded(column: JsonColumn, *values: bytes | None) -> tuple[list[Any], dict[int, str]]:
    made, wrong = column.decoded(pa.array(values, pa.binary()))
    made.validate(full=True)
    return made.to_pylist(), wrong


@pytest.mark.parametrize("name", TYPES)
def test_a_json_schema_is_a_type_of_columns(name: str) -> None:
    schema, kind, text, expected = TYPES[name]
    column = JsonColumn(json.dumps(schema), OTHERS)
    assert str(column.kind) == kind
    assert decoded(column, text.encode(), b"\0\0\0\0\1" + text.encode(), None) == ([expected, expected, None], {})


ROW = an_object(id=INT, list={"type": "array", "items": an_object(x=NUMBER)}, any={})
WRONG = {
    "no bytes": (b"", "truncated"),
    "only a prefix": (b"\0\0", "truncated"),
    "two objects": (b'{"id": 1} {"id": 2}', "trailing characters"),
    "the end of one that the next completes": (b'{"id": ', "truncated"),
    "more than an object": (b'{"id": 1}, "more": {}', "trailing characters"),
    "another type": (b'{"id": "1"}', "Expected `int | float | null`, got `str` - at `$.id`"),
    "deep inside": (b'{"list": [{"x": true}]}', "at `$.list[0].x`"),
    "a fraction": (b'{"id": 1.5}', "1.5 is no integer"),
    "65 bits": (b'{"id": 9223372036854775808}', "too large"),
    "a list": (b"[1]", "got `array`"),
    "no UTF-8": (b'{"any": "\xff"}', "utf-8"),
    "deeper than Python goes": (b'{"any": ' + b"[" * 100_000, "recursion"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_value_that_is_no_json_or_does_not_fit_has_a_reason_and_hurts_no_other(name: str) -> None:
    value, said = WRONG[name]
    good = b'{"id": 1,\n "list": []}'
    row = {"id": 1, "list": [], "any": None}
    rows, wrong = decoded(JsonColumn(json.dumps(ROW)), good, value, None, value, good)
    assert rows == [row, None, None, None, row]
    assert wrong.keys() == {1, 3} and said in wrong[1]


def test_a_schema_that_is_not_valid_is_explained() -> None:
    for text in ("{", '{"properties": ' + '{"a": ' * 100_000, "[" * 100_000):
        with pytest.raises(ColumnsError, match="not valid"):
            JsonColumn(text)


def test_a_schema_that_is_nested_deeply_or_refers_to_itself_is_text_or_explained() -> None:
    assert JsonColumn('{"$ref": "#"}').kind == pa.string()
    assert JsonColumn('{"oneOf": [{"$ref": "#"}]}').kind == pa.string()
    nested = '{"type": "array", "items": ' * 400 + '{"type": "integer"}' + "}" * 400
    try:
        assert decoded(JsonColumn(nested), b"[]")[0] == [[]]
    except ColumnsError as fault:
        assert "too deeply" in str(fault)
    doubled: Any = an_object(x=INT)
    for _ in range(20):
        doubled = an_object(a={"$ref": "#/d"}, b={"$ref": "#/d"}) if doubled is None else an_object(a=doubled)
    assert JsonColumn(json.dumps(doubled)).kind.num_fields == 1


def test_a_few_lines_with_a_million_columns_are_explained() -> None:
    definitions = {
        f"d{n}": an_object(a={"$ref": f"#/$defs/d{n + 1}"}, b={"$ref": f"#/$defs/d{n + 1}"}) for n in range(20)
    }
    with pytest.raises(ColumnsError, match="more than 10000 types"):
        JsonColumn(json.dumps({"$ref": "#/$defs/d0", "$defs": {**definitions, "d20": INT}}))
