"""The window of samples that the console keeps: series of numbers, and the events between two samples. Both are bounded.

A series is a ring of doubles, one for each sample. All series have the same times, so that a chart of many needs them once.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

SAMPLES_MAX = 360
SERIES_MAX = 4_096
EVENTS_MAX = 2_000
#: The most memory of the rings: 4,096 series of 360 doubles are 11.8 MB.
BYTES_MAX = SERIES_MAX * SAMPLES_MAX * 8
#: A series without a number in this many samples is dropped, because its topic or group is gone.
SILENT_SAMPLES_MAX = SAMPLES_MAX


class Event(NamedTuple):
    """A change between two samples.

    `kind` is for the filter of the timeline, and `place` is the topic, group or broker that changed.
    """

    at_ms: int
    kind: str
    place: str
    text: str


class Chart(NamedTuple):
    """Times in seconds since the epoch, oldest first, and for each series a number or None at each of them."""

    times: list[float]
    series: dict[str, list[float | None]]


class Window:
    """The last samples, by the name of their series, such as "topic/orders/records"."""

    def __init__(self, samples_max: int = SAMPLES_MAX, series_max: int = SERIES_MAX) -> None:
        self._samples_max = samples_max
        self._series_max = series_max
        self._times = array("d", [math.nan]) * samples_max
        self._series: dict[str, array[float]] = {}
        self._last: dict[str, int] = {}
        self._count = 0
        #: The number of series in the last sample for which there was no room.
        self.left_out = 0
        self.events: deque[Event] = deque(maxlen=EVENTS_MAX)

    def add(self, time_s: float, values: Mapping[str, float]) -> None:
        """Add one sample. A series that is missing in it gets a gap."""
        slot = self._count % self._samples_max
        self._times[slot] = time_s
        for ring in self._series.values():
            ring[slot] = math.nan
        self._drop_silent()
        self.left_out = 0
        for name, value in values.items():
            ring_of = self._series.get(name)
            if ring_of is None:
                if len(self._series) >= self._series_max:
                    self.left_out += 1
                    continue
                ring_of = self._series[name] = array("d", [math.nan]) * self._samples_max
            ring_of[slot] = value
            self._last[name] = self._count
        self._count += 1

    def chart(self, names: Mapping[str, str]) -> Chart:
        """Return the existing series by their labels; `names` are series by label."""
        slots = self._slots()
        series = {
            label: [None if math.isnan(ring[slot]) else ring[slot] for slot in slots]
            for label, name in names.items()
            if (ring := self._series.get(name)) is not None
        }
        return Chart([self._times[slot] for slot in slots], series)

    def latest(self, name: str) -> float | None:
        """Return the number of the last sample, None if it has none."""
        ring = self._series.get(name)
        if ring is None or not self._count:
            return None
        value = ring[(self._count - 1) % self._samples_max]
        return None if math.isnan(value) else value

    def names(self, prefix: str) -> list[str]:
        return sorted(name for name in self._series if name.startswith(prefix))

    def record(self, events: Iterable[Event]) -> None:
        self.events.extend(events)

    @property
    def nbytes(self) -> int:
        """The rings' memory."""
        return sum(len(ring) * ring.itemsize for ring in (self._times, *self._series.values()))

    def _slots(self) -> list[int]:
        first = max(0, self._count - self._samples_max)
        return [number % self._samples_max for number in range(first, self._count)]

    def _drop_silent(self) -> None:
        for name, last in list(self._last.items()):
            if self._count - last > SILENT_SAMPLES_MAX:
                del self._last[name], self._series[name]
