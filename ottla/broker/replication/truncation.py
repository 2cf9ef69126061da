"""The offset that a follower truncates to, so that its log agrees with the leader's: a pure function of the two epoch histories (KIP-101).

The leader answers a fetch that does not fit with (epoch, end offset): the largest of its epochs at or below the one that
the follower asked about, and where that epoch ended in the leader's log.

    the follower's log                      goes back to                                    then
    has that very epoch                     the smaller of the two ends                     agrees
    has only older epochs                   the end of the largest of those                 fetches again: may diverge earlier still
    has no epoch that old                   the leader's end offset                         agrees

Never to the high watermark: what lies above it may be acknowledged at the leader already, because a follower learns of a
high watermark one fetch later (KIP-101 describes how records were lost that way).

Where a truncation takes a worker, or questions to the leader, it carries what it was decided on (`Basis`), and is dropped if that has
changed after the wait: the partition is fetched again, and the leader answers for the log as it is then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from ottla.broker.replication.leader_link import LeaderLink
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.state_changes import LEADERS_LOG, story
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.fetch import EpochEndOffset
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.server.network.client import Channel
from ottla.server.workers import Priority
from ottla.server.world import World
from ottla.storage.log.log import Log
from ottla.storage.log.truncate import truncate_fully_and_start_at, truncation_job
from ottla.storage.producers.producer_snapshots import Decoded

log = logging.getLogger(__name__)

EARLIEST, LATEST = -2, -1
UNDEFINED = -1


def truncation_offset(leader: EpochEndOffset, own: EpochEndOffset, log_end_offset: int) -> int:
    """Return the offset to truncate to. `own` is this log's largest epoch up to the leader's, with its end offset, or (-1, -1)."""
    assert leader.epoch >= 0 and leader.end_offset >= 0, f"a leader diverges somewhere, not at {leader}"
    if own.epoch == UNDEFINED:
        return min(leader.end_offset, log_end_offset)
    if own.epoch == leader.epoch:
        return min(leader.end_offset, own.end_offset, log_end_offset)
    return min(own.end_offset, log_end_offset)


def agreed_end(own_log: Log, leader: EpochEndOffset) -> int:
    own = EpochEndOffset(*own_log.end_offset_for_epoch(leader.epoch))
    return truncation_offset(leader, own, own_log.log_end_offset)


class Basis(NamedTuple):
    """The facts by which a truncation is decided: the role of the partition, and the state of its log.

    A log whose truncations and end offset are the same has the same batches. In another leader epoch the answer may differ, and
    records that were appended meanwhile may be acknowledged.
    """

    partition: Partition
    log: Log
    leader_id: int
    leader_epoch: int
    log_end_offset: int
    truncations: int

    @classmethod
    def of(cls, partition: Partition, log: Log) -> Basis:
        truncations = log.durability.truncations
        return cls(partition, log, partition.leader_id, partition.leader_epoch, log.log_end_offset, truncations)

    @property
    def holds(self) -> bool:
        """Return True if nothing has changed since."""
        partition, log = self.partition, self.partition.log
        return log is self.log and not partition.offline and Basis.of(partition, log) == self


async def truncate_after(world: World, job: Callable[[], Decoded | None], basis: Basis, offset: int) -> None:
    """Truncate the log when a worker has run `job` (`truncation_job`), unless the facts of the decision have changed by then."""
    decoded = await world.workers.on_disk(basis.log.partition_dir.log_dir, Priority.ROLL, job)
    if basis.holds:
        basis.partition.truncate_as_follower(offset, decoded)


async def go_to_leaders_range(world: World, link: LeaderLink, timeout_ms: int, basis: Basis) -> None:
    """Bring a log into the leader's range if it ends before the leader's start (whose records were deleted), or after the
    leader's end (unclean election).
    """
    partition, own_log, channel = basis.partition, basis.log, link.require()
    end = await leader_offset(channel, timeout_ms, basis, LATEST)
    start = await leader_offset(channel, timeout_ms, basis, EARLIEST)
    job, decoded = truncation_job(own_log, end), None
    if job is not None:
        decoded = await world.workers.on_disk(own_log.partition_dir.log_dir, Priority.ROLL, job)
    if not basis.holds:
        return
    if end < own_log.log_end_offset:
        story(partition, LEADERS_LOG, log).warning(
            "%s ends at %d, its leader's log at %d", partition, own_log.log_end_offset, end
        )
        partition.truncate_as_follower(end, decoded)
    if start > own_log.log_end_offset:
        story(partition, LEADERS_LOG, log).warning(
            "%s has nothing of its leader's log, and begins at %d", partition, start
        )
        truncate_fully_and_start_at(own_log, start)


async def leader_offset(channel: Channel, timeout_ms: int, basis: Basis, timestamp: int) -> int:
    """Return the leader's answer to ListOffsets for the partition. Raises KafkaError, ChannelClosed."""
    partition = basis.partition
    asked = ListOffsetsPartition(
        partition_index=partition.index, current_leader_epoch=basis.leader_epoch, timestamp=timestamp
    )
    request = ListOffsetsRequest(
        replica_id=partition.node_id, topics=[ListOffsetsTopic(name=partition.topic, partitions=[asked])]
    )
    response = await channel.request(request, timeout_ms=timeout_ms)
    answer = response.topics[0].partitions[0]
    if answer.error_code != ErrorCode.NONE:
        raise KafkaError(ErrorCode(answer.error_code))
    return int(answer.offset)
