"""The numbers of a run of the load generator: records, bytes, and percentiles of durations in bounded memory.

Durations are counts of size classes, as HDR histograms have them. A class is 1 % wider than the one before, so a percentile is at
most 1 % too large; the smallest and the largest are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil, exp, log
from typing import NamedTuple

from ottla.protocol.records.record import NewRecord, Record

#: The upper end of a size class divided by its lower end.
GROWTH = 1.01
#: All durations below a microsecond are in one class.
SMALLEST_MS = 0.001
_LOG_GROWTH = log(GROWTH)


class Durations:
    """Durations in milliseconds. Its memory grows with the logarithm of the largest, not with their number."""

    def __init__(self) -> None:
        self.count = 0
        self.sum_ms = 0.0
        self.min_ms = 0.0
        self.max_ms = 0.0
        self._classes: dict[int, int] = {}

    def add(self, duration_ms: float, times: int = 1) -> None:
        """Count a duration. If the clock has not moved, it is 0."""
        duration_ms = max(0.0, duration_ms)
        number = 0 if duration_ms <= SMALLEST_MS else ceil(log(duration_ms / SMALLEST_MS) / _LOG_GROWTH)
        self._classes[number] = self._classes.get(number, 0) + times
        self.min_ms = min(self.min_ms, duration_ms) if self.count else duration_ms
        self.max_ms = max(self.max_ms, duration_ms)
        self.count += times
        self.sum_ms += duration_ms * times

    def percentile_ms(self, share: float) -> float:
        """Return the duration that a `share` (0 to 1) of all durations does not exceed; 0 if there are none."""
        wanted, found = max(1, ceil(share * self.count)), 0
        for number in sorted(self._classes):
            found += self._classes[number]
            if found >= wanted:
                return max(self.min_ms, min(self.max_ms, SMALLEST_MS * exp(number * _LOG_GROWTH)))
        return 0.0

    @property
    def mean_ms(self) -> float:
        """Return the mean; 0 if there are no durations."""
        return self.sum_ms / self.count if self.count else 0.0

    def row(self) -> dict[str, float]:
        """Return the columns that a table has for them."""
        shares = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99, "p999_ms": 0.999}
        found = {name: self.percentile_ms(share) for name, share in shares.items()}
        return {name: round(ms, 3) for name, ms in {"mean_ms": self.mean_ms, **found, "max_ms": self.max_ms}.items()}


class Taken(NamedTuple):
    """Records that were acknowledged or read together: the number of the first one (from 0), their count, the bytes of keys and
    values, the milliseconds that they took, and the time of it in monotonic nanoseconds.
    """

    number: int
    records: int
    bytes: int
    ms: float
    at_ns: int


@dataclass(slots=True)
class Measured:
    """The records of a run, or of a part of a run."""

    begin_ns: int
    records: int = 0
    bytes: int = 0
    durations: Durations = field(default_factory=Durations)

    def add(self, taken: Taken) -> None:
        self.records += taken.records
        self.bytes += taken.bytes
        self.durations.add(taken.ms)

    def seconds(self, now_ns: int) -> float:
        """Return the length in seconds. It is at least a millisecond, because rates divide by it."""
        return max(1_000_000, now_ns - self.begin_ns) / 1e9

    def row(self, what: str, now_ns: int) -> dict[str, object]:
        seconds = self.seconds(now_ns)
        return {
            "what": what,
            "records": self.records,
            "seconds": round(seconds, 3),
            "records_per_s": round(self.records / seconds),
            "mb_per_s": round(self.bytes / seconds / 1e6, 2),
            **self.durations.row(),
        }


class MeasuredRun:
    """The measurements of a whole run, and of its window, which begins at the last report.

    There is a report after each interval.
    """

    def __init__(self, begin_ns: int, interval_ms: float) -> None:
        self.every, self.window = Measured(begin_ns), Measured(begin_ns)
        self._interval_ms = interval_ms

    def add(self, taken: Taken) -> None:
        self.every.add(taken)
        self.window.add(taken)

    def ended_window(self, now_ns: int) -> Measured | None:
        """Return the window if its interval is over, and begin the next one."""
        window = self.window
        if now_ns - window.begin_ns < self._interval_ms * 1e6:
            return None
        self.window = Measured(now_ns)
        return window


Seen = Callable[[Taken], object]


def size_of(record: NewRecord | Record) -> int:
    return len(record.key or b"") + len(record.value or b"")
