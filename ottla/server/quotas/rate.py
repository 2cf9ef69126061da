"""The two measures of a quota: a bucket that decides, and a rate over windows that is shown as a metric.

Kafka decides by the rate itself: the sum over eleven windows of a second. Then the bytes of ten seconds pass at once, and none
in the next ten; and clients that share a quota each wait as if they were alone, so over 30 s twenty of them reach 1.2 to 2.3
times the quota (simulated with 16 KiB and 1 MiB requests). The bucket keeps the time at which all bytes so far are within the
quota, so the wait of one client counts for all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple


class Windows(NamedTuple):
    """The windows of a rate: `quota.window.num` samples of `quota.window.size.seconds`."""

    num: int = 11
    size_ms: int = 1_000


#: Kafka's defaults.
DEFAULT_WINDOWS = Windows()


class Bucket:
    """A token bucket, stored as the time at which its debt ends (GCRA). A debt is a time, so a new limit does not change it."""

    __slots__ = ("_burst_ms", "_paid_ms")

    def __init__(self, burst_ms: float) -> None:
        """Take `burst_ms`: the bucket holds the tokens of this time."""
        self._burst_ms = burst_ms
        self._paid_ms = float("-inf")

    def take(self, value: float, limit: float, now_ms: float) -> None:
        """Take tokens from a bucket that gets `limit` a second. If it has too few, it goes into debt."""
        self._paid_ms = max(self._paid_ms, now_ms - self._burst_ms) + value * 1_000 / limit

    def wait_ms(self, now_ms: float) -> int:
        """Return the time until the bucket has no debt, or 0 if it has none now."""
        wait_ms = self._paid_ms - now_ms
        return round(wait_ms) if wait_ms > 0 else 0

    def is_full(self, now_ms: float) -> bool:
        """Return True if the bucket is full, like a new one."""
        return self._paid_ms <= now_ms - self._burst_ms

    def tokens(self, limit: float, now_ms: float) -> float:
        return min(self._burst_ms, now_ms - self._paid_ms) * limit / 1_000


class _Sample:
    __slots__ = ("began_ms", "last_ms", "value")

    def __init__(self, now_ms: int) -> None:
        self.began_ms = self.last_ms = now_ms
        self.value = 0.0


class Rate:
    """Kafka's Rate: the sum of the last samples divided by their time, which is at least that of all samples but one.

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
        """Return True if nothing was recorded within all windows."""
        self._forget(now_ms)
        return not self._samples

    def _forget(self, now_ms: int) -> None:
        samples, age_ms = self._samples, self._windows.num * self._windows.size_ms
        while samples and now_ms - samples[0].last_ms >= age_ms:
            self._total -= samples.popleft().value


#: The most addresses. Above it, those without a new connection for one second are removed.
ADDRESSES_MAX = 10_000


class ConnectionQuotas:
    """New connections a second from one address (KIP-612), for all listeners of a node.

    A connection above the limit is closed after a delay.

    For the limits of a listener and of the whole node no connection is accepted for a while (server/network/limits.py). For one
    address that is not possible, because all others would wait too.
    """

    def __init__(
        self, rate_of: Callable[[str], float | None] = lambda host: None, windows: Windows = DEFAULT_WINDOWS
    ) -> None:
        """Take in `rate_of` a function that returns the quota of an address, or None."""
        self._rate_of = rate_of
        self._window_ms = windows.size_ms
        self._buckets: dict[str, Bucket] = {}
        self._buckets_max = ADDRESSES_MAX

    def __len__(self) -> int:
        return len(self._buckets)

    def wait_ms(self, host: str, now_ms: int) -> int:
        """Record a new connection.

        Return 0, or the delay of its close, which is at most one window. A closed connection does not count.
        """
        limit = self._rate_of(host)
        if limit is None:
            return 0
        bucket = self._buckets.get(host)
        if bucket is None:
            if len(self._buckets) >= self._buckets_max:
                self._forget_idle(now_ms)
            bucket = self._buckets[host] = Bucket(self._window_ms)
        wait_ms = bucket.wait_ms(now_ms)
        if wait_ms:
            return min(wait_ms, self._window_ms)
        bucket.take(1, limit, now_ms)
        return 0

    def _forget_idle(self, now_ms: int) -> None:
        self._buckets = {host: bucket for host, bucket in self._buckets.items() if not bucket.is_full(now_ms)}
        self._buckets_max = max(ADDRESSES_MAX, 2 * len(self._buckets))
