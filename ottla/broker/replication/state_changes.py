"""The log lines of a partition's changes: leader and truncation here, the ISR in isr.py. Once per change, with Kafka's terms.

Kafka writes them to state-change.log and server.log; operators search both for "Shrinking ISR" and "starts at leader epoch".
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Protocol

from ottla.server.story import Cause, Stories, StoryLogger, because
from ottla.storage.log.log import Log

log = logging.getLogger(__name__)


#: Causes in the stories of partitions: the controller's decision, and the log of the leader.
METADATA, LEADERS_LOG = because("metadata"), because("the leader's log")
DIRECTORY = because("log directory")


class Storied(Protocol):
    """A partition with a story."""

    topic: str
    index: int
    stories: Stories[tuple[str, int]]


def story(partition: Storied, cause: Cause, logger: logging.Logger = log) -> StoryLogger[tuple[str, int]]:
    """Return a logger for what happens to the replica, and why."""
    return partition.stories.logger_of((partition.topic, partition.index), logger, cause)


def must(partition: Storied, holds: bool, otherwise: str) -> None:
    """Raise AssertionError, and log the story of the partition, if an invariant does not hold."""
    if not holds:
        partition.stories.print((partition.topic, partition.index))
        raise AssertionError(f"{partition}: {otherwise}")


def leader(
    partition: Storied, leader_epoch: int, partition_epoch: int, offsets: Log, isr: frozenset[int], previous: int
) -> None:
    story(partition, METADATA).info(
        "Leader %s starts at leader epoch %d from offset %d with partition epoch %d, high watermark %d, ISR %s."
        " Previous leader %d",
        partition,
        leader_epoch,
        offsets.log_end_offset,
        partition_epoch,
        offsets.high_watermark,
        ids(isr),
        previous,
    )


def follower(
    partition: Storied, leader_epoch: int, partition_epoch: int, offsets: Log, leader_id: int, previous: int
) -> None:
    story(partition, METADATA).info(
        "Follower %s starts at leader epoch %d from offset %d with partition epoch %d and high watermark %d."
        " Current leader is %d. Previous leader %d",
        partition,
        leader_epoch,
        offsets.log_end_offset,
        partition_epoch,
        offsets.high_watermark,
        leader_id,
        previous,
    )


def truncating(partition: Storied, offset: int, offsets: Log) -> None:
    """Log a truncation. It is below the high watermark only after an unclean election: a clean leader has all records below it (invariant 10)."""
    if offset < offsets.high_watermark:
        story(partition, LEADERS_LOG).warning(
            "Truncating %s to offset %d below high watermark %d", partition, offset, offsets.high_watermark
        )
    else:
        story(partition, LEADERS_LOG).info(
            "Truncating %s from offset %d to %d, where its leader's log diverges",
            partition,
            offsets.log_end_offset,
            offset,
        )


def ids(replicas: Iterable[int]) -> str:
    return ",".join(map(str, sorted(replicas)))
