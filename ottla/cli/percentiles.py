"""Percentiles of durations in bounded memory: a count for each size class, as HDR histograms have them.

A class is 1 % wider than the one before, so a percentile is at most 1 % too large; the smallest and the largest are exact.
"""

from __future__ import annotations

from math import ceil, exp, log

#: The upper end of a size class, divided by its lower end.
GROWTH = 1.01
#: Durations below a microsecond are one class.
SMALLEST_MS = 0.001
_LOG_GROWTH = log(GROWTH)


class Durations:
    """Durations in milliseconds; it grows with the logarithm of the largest, and not with their number."""

    def __init__(self) -> None:
        self.count = 0
        self.sum_ms = 0.0
        self.min_ms = 0.0
        self.max_ms = 0.0
        self._classes: dict[int, int] = {}

    def add(self, duration_ms: float, times: int = 1) -> None:
        """Count a duration; a clock that stands still makes it 0."""
        duration_ms = max(0.0, duration_ms)
        number = 0 if duration_ms <= SMALLEST_MS else ceil(log(duration_ms / SMALLEST_MS) / _LOG_GROWTH)
        self._classes[number] = self._classes.get(number, 0) + times
        self.min_ms = min(self.min_ms, duration_ms) if self.count else duration_ms
        self.max_ms = max(self.max_ms, duration_ms)
        self.count += times
        self.sum_ms += duration_ms * times

    def percentile_ms(self, share: float) -> float:
        """Return the duration that `share` (0 to 1) of all do not exceed; 0 if there are none."""
        wanted, found = max(1, ceil(share * self.count)), 0
        for number in sorted(self._classes):
            found += self._classes[number]
            if found >= wanted:
                return max(self.min_ms, min(self.max_ms, SMALLEST_MS * exp(number * _LOG_GROWTH)))
        return 0.0

    def row(self) -> dict[str, float]:
        """Return the fields that a table has of them."""
        mean = self.sum_ms / self.count if self.count else 0.0
        shares = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99, "p999_ms": 0.999}
        found = {name: self.percentile_ms(share) for name, share in shares.items()}
        return {name: round(ms, 3) for name, ms in {"mean_ms": mean, **found, "max_ms": self.max_ms}.items()}
