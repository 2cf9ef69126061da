"""Varints, UUIDs and the tag section, with vectors as Kafka writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.errors import MalformedMessage, ProtocolError
from ottla.protocol.primitives import (
    VARLONG_BYTES_MAX,
    read_string_length,
    read_uvarint,
    read_varint,
    read_varlong,
    skip_tags,
    string_length,
    uuid_from_str,
    uuid_to_str,
    uvarint,
    varint,
    varlong,
)
from ottla.protocol.schema import ZERO_UUID


@pytest.mark.parametrize(
    ("value", "data"),
    [(0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (300, "ac02"), (16_384, "808001"), (2**32 - 1, "ffffffff0f")],
)
def test_unsigned_varints(value: int, data: str) -> None:
    assert uvarint(value).hex() == data
    assert read_uvarint(bytes.fromhex(data), 0) == (value, len(data) // 2)


@pytest.mark.parametrize(
    ("value", "data"),
    [(0, "00"), (-1, "01"), (1, "02"), (64, "8001"), (2**31 - 1, "feffffff0f"), (-(2**31), "ffffffff0f")],
)
def test_signed_varints(value: int, data: str) -> None:
    assert varint(value).hex() == data
    assert read_varint(bytes.fromhex(data), 0) == (value, len(data) // 2)


@pytest.mark.parametrize(
    ("value", "data"), [(-1, "01"), (2**63 - 1, "feffffffffffffffff01"), (-(2**63), "ffffffffffffffffff01")]
)
def test_signed_varlongs(value: int, data: str) -> None:
    assert varlong(value).hex() == data
    assert read_varlong(bytes.fromhex(data), 0) == (value, len(data) // 2)


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**32 - 1))
def test_varints_come_back(small: int, large: int, unsigned: int) -> None:
    assert read_varint(b"x" + varint(small), 1) == (small, 1 + len(varint(small)))
    assert read_varlong(varlong(large), 0)[0] == large
    assert read_uvarint(uvarint(unsigned), 0)[0] == unsigned


@pytest.mark.parametrize("data", ["ffffffffff01", "ffffffff1f", "808080808000"])
def test_unsigned_varint_that_is_too_long(data: str) -> None:
    with pytest.raises(MalformedMessage):
        read_uvarint(bytes.fromhex(data), 0)


@pytest.mark.parametrize("data", ["ff" * VARLONG_BYTES_MAX + "01", "ff" * (VARLONG_BYTES_MAX - 1) + "03"])
def test_varlong_that_is_too_long(data: str) -> None:
    with pytest.raises(MalformedMessage):
        read_varlong(bytes.fromhex(data), 0)


def test_varint_that_is_cut_short() -> None:
    with pytest.raises(IndexError):
        read_uvarint(b"\x80\x80", 0)


def test_string_lengths_are_limited() -> None:
    assert read_string_length(string_length(32_768), 1, string_length(32_768)[0])[0] == 32_768
    with pytest.raises(ProtocolError):
        string_length(32_769)
    with pytest.raises(MalformedMessage):
        read_string_length(uvarint(32_769), 1, uvarint(32_769)[0])


def test_tag_section_is_stepped_over() -> None:
    section = b"\x02" + b"\x00\x03abc" + b"\xac\x02\x00" + b"rest"
    assert section[skip_tags(section, 1, len(section), section[0]) :] == b"rest"
    with pytest.raises(MalformedMessage):
        skip_tags(b"\x01\x00\x05ab", 1, 5, 1)


def test_uuids_as_text() -> None:
    uuid = bytes.fromhex("3d0a7e1b5a6f4f5e9d3c2b1a00ffee11")
    assert uuid_to_str(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert uuid_from_str(uuid_to_str(uuid)) == uuid
    assert uuid_to_str(bytes(15) + b"\1") == "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.mark.parametrize("text", ["", "AAAA", "A" * 23, "!" * 22, "AAAAAAAAAAAAAAAAAAAAA=", "AAAAAAAAAAAAAAAAAAAAAé"])
def test_text_that_is_no_uuid(text: str) -> None:
    with pytest.raises(ValueError, match="is not a UUID"):
        uuid_from_str(text)
