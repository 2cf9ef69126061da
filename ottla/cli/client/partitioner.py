"""Maps keys to partitions by murmur2, like Java's default partitioner, so that all clients agree."""

from __future__ import annotations

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFF_FFFF


def partition_for_key(key: bytes, partitions: int) -> int:
    """Return the partition that Java's, librdkafka's ("murmur2") and kafka-python's producers choose."""
    return (murmur2(key) & 0x7FFF_FFFF) % partitions


def murmur2(data: bytes) -> int:
    """MurmurHash2, 32 bits, Kafka's seed."""
    tail = len(data) & ~3
    value = _SEED ^ len(data)
    for start in range(0, tail, 4):
        k = int.from_bytes(data[start : start + 4], "little") * _M & _MASK
        value = (value * _M & _MASK) ^ ((k ^ k >> 24) * _M & _MASK)
    if tail < len(data):
        value = (value ^ int.from_bytes(data[tail:], "little")) * _M & _MASK
    value = (value ^ value >> 13) * _M & _MASK
    return value ^ value >> 15
