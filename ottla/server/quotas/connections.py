"""New connections a second from one address (KIP-612): one that is too many is closed after the time that it should have waited.

The limit of a listener, and of the whole node, is kept by not accepting (server/network/limits.py). That of one address cannot
be: the others would wait with it.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.server.quotas.rate import DEFAULT_WINDOWS, Bucket, Windows

#: The limit of addresses; above it, those without a new connection for one second are removed.
ADDRESSES_MAX = 10_000


class ConnectionQuotas:
    """The connection rates of one node by address, for all of its listeners."""

    def __init__(
        self, rate_of: Callable[[str], float | None] = lambda host: None, windows: Windows = DEFAULT_WINDOWS
    ) -> None:
        """Takes in `rate_of` the quota of an address, None where it has none."""
        self._rate_of = rate_of
        self._window_ms = windows.size_ms
        self._buckets: dict[str, Bucket] = {}
        self._buckets_max = ADDRESSES_MAX

    def __len__(self) -> int:
        return len(self._buckets)

    def wait_ms(self, host: str, now_ms: int) -> int:
        """Record a new connection. Returns 0, or the delay of its close, of one window at most. A closed one does not count."""
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
