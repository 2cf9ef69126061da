"""Replication throttles (KIP-73): the share of disks and networks that a reassignment may use while replicas are made.

    leader.replication.throttled.rate       bytes a second that this broker sends to throttled replicas
    leader.replication.throttled.replicas   of a topic: partition:broker pairs, or *: where this broker leads
    follower.replication.throttled.rate     bytes a second that this broker fetches for throttled replicas
    follower.replication.throttled.replicas the same, where this broker follows

Only replicas outside of the ISR are held back: a replica in sync must stay in sync, so that it is never delayed, but its bytes
count. A partition that is throttled has a reference to its side's throttle, the others have None; so the default path pays for
one look.
"""

from __future__ import annotations

from collections import deque

from ottla.server.clock import Clock
from ottla.server.quotas.rate import DEFAULT_WINDOWS, Windows

UNLIMITED = (1 << 63) - 1


class Throttle:
    """The rate of one direction over the last windows."""

    def __init__(self, clock: Clock, windows: Windows = DEFAULT_WINDOWS) -> None:
        self.bytes_per_second = UNLIMITED
        self._clock = clock
        self._num, self._window_ms = windows
        self._windows: deque[list[int]] = deque()  # [began ms, bytes]
        self._total = 0

    def record(self, size: int) -> None:
        now_ms = self._clock.mono_ms()
        self._forget(now_ms)
        if not self._windows or now_ms - self._windows[-1][0] >= self._window_ms:
            self._windows.append([now_ms, 0])
        self._windows[-1][1] += size
        self._total += size

    def pause_ms(self) -> int:
        """Return the delay of the next fetch; 0 if the rate is below the limit."""
        if self.bytes_per_second == UNLIMITED:
            return 0
        now_ms = self._clock.mono_ms()
        self._forget(now_ms)
        if self.bytes_per_second == 0:
            return self._window_ms
        if not self._windows:
            return 0
        elapsed_ms = max(self._window_ms, now_ms - self._windows[0][0])
        needed_ms = self._total * 1_000 // self.bytes_per_second
        return max(0, needed_ms - elapsed_ms)

    def _forget(self, now_ms: int) -> None:
        while self._windows and now_ms - self._windows[0][0] >= self._num * self._window_ms:
            self._total -= self._windows.popleft()[1]


def is_throttled(replicas: str, index: int, broker_id: int) -> bool:
    """Return True if a topic's list of throttled replicas contains this one."""
    entries = [entry.strip() for entry in replicas.split(",")]
    return "*" in entries or f"{index}:{broker_id}" in entries
