"""Maps a group or a transactional id to the partition of the internal topic that coordinates it."""

from __future__ import annotations

import struct

from ottla.server.kept import Kept


def java_hash_code(text: str) -> int:
    """Java's String.hashCode: over UTF-16 code units, as a signed 32-bit number."""
    units = text.encode("utf-16-le", "surrogatepass")
    value = 0
    for unit in struct.unpack(f"<{len(units) // 2}H", units):
        value = (31 * value + unit) & 0xFFFF_FFFF
    return value - (1 << 32) if value & 0x8000_0000 else value


#: Every request of a group asks again: some 10,000 names.
hashes: Kept[str, int] = Kept("partition_hashes", 4 * 1024 * 1024)


def partition_for(key: str, partition_count: int) -> int:
    """Kafka's Utils.abs(hashCode) modulo the count; the one number without a positive twin counts as 0 there."""
    value = hashes.get(key)
    if value is None:
        value = hashes.keep(key, java_hash_code(key), key)
    return (0 if value == -(1 << 31) else abs(value)) % partition_count
