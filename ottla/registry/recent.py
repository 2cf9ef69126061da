"""A cache of the most recently used values, bounded in bytes, because others choose the sizes of the values."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Values by key, at most `bytes_max` bytes of them. The least recently used value is dropped first."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes = 0
        self._bytes_max = bytes_max
        self._rows: OrderedDict[K, tuple[V, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, key: K) -> V | None:
        """Return the value of a key, or None if it is not cached."""
        row = self._rows.get(key)
        if row is None:
            return None
        self._rows.move_to_end(key)
        return row[0]

    def keep(self, key: K, value: V, size: int) -> None:
        """Keep a value of this many bytes, unless it is larger than the bound."""
        self.drop(key)
        if size > self._bytes_max:
            return
        self._rows[key] = value, size
        self.bytes += size
        while self.bytes > self._bytes_max:
            self.drop(next(iter(self._rows)))

    def drop(self, key: K) -> None:
        """Forget a key, if it is cached."""
        if (row := self._rows.pop(key, None)) is not None:
            self.bytes -= row[1]
