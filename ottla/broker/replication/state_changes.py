"""The log lines of a partition's changes: leader, ISR, truncation. Once per change, with Kafka's terms.

Kafka writes them to state-change.log and server.log; operators search both for "Shrinking ISR" and "starts at leader epoch".
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Protocol

from ottla.broker.replication.isr import NEVER_MS, ReplicaProgress
from ottla.protocol.errors import ErrorCode

log = logging.getLogger(__name__)


class Offsets(Protocol):
    """The offsets of a log that the lines name."""

    @property
    def high_watermark(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...


def shrinking(
    partition: object,
    before: frozenset[int],
    after: frozenset[int],
    offsets: Offsets,
    late: Iterable[ReplicaProgress],
    now_ms: int,
) -> None:
    log.info(
        "Shrinking ISR from %s to %s in %s. Leader: (highWatermark: %d, endOffset: %d). Out of sync replicas: %s",
        ids(before),
        ids(after),
        partition,
        offsets.high_watermark,
        offsets.log_end_offset,
        " ".join(_progress(follower, now_ms) for follower in late),
    )


def expanding(
    partition: object, before: frozenset[int], after: frozenset[int], offsets: Offsets, joins: ReplicaProgress
) -> None:
    log.info(
        "Expanding ISR from %s to %s in %s. Leader: (highWatermark: %d, endOffset: %d). Replica %d is at endOffset %d",
        ids(before),
        ids(after),
        partition,
        offsets.high_watermark,
        offsets.log_end_offset,
        joins.broker_id,
        joins.log_end_offset,
    )


def isr_updated(partition: object, isr: frozenset[int], partition_epoch: int, min_isr: int) -> None:
    under_min = " (under-min-isr)" if len(isr) < min_isr else ""
    log.info("ISR updated to %s%s and version updated to %d in %s", ids(isr), under_min, partition_epoch, partition)


def isr_rejected(partition: object, proposed: frozenset[int] | None, error: ErrorCode) -> None:
    log.info("Failed to alter ISR to %s in %s: the controller answered %s", ids(proposed or ()), partition, error.name)


def leader(
    partition: object, leader_epoch: int, partition_epoch: int, offsets: Offsets, isr: frozenset[int], previous: int
) -> None:
    log.info(
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
    partition: object, leader_epoch: int, partition_epoch: int, offsets: Offsets, leader_id: int, previous: int
) -> None:
    log.info(
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


def truncating(partition: object, offset: int, offsets: Offsets) -> None:
    """Log a truncation. It is below the high watermark only after an unclean election: a clean leader has all records below it (invariant 10)."""
    if offset < offsets.high_watermark:
        log.warning("Truncating %s to offset %d below high watermark %d", partition, offset, offsets.high_watermark)
    else:
        log.info(
            "Truncating %s from offset %d to %d, where its leader's log diverges",
            partition,
            offsets.log_end_offset,
            offset,
        )


def ids(replicas: Iterable[int]) -> str:
    return ",".join(map(str, sorted(replicas)))


def _progress(follower: ReplicaProgress, now_ms: int) -> str:
    caught_up = "never" if follower.last_caught_up_ms == NEVER_MS else f"{now_ms - follower.last_caught_up_ms} ms ago"
    return f"(brokerId: {follower.broker_id}, endOffset: {follower.log_end_offset}, lastCaughtUp: {caught_up})"
