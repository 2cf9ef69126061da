"""What is remembered by names that clients choose: bounded in bytes, because a name may have 32 KB."""

from __future__ import annotations

import hashlib
from typing import TypeVar

#: Kafka's topics have 249 at most; longer names of groups, transactional ids and clients are rare.
NAME_LENGTH_MAX = 256
#: Of a dictionary's entry with its key, in bytes, besides the name. Measured: 250 to 310.
ENTRY_BYTES = 300

K = TypeVar("K")
V = TypeVar("V")


class Kept(dict[K, V]):
    """A cache: `keep` empties it when its bytes would exceed the bound, and does not keep what has a long name."""

    __slots__ = ("bytes", "bytes_max")

    def __init__(self, bytes_max: int) -> None:
        super().__init__()
        self.bytes = 0
        self.bytes_max = bytes_max

    def keep(self, key: K, value: V, name: str) -> V:
        """`name` is the part of the key that a client chose. Returns the value."""
        if len(name) <= NAME_LENGTH_MAX:
            size = ENTRY_BYTES + len(name)
            if self.bytes + size > self.bytes_max:
                self.clear()
            self.bytes += size
            self[key] = value
        return value

    def clear(self) -> None:
        super().clear()
        self.bytes = 0


def shown(name: str) -> str:
    """The name as log lines have it: the beginning of a long one."""
    return name if len(name) <= NAME_LENGTH_MAX else f"{name[:NAME_LENGTH_MAX]}... ({len(name)} characters)"


def short(name: str) -> str:
    """The name, or what stands for a long one as a key."""
    return name if len(name) <= NAME_LENGTH_MAX else f"sha256:{hashlib.sha256(name.encode()).hexdigest()}"
