"""The checksum is CRC-32C, whatever buffer it is given."""

from __future__ import annotations

import crc32c as oracle
import pytest

from ottla.protocol.records.batch import crc32c

BYTES = bytes(range(256)) * 40


def test_the_check_value_of_the_catalogue() -> None:
    assert crc32c(b"123456789") == 0xE3069283


@pytest.mark.parametrize("size", [0, 1, 7, 61, 4_096, 10_240])
def test_every_kind_of_buffer_has_the_checksum_of_its_bytes(size: int) -> None:
    expected = oracle.crc32c(BYTES[:size])
    for buffer in (
        BYTES[:size],
        bytearray(BYTES[:size]),
        memoryview(BYTES)[:size],
        memoryview(bytearray(BYTES))[:size],
    ):
        assert crc32c(buffer) == expected
