"""Version ranges as Kafka writes them: "3+", "0-4", "2" and "none"."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

OPEN_END = 32767  # versions are int16 on the wire, so this is the largest there can be


class Versions(NamedTuple):
    """An inclusive range of versions; it is empty when `low` is above `high`."""

    low: int
    high: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.low <= version <= self.high

    def __bool__(self) -> bool:
        return self.low <= self.high

    def __str__(self) -> str:
        if not self:
            return "none"
        if self.high == OPEN_END:
            return f"{self.low}+"
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"

    def all(self) -> range:
        """Every version of the range, lowest first."""
        return range(self.low, self.high + 1)


NONE = Versions(0, -1)
ALL = Versions(0, OPEN_END)


@cache
def parse(text: str) -> Versions:
    """Read "3+", "0-4", "2" or "none"."""
    if text == "none":
        return NONE
    low, separator, high = text.partition("-")
    if separator:
        return Versions(int(low), int(high))
    if text.endswith("+"):
        return Versions(int(text[:-1]), OPEN_END)
    return Versions(int(text), int(text))
