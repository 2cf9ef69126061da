"""The age of the oldest record that is in the page cache alone: what a power loss of this machine would take.

As in Kafka a record is acknowledged before it is flushed, and its other replicas are what keeps it. Appends are not timed: a scrape
remembers the recovery point of each log that it finds unflushed, and the age begins with the first scrape that found it there.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.server.clock import Clock
from ottla.server.metrics import GAUGE, Family, Sample
from ottla.storage.directories.open_logs import OpenLogs
from ottla.storage.log.log import Log


class UnflushedAges:
    """A source of metrics, and what it remembers from scrape to scrape."""

    def __init__(self, clock: Clock, logs: OpenLogs) -> None:
        self._clock = clock
        self._logs = logs
        #: Log -> its recovery point, and the monotonic time at which it was first seen there with unflushed records.
        self._since: dict[Log, tuple[int, int]] = {}

    def __call__(self) -> Iterator[Family]:
        now_ms = self._clock.mono_ms()
        before, self._since = self._since, {}
        samples = []
        for directory in self._logs.directories:
            oldest_ms = now_ms
            for log in self._logs.in_directory(directory):
                if log.recovery_point >= log.log_end_offset:
                    continue
                point, since_ms = before.get(log, (-1, now_ms))
                self._since[log] = (log.recovery_point, since_ms if point == log.recovery_point else now_ms)
                oldest_ms = min(oldest_ms, self._since[log][1])
            samples.append(Sample({"logdirectory": directory.path}, (now_ms - oldest_ms) / 1_000))
        doc = "Seconds for which the oldest unflushed record of a log directory has been seen by scrapes"
        yield Family("ottla_log_unflushed_age_seconds", GAUGE, doc, samples)
