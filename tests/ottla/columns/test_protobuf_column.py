"""Protobuf becomes a typed column: each kind of field, nested messages, and malformed values."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pytest

from tests.needs import needs_packages

needs_packages("pyarrow", "google.protobuf")

import pyarrow as pa
from google.protobuf import message_factory

from ottla.columns.batches import ColumnsError
from ottla.columns.protobuf_column import ProtobufColumn
from ottla.registry.client import PROTOBUF, RegistryFailed, Schema
from ottla.registry.formats.proto_schema import ProtobufSchema

SCHEMA = """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/any.proto";

message Order {
  int64 id = 1;
  optional string note = 2;
  uint64 large = 3;
  Status status = 4;
  repeated Line lines = 5;
  map<string, int32> counts = 6;
  google.protobuf.Timestamp at = 7;
  google.protobuf.StringValue by = 8;
  google.protobuf.Struct more = 9;
  Order parent = 10;
  oneof way { string post = 11; bytes code = 12; }
  google.protobuf.Any any = 13;
  message Line { float price = 1; }
}
enum Status { NEW = 0; PAID = 1; }
message Other { int64 id = 1; message Inner { int64 id = 1; } }
"""
FIRST, EXTRA = "message First {}\nmessage Order {", "string extra = 40;\n  int64 id = 1;\n  optional"
NEWER = SCHEMA.replace("message Order {", FIRST).replace("int64 id = 1;\n  optional", EXTRA)


def made(schema: str = SCHEMA, name: str = "shop.Order") -> Any:
    return message_factory.GetMessageClass(ProtobufSchema(schema, {}).pool().FindMessageTypeByName(name))()


class Shelf:
    def __init__(self, **schemas: Schema) -> None:
        self.schemas = {int(name[1:]): schema for name, schema in schemas.items()}

    def schema(self, schema_id: int, subject: str = "") -> Schema:
        if schema_id not in self.schemas:
            raise RegistryFailed("Schema not found", 40403)
        return self.schemas[schema_id]


def column(schema: str = SCHEMA, **others: Schema) -> ProtobufColumn:
    client: Any = Shelf(**others)
    return ProtobufColumn(Schema(schema, PROTOBUF), 1, client, "t-value")


def decoded(found: ProtobufColumn, *values: bytes | None) -> tuple[list[Any], dict[int, str]]:
    array, wrong = found.decoded(pa.array(values, pa.binary()))
    array.validate(full=True)
    return array.to_pylist(), wrong


def framed(message: Any, prefix: bytes = b"\0", schema_id: int = 1) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + prefix + message.SerializeToString()


EMPTY = dict.fromkeys(("note", "at", "by", "more", "parent", "post", "code", "any")) | {
    "id": 0, "large": Decimal(0), "status": "NEW", "lines": [], "counts": [],
}  # fmt: skip


def test_each_kind_of_field_is_a_column() -> None:
    message = made()
    message.id, message.note, message.large, message.status = -1, "", 2**64 - 1, 1
    message.lines.add().price = 0.5
    message.lines.add()
    message.counts["a"] = 1
    message.at.FromMicroseconds(1_000_001)
    message.by.value = "me"
    message.more["x"] = "é"
    message.parent.id = 7
    message.code = b"\xff"
    row = EMPTY | {
        "id": -1, "note": "", "large": Decimal(2**64 - 1), "status": "PAID", "lines": [{"price": 0.5}, {"price": 0.0}], "counts": [("a", 1)],
        "at": datetime.datetime(1970, 1, 1, 0, 0, 1, 1, datetime.UTC), "by": "me", "more": '{"x": "é"}', "code": b"\xff",
        "parent": '{"id": "7"}',
    }  # fmt: skip
    unknown = made()
    unknown.status = 9
    assert decoded(column(), framed(message), None, framed(made()), framed(unknown)) == (
        [row, None, EMPTY, EMPTY | {"status": "9"}],
        {},
    )


def test_the_schema_of_a_writer_says_which_message_a_value_is() -> None:
    found = column(_2=Schema(NEWER, PROTOBUF), _3=Schema('"string"'))
    newer = made(NEWER)
    newer.id, newer.extra = 5, "x"
    other = made(name="shop.Other")
    rows, wrong = decoded(
        found,
        framed(newer, b"\2\2", 2),
        framed(other, b"\2\2"),
        framed(other, b"\x04\2\0"),
        framed(other, b"\0", 2),
        framed(other, b"\2\x10"),
        framed(other, b"\0", 3),
        framed(other, b"\0", 4),
    )
    assert rows == [EMPTY | {"id": 5}, *[None] * 6]
    assert [wrong[row].partition(": ")[2] for row in range(1, 6)] == [
        "it is a message shop.Other, and the columns are those of shop.Order",
        "it is a message shop.Other.Inner, and the columns are those of shop.Order",
        "it is a message shop.First, and the columns are those of shop.Order",
        "it is a message [8], and the columns are those of shop.Order",
        "the schema is of AVRO, where Protobuf is read",
    ]
    assert wrong[6] == "the schema registry has no schema with id 4"


MALFORMED = {
    "no bytes": b"",
    "JSON": b"{}",
    "indexes that are cut off": b"\0\0\0\0\1\x80",
    "a million indexes": b"\0\0\0\0\1\x80\x89\x7a",
    "a length that lies": b"\0\0\0\0\1\0\x12\xff\xff\xff\xff\x07",
    "no UTF-8": b"\0\0\0\0\1\0\x12\x01\xff",
    "a message nested too deeply": b"\0\0\0\0\1\0" + b"\x52\x80\x80\x04" * 2000,
    "a time beyond all": b"\0\0\0\0\1\0\x3a\x0a\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
    "an any of an unknown type": b"\0\0\0\0\1\0\x6a\x05\x0a\x03a/b",
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_value_has_a_reason_and_hurts_no_other(name: str) -> None:
    good = framed(made())
    rows, wrong = decoded(column(), good, MALFORMED[name], good, MALFORMED[name])
    assert rows == [EMPTY, None, EMPTY, None] and wrong.keys() == {1, 3} and all(wrong.values())


def test_text_of_proto2_that_is_no_utf8_has_a_reason() -> None:
    found = column('syntax = "proto2"; message A { optional string a = 1; }')
    rows, wrong = decoded(found, b"\0\0\0\0\1\0\x0a\1\xff", b"\0\0\0\0\1\0\x0a\1a", b"\0\0\0\0\1\0")
    assert rows == [None, {"a": "a"}, {"a": None}] and wrong.keys() == {0}


def test_a_schema_that_is_not_valid_is_explained() -> None:
    for text, kind in (
        ("message", PROTOBUF),
        ("", PROTOBUF),
        ('syntax = "proto3"; message A { Missing m = 1; }', PROTOBUF),
        ("{}", "JSON"),
    ):
        with pytest.raises(ColumnsError):
            client: Any = Shelf()
            ProtobufColumn(Schema(text, kind), 1, client, "t-value")
