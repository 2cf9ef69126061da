"""Created and deleted partitions of one request (KIP-599), charged topic by topic as they are decided.

strict        a topic that finds the bucket owing is refused with THROTTLING_QUOTA_EXCEEDED; clients of these versions come again
permissive    older clients do not know that error: everything is done, and the client is held back afterwards
"""

from __future__ import annotations

from typing import Protocol

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server.clock import Clock


class Owing(Protocol):
    def wait_ms(self, now_ms: float) -> int: ...


class Charged(Protocol):
    """A meter of clients.py."""

    @property
    def bucket(self) -> Owing: ...
    def take(self, value: float, now_ms: int) -> None: ...
    def throttled(self, wait_ms: int) -> None: ...


class MutationQuota:
    """The controller mutation quota of one request; without a meter there is no limit."""

    def __init__(self, meter: Charged | None, clock: Clock, *, strict: bool) -> None:
        self._meter = meter
        self._clock = clock
        self._strict = strict
        self._until_ms = 0

    def charge(self, partitions: int) -> None:
        """Raises KafkaError if these partitions must not be created or deleted now."""
        meter = self._meter
        if meter is None:
            return
        now_ms = self._clock.mono_ms()
        if not self._strict:
            meter.take(partitions, now_ms)
        wait_ms = meter.bucket.wait_ms(now_ms)
        if wait_ms:
            self._until_ms = now_ms + wait_ms
            meter.throttled(wait_ms)
            if self._strict:
                raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
        elif self._strict:
            meter.take(partitions, now_ms)

    def wait_ms(self) -> int:
        """Returns the throttle time of the response, without the time for which the request was delayed already."""
        return max(0, self._until_ms - self._clock.mono_ms()) if self._until_ms else 0


def unlimited(partitions: int) -> None:
    """Charges nothing."""
