"""The frame around records of the metadata log."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ottla.protocol.errors import MalformedMessage
from ottla.protocol.internal_topics.metadata_records import (
    RECORDS,
    FeatureLevelRecord,
    NoOpRecord,
    UnknownRecord,
    decode_record,
    encode_record,
)
from ottla.protocol.schema import info_of
from tests.protocol.arbitrary import random_message


@pytest.mark.parametrize("cls", RECORDS.values(), ids=lambda cls: cls.__name__)
def test_records_come_back(cls: type[Any]) -> None:
    rng = Random(1)
    for version in info_of(cls).versions.all():
        for _ in range(5):
            record = random_message(cls, version, rng)
            assert decode_record(encode_record(record, version)) == (record, version)
            assert decode_record(memoryview(encode_record(record, version))) == (record, version)


def test_frame() -> None:
    assert encode_record(NoOpRecord(), 0) == b"\1\x14\0\0"
    level = FeatureLevelRecord(name="metadata.version", feature_level=30)
    assert encode_record(level, 0) == b"\1\x0c\0" + b"\x11metadata.version" + b"\0\x1e\0"


def test_table_is_by_key() -> None:
    assert {key: info_of(cls).key for key, cls in RECORDS.items()} == {key: key for key in RECORDS}
    assert len(RECORDS) == 27


@pytest.mark.parametrize("value", [b"\2\x14\0\0", b"\1\x7f\0\0", b"\1\x14\1\0"])
def test_record_of_a_newer_kafka(value: bytes) -> None:
    with pytest.raises(UnknownRecord):
        decode_record(value)


@pytest.mark.parametrize("value", [b"", b"\1", b"\1\x14", b"\1\x14\0", b"\1\x14\0\0x", b"\xff\xff\xff\xff\xff\xff"])
def test_broken_record(value: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_record(value)
