"""JSON encoded by a registry's schema decodes to the same JSON, and a value that does not fit is rejected with its place."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ottla.registry.client import Schema
from ottla.registry.encoder import EncodeFailed, Encoder, encoded, written_indexes
from ottla.registry.values import message_indexes, reader_of

AVRO = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "who", "type": ["null", "string"], "default": None},
        {"name": "lines", "type": {"type": "array", "items": {"type": "map", "values": "double"}}, "default": []},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}, "default": "B"},
        {"name": "raw", "type": "bytes", "default": "\u00ff"},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}], "default": None},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}, "default": 0},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            "default": "\u0000",
        },
        {"name": "next", "type": ["null", "Order"], "default": None},
        {"name": "mark", "type": {"type": "fixed", "name": "Mark", "size": 2}, "default": "ab"},
    ],
}
PROTO = """syntax = "proto3";
package shop;
message Other { int32 n = 1; message Inner { string s = 1; } }
message Order { int64 id = 1; repeated string lines = 2; }
"""


def avro(value: Any, schema: Any = AVRO) -> bytes:
    return encoded(Schema(json.dumps(schema)), json.dumps(value), "")


def test_a_value_of_avro_is_decoded_as_it_was_given() -> None:
    value = {
        "id": 2**62,
        "who": "ann",
        "lines": [{"a": 1.5}, {}],
        "kind": "A",
        "raw": "\u0000\u00fe",
        "at": "2026-01-31T12:00:00+00:00",
        "day": "2026-01-31",
        "price": "12.34",
        "next": {"id": 1, "who": None, "lines": [], "kind": "B", "raw": "", "at": None, "day": "1970-01-01"},
        "mark": "xy",
    }
    value["next"] |= {"price": "0.00", "next": None, "mark": "ab"}
    read = reader_of(Schema(json.dumps(AVRO)))
    assert read(avro(value)) == value
    assert read(avro({"id": 1}))["kind"] == "B" and read(avro({"id": 1}))["raw"] == "\u00ff"
    by_name = read(avro({"id": 1, "who": {"string": "ann"}, "at": {"long": 5}, "next": {"shop.Order": {"id": 2}}}))
    assert by_name["who"] == "ann" and by_name["next"]["id"] == 2


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({}, "$ has no field 'id'"),
        ({"id": "1"}, '$.id is "1", and the schema has a whole number (long)'),
        ({"id": True}, "$.id is true"),
        ({"id": 2**63}, "$.id is out of the range of long"),
        ({"id": 1, "lines": [{"a": "x"}]}, "$.lines[0].a is"),
        ({"id": 1, "who": 7}, "$.who is 7, and the schema has one of null, string"),
        ({"id": 1, "next": {"id": None}}, "$.next.id is null"),
        ({"id": 1, "what": 1}, "$ has a field 'what'"),
        ({"id": 1, "kind": "C"}, '$.kind is "C", and the schema has one of A, B'),
        ({"id": 1, "raw": "\u0100"}, "$.raw has a character above U+00FF"),
        ({"id": 1, "mark": "a"}, "$.mark has 1 bytes"),
        ({"id": 1, "at": "soon"}, "$.at is"),
        ({"id": 1, "price": "x"}, '$.price is "x", and the schema has a decimal'),
        ([], "$ is [], and the schema has an object"),
    ],
)
def test_what_is_no_value_of_avro_is_refused_with_its_place(value: Any, reason: str) -> None:
    with pytest.raises(EncodeFailed) as caught:
        avro(value)
    assert reason in str(caught.value)


def test_json_is_kept_as_it_was_written_and_checked_by_its_schema_alone() -> None:
    text = json.dumps({"type": "object", "properties": {"n": {"$ref": "number.json"}}, "required": ["n"]})
    schema = Schema(text, "JSON", (), {"number.json": '{"type": "integer", "minimum": 3}'})
    assert encoded(schema, ' {"n": 3,  "m": 1.10} ', "") == b'{"n": 3,  "m": 1.10}'
    for value, reason in {"{}": "'n' is a required property", '{"n": 1}': "$.n", "nothing": "no JSON"}.items():
        with pytest.raises(EncodeFailed) as caught:
            encoded(schema, value, "")
        assert reason in str(caught.value)
    elsewhere = Schema('{"$ref": "http://127.0.0.1:1/x.json"}', "JSON")
    with pytest.raises(Exception, match=r"x\.json"):
        encoded(elsewhere, "1", "")


def test_a_message_of_protobuf_is_the_first_one_or_the_one_that_is_named() -> None:
    schema = Schema(PROTO, "PROTOBUF")
    read = reader_of(schema)
    assert read(encoded(schema, '{"n": 3}', "")) == {"n": 3}
    assert read(encoded(schema, '{"id": "7", "lines": ["a"]}', "shop.Order")) == {"id": "7", "lines": ["a"]}
    inner = encoded(schema, '{"s": "x"}', "shop.Other.Inner")
    assert inner[:3] == b"\x04\x00\x00" and read(inner) == {"s": "x"}
    for text, message in (("{}", "shop.None"), ('{"no": 1}', ""), ("x", "")):
        with pytest.raises(EncodeFailed):
            encoded(schema, text, message)


def test_the_place_of_a_message_is_read_back() -> None:
    for indexes in ([0], [1], [0, 0], [300, 2, 70_000]):
        assert message_indexes(written_indexes(indexes) + b"rest") == (indexes, b"rest")


@pytest.fixture
async def encoder() -> AsyncIterator[Encoder]:
    made = Encoder(value_s=3.0)
    yield made
    await made.close()


async def test_a_value_has_the_magic_byte_and_the_id_of_its_schema(encoder: Encoder) -> None:
    assert await encoder.encode(258, Schema('"string"'), '"ab"') == b"\0\0\0\x01\x02\x04ab"
    with pytest.raises(EncodeFailed, match="no JSON: Expecting value"):
        await encoder.encode(1, Schema('"string"'), "")
    with pytest.raises(EncodeFailed, match="nested too deeply"):
        await encoder.encode(1, Schema('"string"'), "[" * 100_000)


async def test_a_schema_that_takes_too_long_costs_its_process_alone(encoder: Encoder) -> None:
    slow = Schema(json.dumps({"pattern": "^(a+)+$"}), "JSON")
    with pytest.raises(EncodeFailed, match="more than 3 s"):
        await encoder.encode(1, slow, json.dumps("a" * 40 + "b"))
    assert await encoder.encode(1, Schema('"int"'), "1") == b"\0\0\0\0\x01\x02"
