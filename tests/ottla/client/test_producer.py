"""The partitions of keys are the same as with other clients."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from ottla.protocol.records.builder import murmur2, partition_for_key


# From Apache Kafka's own test of Utils.murmur2.
@pytest.mark.parametrize(
    "key, expected",
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_javas(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFF_FFFF


@given(st.binary(max_size=60), st.integers(1, 100))
def test_the_hash_is_kafka_pythons(key: bytes, partitions: int) -> None:
    assert murmur2(key) == kafka_python_murmur2(key) & 0xFFFF_FFFF
    assert 0 <= partition_for_key(key, partitions) < partitions
