"""Bounds of the memory that clients can make a node use: caches by the names that they choose, and state that they create.

Caches are bounded in bytes, because a name may have 32 KB. Kafka does not have the bounds of state. Their defaults are far
above normal use, so only a client in a loop, or a malicious one, reaches them.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server.metrics import COUNTER, GAUGE, Family, Sample

log = logging.getLogger(__name__)

GROUPS = "ottla.groups.per.partition.max"
TRANSACTIONAL_IDS = "ottla.transactional.ids.per.partition.max"
PRODUCER_IDS = "ottla.producer.ids.per.partition.max"
#: Kafka's topic names have at most 249 characters; longer names of groups, transactional ids and clients are rare.
NAME_LENGTH_MAX = 256
#: The bytes that a dictionary's entry and its key take besides the name. Measured: 250 to 310 bytes.
ENTRY_BYTES = 300

K = TypeVar("K")
V = TypeVar("V")


class Kept(dict[K, V]):
    """A cache. `keep` empties it when its bytes would exceed the bound, and does not keep an entry with a long name."""

    __slots__ = ("bytes", "bytes_max", "overflows", "store")

    def __init__(self, store: str, bytes_max: int) -> None:
        """Take in `store` the name of this cache in the metrics."""
        super().__init__()
        self.store = store
        self.bytes = 0
        self.bytes_max = bytes_max
        #: How often the bound has emptied it.
        self.overflows = 0

    def keep(self, key: K, value: V, name: str) -> V:
        """Keep the value, and return it; `name` is the part of the key that a client chose."""
        if len(name) <= NAME_LENGTH_MAX:
            size = ENTRY_BYTES + len(name)
            if self.bytes + size > self.bytes_max:
                self.clear()
                self.overflows += 1
            self.bytes += size
            self[key] = value
        return value

    def clear(self) -> None:
        super().clear()
        self.bytes = 0


def kept_metrics(caches: Iterable[Kept[Any, Any]]) -> Iterator[Family]:
    """Return size and bound of each cache. tests/broker/metrics/test_kept.py checks that no cache is missing."""
    rows = [({"store": cache.store}, cache) for cache in caches]
    entries = [Sample(labels, len(cache)) for labels, cache in rows]
    yield Family("ottla_kept_entries", GAUGE, "Entries of the cache by names of clients", entries)
    sizes = [Sample(labels, cache.bytes) for labels, cache in rows]
    yield Family("ottla_kept_bytes", GAUGE, "Bytes of the cache by names of clients", sizes)
    bounds = [Sample(labels, cache.bytes_max) for labels, cache in rows]
    yield Family("ottla_kept_bytes_max", GAUGE, "Bound of the bytes of the cache", bounds)
    overflows = [Sample(labels, cache.overflows) for labels, cache in rows]
    yield Family("ottla_kept_overflows", COUNTER, "Times that the bound has emptied the cache", overflows)


def shown(name: str) -> str:
    """Return the name for log lines: the beginning of a long one."""
    return name if len(name) <= NAME_LENGTH_MAX else f"{name[:NAME_LENGTH_MAX]}... ({len(name)} characters)"


def short(name: str) -> str:
    """Return the name as a key; a long name is replaced by a digest."""
    return name if len(name) <= NAME_LENGTH_MAX else f"sha256:{hashlib.sha256(name.encode()).hexdigest()}"


@dataclass(slots=True, eq=False)
class Bound:
    """One bound of state. It counts what it has rejected. `name` is its property."""

    name: str
    limit: int
    refused: int = 0

    def check(self, count: int, what: str) -> None:
        """Check that there may be one more than `count`. `what` names the thing. Raises KafkaError if the bound is reached."""
        if count < self.limit:
            return
        self.refused += 1
        if self.refused.bit_count() == 1:  # log the first rejection, and each doubling of their number
            log.warning(
                "There are %d already, and %d more were refused, %s the last: %s=%d",
                count,
                self.refused,
                shown(what),
                self.name,
                self.limit,
            )
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"there are {count} already ({self.name})")


def bound_metrics(bounds: Iterable[Bound]) -> Iterator[Family]:
    samples = [Sample({"property": bound.name}, bound.refused) for bound in bounds]
    yield Family("ottla_bound_refusals", COUNTER, "What was refused because a bound was reached", samples)
