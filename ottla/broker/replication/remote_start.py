"""A follower whose log ends before its leader's local start offset takes over the state at that point from remote storage, and
fetches from there (KIP-405, KIP-1023).

    leader    ListOffsets            its local start offset; with follower.fetch.last.tiered.offset.enable an empty log asks for the last
                                     offset that is in remote storage, and copies nothing that is there
    store     segments               those that have the offset before that
    leader    OffsetForLeaderEpoch   does the whole segment belong to the leader's log? The segment's last epoch must reach its
    end there store     objects                the leader epochs and the producer states at the segment's end
    leader    ListOffsets            its log start offset
    here                             the log is emptied, and its next offset is the one after the segment

Two logs that have the same epoch at an offset agree in all records before it (KIP-101), so that one question about the end of a
segment is enough. Kafka's followers ask about the offset before the leader's local start alone, and may take over a segment
whose end is of another history.

The wait for the store may be long, and a new leader epoch ends it: the findings are used only while `Basis` holds.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from ottla.broker.replication.leader_link import LeaderLink
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.state_changes import LEADERS_LOG, story
from ottla.broker.replication.truncation import EARLIEST, Basis, leader_offset
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.server.clock import pause
from ottla.server.network.client import Channel
from ottla.server.world import World
from ottla.storage.log.truncate import Restored, restore_and_start_at

log = logging.getLogger(__name__)

EARLIEST_LOCAL, LATEST_TIERED = -4, -5
#: A store that is away, or records about it that are not read yet.
RETRY_MS = 1_000


class RemoteStates(Protocol):
    """The states of logs at the ends of their remote segments, where remote storage is on (broker/tiers/remote_states.py)."""

    @property
    def from_last_tiered(self) -> bool:
        """Return follower.fetch.last.tiered.offset.enable."""

    async def restored(
        self, partition: Partition, offset: int, is_leaders: Callable[[int, int], Awaitable[bool]]
    ) -> Restored:
        """Return the state at the end of a segment that has `offset`; `is_leaders` is asked with its last epoch and offset.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR if there is none yet, or the store has failed. Other errors are those of `is_leaders`.
        """


async def begin_behind_remote(
    world: World, link: LeaderLink, timeout_ms: int, basis: Basis, states: RemoteStates | None
) -> None:
    """Begin after the end of remote storage, when it has answered. Return without a change if the role or the log has changed
    by then.
    """
    partition, said = basis.partition, ""
    while basis.holds:
        try:
            await _begin(link.require(), timeout_ms, basis, states)
            return
        except KafkaError as fault:
            if fault.code != ErrorCode.KAFKA_STORAGE_ERROR:
                raise
            if str(fault) != said:
                said = str(fault)
                story(partition, LEADERS_LOG, log).warning("%s waits for remote storage: %s", partition, said)
        await pause(world.clock, RETRY_MS)


async def _begin(channel: Channel, timeout_ms: int, basis: Basis, states: RemoteStates | None) -> None:
    partition, own_log = basis.partition, basis.log
    if states is None or not own_log.config.remote_storage_enable:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "this broker has no remote storage for the topic")
    last = -1
    if states.from_last_tiered and own_log.log_start_offset == own_log.log_end_offset:
        last = await leader_offset(channel, timeout_ms, basis, LATEST_TIERED)
    if last < 0:
        last = await leader_offset(channel, timeout_ms, basis, EARLIEST_LOCAL) - 1

    async def is_leaders(epoch: int, offset: int) -> bool:
        return await _has(channel, timeout_ms, basis, epoch, offset)

    restored = await states.restored(partition, last, is_leaders)
    start = await leader_offset(channel, timeout_ms, basis, EARLIEST)
    if not basis.holds or not max(start, own_log.log_end_offset + 1) <= restored.offset:
        return
    story(partition, LEADERS_LOG, log).info(
        "%s ends at %d, before what its leader has on its disk: it begins at %d, and has the rest in remote storage",
        partition,
        own_log.log_end_offset,
        restored.offset,
    )
    restore_and_start_at(own_log, restored, start)


async def _has(channel: Channel, timeout_ms: int, basis: Basis, epoch: int, offset: int) -> bool:
    """Return True if the leader's log has the epoch, and it goes beyond the offset."""
    partition = basis.partition
    asked = OffsetForLeaderPartition(
        partition=partition.index, current_leader_epoch=basis.leader_epoch, leader_epoch=epoch
    )
    request = OffsetForLeaderEpochRequest(
        replica_id=partition.node_id, topics=[OffsetForLeaderTopic(topic=partition.topic, partitions=[asked])]
    )
    response = await channel.request(request, timeout_ms=timeout_ms)
    answer = response.topics[0].partitions[0]
    if answer.error_code != ErrorCode.NONE:
        raise KafkaError(ErrorCode(answer.error_code))
    return bool(answer.leader_epoch == epoch and answer.end_offset > offset)
