"""Values and schemas that would crash a reader, or occupy it for ever: at most one process dies, and the values around them are
decoded.
"""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import aclosing

import pytest
from google.protobuf.message import DecodeError

from ottla.protocol.records.record import Record
from ottla.registry.avro_values import DECIMAL_BYTES_MAX, DEPTH_MAX, EMPTY_ITEMS_MAX
from ottla.registry.client import RegistryClient, RegistryFailed, Schema
from ottla.registry.decoder import Decoder, Encoded
from ottla.registry.values import DecodedValue, DecodeFailed, reader_of
from tests.ottla.registry.stand_in import registry_of

LIST = json.dumps({"type": "record", "name": "L", "fields": [{"name": "n", "type": ["null", "L"]}]})
#: A value of one byte has ten million items: no list without bytes, and no depth.
WIDE = json.dumps(
    {
        "type": "array",
        "items": {
            "type": "record",
            "name": "Wide",
            "fields": [{"name": f"f{n}", "type": "null"} for n in range(2_000)] + [{"name": "b", "type": "boolean"}],
        },
    }
)
DECIMAL = '{"type":"bytes","logicalType":"decimal","precision":1000000000,"scale":2}'
MESSAGE = 'syntax = "proto3"; message M { M m = 1; repeated int32 n = 2; }'


def zigzag(number: int) -> bytes:
    number, out = (number << 1) ^ (number >> 63), bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


HOSTILE = {
    "an array of 2^40 nulls": ("AVRO", '{"type":"array","items":"null"}', zigzag(1 << 40) + b"\0"),
    "a negative count": ("AVRO", '{"type":"array","items":"null"}', zigzag(-(1 << 40)) + zigzag(0) + b"\0"),
    "empty records": (
        "AVRO",
        '{"type":"array","items":{"type":"record","name":"E","fields":[]}}',
        zigzag(1 << 40) + b"\0",
    ),
    "no bytes in fixed": (
        "AVRO",
        '{"type":"array","items":{"type":"fixed","name":"F","size":0}}',
        zigzag(1 << 40) + b"\0",
    ),
    "a string of 2^40 bytes": ("AVRO", '"string"', zigzag(1 << 40) + b"x"),
    "a record 100,000 deep": ("AVRO", LIST, zigzag(1) * 100_000 + b"\0"),
    "a long decimal": ("AVRO", DECIMAL, zigzag(400_000) + b"\x7f" * 400_000),
    "digits": ("JSON", "{}", b"9" * 900_000),
    "brackets": ("JSON", "{}", b"[" * 900_000),
    "a deep message": ("PROTOBUF", MESSAGE, b"\0" + b"\x0b" * 10_000),
    "a truncated message": ("PROTOBUF", MESSAGE, b"\0\x0a\xff\xff\xff\xff\x0f"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_value_without_a_bound_is_refused_before_its_library_sees_it(case: str) -> None:
    kind, text, payload = HOSTILE[case]
    began = time.process_time()
    with pytest.raises((DecodeFailed, DecodeError, ValueError, EOFError, RecursionError)):
        reader_of(Schema(text, kind))(payload)
    assert time.process_time() - began < 2


def test_what_is_within_the_bounds_is_read() -> None:
    items = reader_of(Schema('{"type":"array","items":"null"}'))
    assert items(zigzag(EMPTY_ITEMS_MAX) + b"\0") == [None] * EMPTY_ITEMS_MAX
    chain = reader_of(Schema(LIST))(zigzag(1) * (DEPTH_MAX // 3) + b"\0")
    assert chain["n"]["n"]["n"] is not None
    assert len(reader_of(Schema(DECIMAL))(zigzag(DECIMAL_BYTES_MAX) + b"\x7f" * DECIMAL_BYTES_MAX)) > 1_000


async def test_a_value_that_ends_its_process_is_named_and_those_around_it_are_decoded() -> None:
    rows = {"/schemas/ids/1": {"schema": WIDE}, "/schemas/ids/2": {"schema": '"long"'}}
    good, poison = b"\0\0\0\0\2\x0e", b"\0\0\0\0\1" + zigzag(1 << 18) + b"\1" * (1 << 18) + b"\0"
    with registry_of(rows) as (url, _):
        decoder = Decoder(RegistryClient(url), value_s=2.0)
        values = [good, poison, good, b"\0\0\0\0\2", b"plain"]
        try:
            async with aclosing(decoder.decode_all([Encoded(data) for data in values])) as answers:
                found = [answer async for some in answers for answer in some]
        finally:
            await decoder.close()
    assert found[0] == found[2] == DecodedValue("7", "AVRO", 2)
    assert isinstance(found[1], DecodeFailed) and "schema 1" in str(found[1])
    assert isinstance(found[3], DecodeFailed) and found[4] is None


async def test_a_registry_that_is_away_is_no_fault_of_a_value() -> None:
    decoder = Decoder(RegistryClient("http://127.0.0.1:1"))
    with pytest.raises(RegistryFailed, match="cannot be reached"):
        await decoder.decode(b"\0\0\0\0\1x")


async def test_a_process_is_kept_from_one_question_to_the_next() -> None:
    with registry_of({"/schemas/ids/2": {"schema": '"long"'}}) as (url, _):
        decoder = Decoder(RegistryClient(url))
        try:
            for _ in range(3):
                found = decoder.records([Record(0, 0, None, b"\0\0\0\0\2\x0e")])
                rows = [row async for some in found for row in some]
                assert [(record.value, reasons) for record, reasons in rows] == [(b"7", [])]
                (process,) = decoder._processes._idle
                assert process.known == {2}
        finally:
            await decoder.close()


async def test_a_schema_that_ends_its_process_is_the_one_that_is_named() -> None:
    """A chain of records has no depth in its text, but crashes fastavro's parser or its reader."""
    names = [{"type": "record", "name": "R0", "fields": []}] + [
        {"type": "record", "name": f"R{n}", "fields": [{"name": "f", "type": f"R{n - 1}"}]} for n in range(1, 20_000)
    ]
    rows = {
        "/schemas/ids/1": {"schema": '"long"'},
        "/schemas/ids/2": {"schema": json.dumps(names)},
        "/schemas/ids/3": {"schema": '"int"'},
    }
    with registry_of(rows) as (url, _):
        decoder = Decoder(RegistryClient(url), value_s=2.0)
        try:
            values = [b"\0\0\0\0" + bytes([number]) + b"\x0e" for number in (1, 2, 3)]
            found = [each async for some in decoder.decode_all(map(Encoded, values)) for each in some]
        finally:
            await decoder.close()
    assert isinstance(found[1], DecodeFailed)
    assert [each.text for each in found if isinstance(each, DecodedValue)] == ["7", "7"]


@pytest.mark.chaos
async def test_a_schema_that_ends_its_process_behind_a_good_value_is_asked_once() -> None:
    """The values before it were sent again together with it, and so on for ever."""
    names = [{"type": "record", "name": "R0", "fields": []}] + [
        {"type": "record", "name": f"R{n}", "fields": [{"name": "f", "type": f"R{n - 1}"}]} for n in range(1, 150_000)
    ]
    rows = {
        "/schemas/ids/1": {"schema": "{}", "schemaType": "JSON"},
        "/schemas/ids/2": {"schema": json.dumps(names)},
    }
    with registry_of(rows) as (url, _):
        decoder = Decoder(RegistryClient(url), value_s=0.5)
        try:
            values = [b"\0\0\0\0" + bytes([number]) + b"7" for number in (1, 1, 2, 1)]
            async with asyncio.timeout(20):
                found = [each async for some in decoder.decode_all(map(Encoded, values)) for each in some]
        finally:
            await decoder.close()
    assert isinstance(found[2], DecodeFailed) and "2" in str(found[2])
    assert [each.text for each in found if isinstance(each, DecodedValue)] == ["7", "7", "7"]


async def test_answers_and_the_values_between_them_that_have_no_schema_keep_their_order() -> None:
    with registry_of({"/schemas/ids/2": {"schema": '"long"'}}) as (url, _):
        decoder = Decoder(RegistryClient(url))
        records = [Record(n, 0, b"key", b"plain" if n % 3 else b"\0\0\0\0\2" + zigzag(n)) for n in range(5_000)]
        records.append(Record(5_000, 0, None, None))
        try:
            rows = [row async for some in decoder.records(records) for row in some]
        finally:
            await decoder.close()
    assert [row.record.offset for row in rows] == list(range(5_001)) and not any(row.reasons for row in rows)
    assert all(row.record.value == (b"plain" if n % 3 else b"%d" % n) for n, row in enumerate(rows[:-1]))
    assert rows[-1].record == records[-1]
