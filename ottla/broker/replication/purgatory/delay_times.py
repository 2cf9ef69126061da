"""The times that delayed operations have waited: Kafka's RemoteTimeMs. Operations that are answered at once are not counted."""

from __future__ import annotations

from ottla.server.network.route import LATENCY_BUCKETS


class DelayTimes:
    __slots__ = ("buckets", "count", "total_ns")

    def __init__(self) -> None:
        self.count = 0
        self.total_ns = 0
        # The bucket of a time is the bit length of its units of 1024 ns, as in a route.
        self.buckets = [0] * LATENCY_BUCKETS

    def add(self, elapsed_ns: int) -> None:
        self.count += 1
        self.total_ns += elapsed_ns
        self.buckets[min((elapsed_ns >> 10).bit_length(), LATENCY_BUCKETS - 1)] += 1
