"""Maps a group or a transactional id to the partition of the internal topic that coordinates it."""

from __future__ import annotations

import struct
from functools import lru_cache


def java_hash_code(text: str) -> int:
    """Java's String.hashCode: over UTF-16 code units, as a signed 32-bit number."""
    units = text.encode("utf-16-le", "surrogatepass")
    value = 0
    for unit in struct.unpack(f"<{len(units) // 2}H", units):
        value = (31 * value + unit) & 0xFFFF_FFFF
    return value - (1 << 32) if value & 0x8000_0000 else value


# Every request of a group asks again; 8,192 names are about 1 MB.
@lru_cache(maxsize=8192)
def partition_for(key: str, partition_count: int) -> int:
    """Kafka's Utils.abs(hashCode) modulo the count; the one number without a positive twin counts as 0 there."""
    value = java_hash_code(key)
    return (0 if value == -(1 << 31) else abs(value)) % partition_count
