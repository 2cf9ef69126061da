"""CRC-32C, the checksum of record batches v2. It covers everything from the attributes on, not the base offset or leader epoch."""

from __future__ import annotations

from crc32c import crc32c as _crc32c

from protocol.primitives import Buffer


def crc32c(data: Buffer) -> int:
    """The checksum as the unsigned number that the batch header holds."""
    checksum: int = _crc32c(data)
    return checksum
