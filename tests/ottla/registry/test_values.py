"""Values in the wire format are decoded by the schemas of a registry. Each schema is requested once."""

from __future__ import annotations

import base64
import datetime
import decimal
import io
import json
import uuid

import fastavro
import pytest
from google.protobuf import descriptor_pb2, message_factory

from ottla.registry.client import RegistryClient, RegistryFailed, Schema
from ottla.registry.decoder import Decoder
from ottla.registry.formats.proto_descriptor import DEFAULT_NAME
from ottla.registry.formats.proto_schema import ProtobufSchema
from ottla.registry.values import DecodeFailed, message_indexes, reader_of
from tests.ottla.registry.stand_in import registry_of

ADDRESS = {"type": "record", "name": "Address", "namespace": "shop", "fields": [{"name": "city", "type": "string"}]}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        {"name": "raw", "type": "bytes"},
        {"name": "to", "type": "shop.Address"},
    ],
}
ORDER_ROW = {"schema": json.dumps(ORDER), "references": [{"name": "shop.Address", "subject": "address", "version": 1}]}
ADDRESS_ROW = {"subject": "address", "version": 1, "id": 1, "schema": json.dumps(ADDRESS)}
MESSAGES = (
    'syntax = "proto3"; package shop; message Other { int32 n = 1; } message Order { message Line { string sku = 1; } }'
)


def framed(schema_id: int, payload: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + payload


def avro_bytes() -> bytes:
    parsed = fastavro.parse_schema([ADDRESS, ORDER])
    out = io.BytesIO()
    moment = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)
    order = {"at": moment, "price": decimal.Decimal("12.50"), "raw": b"\xff\x00", "to": {"city": "Bern"}}
    fastavro.schemaless_writer(out, parsed, ("shop.Order", order))
    return out.getvalue()[1:]  # without the branch of the union


async def test_an_avro_value_with_a_referenced_type_is_decoded_to_plain_json_and_its_schema_read_once() -> None:
    with registry_of({"/schemas/ids/7": ORDER_ROW, "/subjects/address/versions/1": ADDRESS_ROW}) as (url, asked):
        decoder = Decoder(RegistryClient(url))
        first = await decoder.decode(framed(7, avro_bytes()))
        again = await decoder.decode(framed(7, avro_bytes()))
    assert first == again
    assert first is not None
    assert (first.kind, first.schema_id) == ("AVRO", 7)
    assert json.loads(first.text)["at"] == "2026-01-31T12:00:00+00:00"
    assert json.loads(first.text)["price"] == "12.50"
    assert json.loads(first.text)["raw"] == "\xff\x00"
    assert json.loads(first.text)["to"] == {"city": "Bern"}
    assert asked == ["/schemas/ids/7", "/subjects/address/versions/1"]


async def test_a_protobuf_value_names_its_message_by_indexes() -> None:
    row = {"schema": MESSAGES, "schemaType": "PROTOBUF"}
    file = ProtobufSchema(MESSAGES, {}).pool().FindFileByName(DEFAULT_NAME)
    line = message_factory.GetMessageClass(file.message_types_by_name["Order"].nested_types[0])(sku="tea")
    other = message_factory.GetMessageClass(file.message_types_by_name["Other"])(n=5)
    with registry_of({"/schemas/ids/8": row}) as (url, _):
        decoder = Decoder(RegistryClient(url))
        nested = await decoder.decode(framed(8, b"\x04\x02\x00" + line.SerializeToString()))
        first = await decoder.decode(framed(8, b"\x00" + other.SerializeToString()))
    assert nested is not None and json.loads(nested.text) == {"sku": "tea"}
    assert first is not None and json.loads(first.text) == {"n": 5}


MAP_AND_MESSAGES = (
    'syntax = "proto3"; package shop; '
    "message Order { message Line { string sku = 1; } map<string, int32> stock = 1; message Note { int32 n = 1; } }"
)
#: A message of shop.Order, a value of it, and its index if maps count as messages and if they do not.
PLACES = [("Line", b"\x0a\x03tea", {"sku": "tea"}, 0, 0), ("Note", b"\x08\x07", {"n": 7}, 2, 1)]


@pytest.mark.parametrize(("name", "value", "expected", "in_descriptor", "in_text"), PLACES)
def test_places_count_the_entries_of_maps_where_a_descriptor_was_registered_and_not_where_a_text_was(
    name: str, value: bytes, expected: object, in_descriptor: int, in_text: int
) -> None:
    # A descriptor as protoc makes it, which generated classes of Java and Python register: map entries are among its messages.
    made = descriptor_pb2.FileDescriptorProto()
    ProtobufSchema(MAP_AND_MESSAGES, {}).pool().FindFileByName(DEFAULT_NAME).CopyToProto(made)
    assert [row.name for row in made.message_type[0].nested_type] == ["Line", "StockEntry", "Note"]
    sent = base64.b64encode(made.SerializeToString()).decode()
    for text, place in ((sent, in_descriptor), (MAP_AND_MESSAGES, in_text)):
        kept = ProtobufSchema(text, {}).canonical
        read = reader_of(Schema(kept, "PROTOBUF", (), {}))
        assert read(bytes((4, 0, 2 * place)) + value) == expected, kept


async def test_a_json_value_is_decoded() -> None:
    with registry_of({"/schemas/ids/9": {"schema": '{"type":"object"}', "schemaType": "JSON"}}) as (url, _):
        decoded = await Decoder(RegistryClient(url)).decode(framed(9, b'{"a": [1, null]}'))
    assert decoded is not None and decoded.text == '{"a":[1,null]}'


async def test_the_guid_of_a_header_names_the_schema() -> None:
    guid = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")
    rows = {
        f"/schemas/guids/{guid}/ids": [{"context": ".", "id": 9}],
        "/schemas/ids/9": {"schema": "{}", "schemaType": "JSON"},
    }
    with registry_of(rows) as (url, _):
        headers = [("__value_schema_id", b"\x01" + guid.bytes)]
        decoded = await Decoder(RegistryClient(url)).decode(b'{"a":1}', headers)
    assert decoded is not None and json.loads(decoded.text) == {"a": 1}


async def test_bytes_without_the_magic_byte_are_no_value_of_a_registry() -> None:
    decoder = Decoder(RegistryClient("http://127.0.0.1:1"))
    for data in (None, b"", b"\0\0\0", b"hello", b"{}", b"\x01\0\0\0\x07rest"):
        assert await decoder.decode(data) is None


async def test_what_cannot_be_decoded_says_why() -> None:
    with registry_of({"/schemas/ids/7": {"schema": '"long"'}, "/schemas/ids/8": {"schema": "{"}}) as (url, _):
        decoder = Decoder(RegistryClient(url))
        with pytest.raises(DecodeFailed, match="no value of schema 7"):
            await decoder.decode(framed(7, b""))
        with pytest.raises(DecodeFailed, match="the schema is not valid"):
            await decoder.decode(framed(8, b"x"))
        with pytest.raises(DecodeFailed, match="Schema not found"):
            await decoder.decode(framed(404, b"x"))


@pytest.mark.parametrize(
    "payload", [b"", b"\xff\xff\xff\xff\xff\x01", b"\x01", b"\x04\x02", b"\x02\x01", b"\xfe\xff\x03"]
)
def test_wrong_message_indexes_are_rejected(payload: bytes) -> None:
    with pytest.raises(DecodeFailed):
        message_indexes(payload)


def test_a_registry_that_is_not_there_is_named() -> None:
    with pytest.raises(RegistryFailed, match=r"http://127\.0\.0\.1:1 cannot be reached"):
        RegistryClient("http://user:secret@127.0.0.1:1").subjects()


def test_the_next_instance_is_tried_after_one_that_is_not_there() -> None:
    with registry_of({"/subjects": ["a"]}) as (url, _):
        assert RegistryClient(f"http://127.0.0.1:1,{url}").subjects() == ["a"]


def test_the_schemas_of_a_reader_may_refer_to_each_other() -> None:
    inner, middle = (
        'syntax = "proto3"; message In { int32 n = 1; }',
        'syntax = "proto3"; import "in.proto"; message Mid { In in = 1; }',
    )
    outer = 'syntax = "proto3"; import "mid.proto"; message Out { Mid mid = 1; }'
    read = reader_of(Schema(outer, "PROTOBUF", (), {"in.proto": inner, "mid.proto": middle}))
    assert read(b"\0\x0a\x04\x0a\x02\x08\x03") == {"mid": {"in": {"n": 3}}}
