"""What is remembered by names that clients choose: bounded in bytes, because a name may have 32 KB."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from ottla.server.metrics import COUNTER, GAUGE, Family, Sample

#: Kafka's topics have 249 at most; longer names of groups, transactional ids and clients are rare.
NAME_LENGTH_MAX = 256
#: Of a dictionary's entry with its key, in bytes, besides the name. Measured: 250 to 310.
ENTRY_BYTES = 300

K = TypeVar("K")
V = TypeVar("V")


class Kept(dict[K, V]):
    """A cache: `keep` empties it when its bytes would exceed the bound, and does not keep what has a long name."""

    __slots__ = ("bytes", "bytes_max", "overflows", "store")

    def __init__(self, store: str, bytes_max: int) -> None:
        """Takes in `store` the name of this cache in the metrics."""
        super().__init__()
        self.store = store
        self.bytes = 0
        self.bytes_max = bytes_max
        #: How often the bound has emptied it.
        self.overflows = 0

    def keep(self, key: K, value: V, name: str) -> V:
        """Keeps the value, and returns it; `name` is the part of the key that a client chose."""
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
    """Returns size and bound of each cache. tests/broker/metrics/test_kept.py holds that each cache is among them."""
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
    """The name as log lines have it: the beginning of a long one."""
    return name if len(name) <= NAME_LENGTH_MAX else f"{name[:NAME_LENGTH_MAX]}... ({len(name)} characters)"


def short(name: str) -> str:
    """The name, or what stands for a long one as a key."""
    return name if len(name) <= NAME_LENGTH_MAX else f"sha256:{hashlib.sha256(name.encode()).hexdigest()}"
