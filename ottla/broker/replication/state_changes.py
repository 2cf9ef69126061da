"""The log lines of a partition's changes: leader and truncation here, the ISR in isr.py. Once per change, with Kafka's terms.

Kafka writes them to state-change.log and server.log; operators search both for "Shrinking ISR" and "starts at leader epoch".
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ottla.storage.log.log import Log

log = logging.getLogger(__name__)


def leader(
    partition: object, leader_epoch: int, partition_epoch: int, offsets: Log, isr: frozenset[int], previous: int
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
    partition: object, leader_epoch: int, partition_epoch: int, offsets: Log, leader_id: int, previous: int
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


def truncating(partition: object, offset: int, offsets: Log) -> None:
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
