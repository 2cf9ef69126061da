"""A cache of the values that were used last, up to a bound of bytes, since others choose their sizes."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Values by key, `bytes_max` of them at most: the one that was used longest ago goes first."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes = 0
        self._bytes_max = bytes_max
        self._rows: OrderedDict[K, tuple[V, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, key: K) -> V | None:
        """Return the value of a key, None if it is not kept."""
        row = self._rows.get(key)
        if row is None:
            return None
        self._rows.move_to_end(key)
        return row[0]

    def keep(self, key: K, value: V, size: int) -> None:
        """Keep a value of so many bytes. One that is larger than the bound is not kept."""
        self.drop(key)
        if size > self._bytes_max:
            return
        self._rows[key] = value, size
        self.bytes += size
        while self.bytes > self._bytes_max:
            self.drop(next(iter(self._rows)))

    def drop(self, key: K) -> None:
        """Forget a key, if it is there."""
        if (row := self._rows.pop(key, None)) is not None:
            self.bytes -= row[1]
