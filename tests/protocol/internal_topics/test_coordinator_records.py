"""Keys and values of the internal topics; coordinator_records and group_records have its tables."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ottla.protocol.errors import MalformedMessage
from ottla.protocol.internal_topics.coordinator_records import (
    SHARE_RECORDS,
    TRANSACTION_RECORDS,
    RecordTypes,
    UnknownRecord,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from ottla.protocol.internal_topics.group_records import (
    GROUP_RECORDS,
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.protocol.schema import info_of
from tests.protocol.arbitrary import random_message

TABLES = [GROUP_RECORDS, TRANSACTION_RECORDS, SHARE_RECORDS]
PAIRS = [(types, key, value) for types in TABLES for key, value in types.values()]


@pytest.mark.parametrize(("types", "key_cls", "value_cls"), PAIRS, ids=[value.__name__ for _, _, value in PAIRS])
def test_records_come_back(types: RecordTypes, key_cls: type[Any], value_cls: type[Any]) -> None:
    rng = Random(1)
    for version in info_of(value_cls).versions.all():
        key, value = random_message(key_cls, 0, rng), random_message(value_cls, version, rng)
        assert decode_key(types, encode_key(key)) == key
        assert decode_value(types, key, encode_value(value, version)) == value
        assert decode_value(types, key, memoryview(encode_value(value, version))) == value


def test_tables_are_by_type() -> None:
    for types in TABLES:
        for number, (key, value) in types.items():
            assert info_of(key).key == info_of(value).key == number
            assert key.__name__.removesuffix("Key") == value.__name__.removesuffix("Value")
    assert sorted(GROUP_RECORDS) == [*range(9), *range(10, 18), *range(19, 24)]


def test_bytes_of_an_offset_commit() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=1)
    assert encode_key(key) == b"\0\1" + b"\0\1g\0\1t\0\0\0\1"
    value = OffsetCommitValue(offset=5, leader_epoch=2, metadata="m", commit_timestamp=9)
    assert encode_value(value, 3) == b"\0\3" + bytes(7) + b"\5" + b"\0\0\0\2" + b"\0\1m" + bytes(7) + b"\x09"


def test_records_of_a_newer_coordinator() -> None:
    with pytest.raises(UnknownRecord, match="record type 99"):
        decode_key(GROUP_RECORDS, b"\0\x63")
    with pytest.raises(UnknownRecord, match="GroupMetadataValue v5"):
        decode_value(GROUP_RECORDS, GroupMetadataKey(), b"\0\5")


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\1", b"\0\1\0\1g\0\1t\0\0\0\1x"])
def test_broken_records(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_key(GROUP_RECORDS, data)
