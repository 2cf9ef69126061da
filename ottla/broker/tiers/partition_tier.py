"""Counts of remote storage by topic, and the state of a partition that this broker leads: how far its copies are, and why they wait."""

from __future__ import annotations

import logging
from collections.abc import Collection
from enum import IntEnum
from typing import NamedTuple

from ottla.storage.log.log import Log

log = logging.getLogger(__name__)

#: After this many failed rounds the log has an error: the disk fills as long as nothing is copied.
FIRST_FAILURES = 3


class TierCount(IntEnum):
    """The counts of each topic, as in Kafka's BrokerTopicMetrics."""

    COPIES = 0
    COPIED_BYTES = 1
    COPY_ERRORS = 2
    DELETIONS = 3
    DELETE_ERRORS = 4
    FETCHES = 5
    FETCHED_BYTES = 6
    FETCH_ERRORS = 7
    STATES = 8
    STATE_ERRORS = 9


class TierCounts:
    """The counts of a broker since its start."""

    def __init__(self) -> None:
        self.of_all = [0] * len(TierCount)
        self.by_topic: dict[str, list[int]] = {}

    def add(self, topic: str, count: TierCount, by: int = 1) -> None:
        self.of_all[count] += by
        self.by_topic.setdefault(topic, [0] * len(TierCount))[count] += by

    def keep(self, topics: Collection[str]) -> None:
        """Forget the topics that are not among these. They stay in the counts of all topics."""
        for topic in self.by_topic.keys() - topics:
            del self.by_topic[topic]


class CopyLag(NamedTuple):
    """The sealed segments of a log that remote storage does not have; `seconds` is for how long the oldest one has been sealed."""

    segments: int = 0
    size: int = 0
    seconds: float = 0.0


def copy_lag(own: Log, wall_ms: int) -> CopyLag:
    """Return the lag of the copies of a log, which is 0 if copies are off."""
    sealed = len(own.segments) - 1
    first = own.segments.floor_index(max(own.remote_end + 1, own.local_start_offset))
    if not own.config.is_copied or first >= sealed:
        return CopyLag()
    size = sum(own.segments[index].file.size for index in range(first, sealed))
    return CopyLag(sealed - first, size, max(0, wall_ms - own.segments[first + 1].created_ms) / 1000)


class PartitionTier:
    """The remote storage of a partition that this broker leads."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.is_busy = False
        #: The time of the last copy's beginning (monotonic, ms).
        self.copied_ms = float("-inf")
        #: The time of the last attempt to move the log start to what can be read (monotonic, ms).
        self._start_ms = float("-inf")
        #: Why segments are neither copied nor deleted; empty if they are.
        self.waits = ""
        #: Rounds that have failed one after the other.
        self.failures = 0
        #: Segments that have expired and are still in remote storage.
        self.deleting_segments = self.deleting_bytes = 0

    def failed(self, why: str) -> None:
        self.failures += 1
        self.waits = why
        if self.failures in (1, FIRST_FAILURES):
            logged = log.error if self.failures == FIRST_FAILURES else log.warning
            logged("Segments of %s are not copied to remote storage, and stay here: %s", self._name, why)

    def succeeded(self) -> None:
        if self.waits:
            log.info("Segments of %s are copied to remote storage again", self._name)
        self.waits, self.failures = "", 0

    def expired(self, sizes: Collection[int]) -> None:
        self.deleting_segments, self.deleting_bytes = len(sizes), sum(sizes)

    def deleted(self, size: int) -> None:
        self.deleting_segments -= 1
        self.deleting_bytes -= size

    def may_move_start(self, now_ms: int, interval_ms: int) -> bool:
        """Return whether an attempt to move the log start is due, and note it: its barrier makes another round due at once."""
        if now_ms - self._start_ms < interval_ms:
            return False
        self._start_ms = now_ms
        return True
