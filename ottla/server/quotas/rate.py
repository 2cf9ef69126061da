"""The two measures of a quota: a bucket that decides, and a rate over windows that is shown as a metric.

Kafka decides by the rate itself: the sum over eleven windows of a second. Ten seconds' worth then passes at once, nothing for the next ten,
and clients that share a quota each wait as if they were alone; over 30 s twenty of them reach 1.2 to 2.3 times the quota (simulated with 16 KiB
and 1 MiB requests). The bucket keeps the time at which the rate will have made up for all bytes so far, so the wait of one client counts for all.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple


class Windows(NamedTuple):
    """The windows of a rate: `quota.window.num` samples of `quota.window.size.seconds`."""

    num: int = 11
    size_ms: int = 1_000


#: Kafka's defaults.
DEFAULT_WINDOWS = Windows()


class Bucket:
    """A token bucket, kept as the time at which it owes nothing (GCRA). Debts are times: a new limit does not change them."""

    __slots__ = ("_burst_ms", "_paid_ms")

    def __init__(self, burst_ms: float) -> None:
        """Takes `burst_ms`: the bucket holds the tokens of this time."""
        self._burst_ms = burst_ms
        self._paid_ms = float("-inf")

    def take(self, value: float, limit: float, now_ms: float) -> None:
        """Take tokens of a bucket that gets `limit` a second. If it has too few, it goes into debt."""
        self._paid_ms = max(self._paid_ms, now_ms - self._burst_ms) + value * 1_000 / limit

    def wait_ms(self, now_ms: float) -> int:
        """Returns the time until the bucket has no debt; 0 if it has none now."""
        wait_ms = self._paid_ms - now_ms
        return round(wait_ms) if wait_ms > 0 else 0

    def is_full(self, now_ms: float) -> bool:
        """Returns True if the bucket is full, like a new one."""
        return self._paid_ms <= now_ms - self._burst_ms

    def tokens(self, limit: float, now_ms: float) -> float:
        return min(self._burst_ms, now_ms - self._paid_ms) * limit / 1_000


class _Sample:
    __slots__ = ("began_ms", "last_ms", "value")

    def __init__(self, now_ms: int) -> None:
        self.began_ms = self.last_ms = now_ms
        self.value = 0.0


class Rate:
    """Kafka's Rate: the sum of the last samples by their time, which is at least that of all samples but one.

    A sample begins with its first event, and is dropped when its last one is older than all windows. Times never go back: they
    are those of the monotonic clock.
    """

    __slots__ = ("_samples", "_total", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._total = 0.0
        self._samples: deque[_Sample] = deque()

    def record(self, value: float, now_ms: int) -> None:
        samples = self._samples
        if not samples or now_ms - samples[-1].began_ms >= self._windows.size_ms:
            self._forget(now_ms)
            samples.append(_Sample(now_ms))
        sample = samples[-1]
        sample.value += value
        sample.last_ms = now_ms
        self._total += value

    def per_second(self, now_ms: int) -> float:
        self._forget(now_ms)
        if not self._samples:
            return 0.0
        num, size_ms = self._windows
        elapsed_ms = now_ms - self._samples[0].began_ms
        missing = max(0, num - 1 - elapsed_ms // size_ms)
        return self._total * 1_000 / max(1, elapsed_ms + missing * size_ms)

    def is_idle(self, now_ms: int) -> bool:
        """Returns True if nothing was recorded within all windows."""
        self._forget(now_ms)
        return not self._samples

    def _forget(self, now_ms: int) -> None:
        samples, age_ms = self._samples, self._windows.num * self._windows.size_ms
        while samples and now_ms - samples[0].last_ms >= age_ms:
            self._total -= samples.popleft().value
