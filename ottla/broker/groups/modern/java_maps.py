"""The order in which a HashMap of Java has members, which decides in Kafka who of several equal ones comes first.

The assignors round shares up for some members and down for others. A client that names its members itself, as tests do, finds with
this order the same shares as with Kafka; that order is no better or worse than any other.
"""

from __future__ import annotations

from collections.abc import Collection

from ottla.broker.coordinator.coordinator import java_hash_code

#: Buckets of an empty map. It doubles when more than three quarters of them would be in use.
BUCKETS_MIN = 16


def in_order(names: Collection[str]) -> list[str]:
    """Names of one bucket, which the map has in the order in which they came, are in alphabetical order here."""
    buckets = BUCKETS_MIN
    while 4 * len(names) > 3 * buckets:
        buckets *= 2
    return sorted(names, key=lambda name: (_bucket(name, buckets), name))


def _bucket(name: str, buckets: int) -> int:
    hash_code = java_hash_code(name) & 0xFFFF_FFFF
    return (hash_code ^ hash_code >> 16) & (buckets - 1)
