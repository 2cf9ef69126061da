"""A limit of new connections per second (KIP-612), kept by not accepting for a while: the kernel's queue holds the clients back."""

from __future__ import annotations

from dataclasses import dataclass

INT_MAX = 2**31 - 1
#: The interval at which a limit of 0 connections is checked again.
HELD_MS_MAX = 1_000
NS_PER_S = 1_000_000_000


@dataclass(slots=True)
class ConnectionRate:
    """A token bucket that holds one second's connections: a burst may use what the second before has left."""

    per_second: int = INT_MAX
    _tokens: float = 1.0
    _filled_ns: int = -1

    def opened(self, now_ns: int) -> int:
        """One more connection has been accepted; how many ms to accept no other."""
        if self.per_second == INT_MAX:
            return 0
        if self._filled_ns < 0:
            self._tokens = float(max(1, self.per_second))
        else:
            gained = (now_ns - self._filled_ns) * self.per_second / NS_PER_S
            self._tokens = min(self._tokens + gained, float(max(1, self.per_second)))
        self._filled_ns = now_ns
        self._tokens -= 1
        if self._tokens >= 1:
            return 0
        if not self.per_second:
            return HELD_MS_MAX
        return int((1 - self._tokens) * 1000 / self.per_second) + 1
