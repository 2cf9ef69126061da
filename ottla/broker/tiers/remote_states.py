"""Leader epochs and producer states at the ends of remote segments, which followers take over from the store (KIP-405)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from ottla.broker.configs import BrokerConfigs
from ottla.broker.replication.partition import Partition
from ottla.broker.tiers.log_bounds import place_of_partition
from ottla.broker.tiers.objects import (
    EPOCHS_SUFFIX,
    SNAPSHOT_SUFFIX,
    SegmentLayout,
    StoreCalls,
    TierFailure,
    TierStore,
    WrongBytes,
)
from ottla.broker.tiers.partition_tier import TierCount, TierCounts
from ottla.broker.tiers.remote_segments import RemoteSegment, TieredPartition
from ottla.broker.tiers.tier_driver import CALL_TIMEOUT, TierDriver
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server.world import World
from ottla.storage.checkpoint import parse_lines
from ottla.storage.directories.future_logs import agreement
from ottla.storage.epochs import epochs_of
from ottla.storage.errors import CorruptFile
from ottla.storage.log.truncate import Restored
from ottla.storage.producers import producer_snapshots

FROM_LAST_TIERED = "follower.fetch.last.tiered.offset.enable"
FOLLOWERS = "remote.log.manager.follower.thread.pool.size"


class StoredStates:
    """The states of logs at the ends of their remote segments, for `broker/replication/remote_start.py`."""

    def __init__(self, world: World, configs: BrokerConfigs, driver: TierDriver, counts: TierCounts) -> None:
        self._configs, self._driver, self._counts = configs, driver, counts
        self._calls = StoreCalls(world, "tier states", configs[FOLLOWERS])

    @property
    def from_last_tiered(self) -> bool:
        return bool(self._configs[FROM_LAST_TIERED])

    async def restored(
        self, partition: Partition, offset: int, is_leaders: Callable[[int, int], Awaitable[bool]]
    ) -> Restored:
        """Return the state at the end of a segment that has `offset` and is the leader's; if there are several, of the one that
        reaches furthest.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, or what `is_leaders` raises.
        """
        self._counts.add(partition.topic, TierCount.STATES)
        try:
            return await self._restored(partition, offset, is_leaders)
        except KafkaError:
            self._counts.add(partition.topic, TierCount.STATE_ERRORS)
            raise

    async def _restored(
        self, partition: Partition, offset: int, is_leaders: Callable[[int, int], Awaitable[bool]]
    ) -> Restored:
        segments, place = self._driver.segments_of(partition), place_of_partition(partition)
        if segments is None:
            self._driver.look()
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the metadata of remote segments is not loaded yet")
        reason = f"no remote segment with offset {offset} is of the leader's log"
        for segment in segments.having(offset):
            if not await is_leaders(segment.epochs[-1][0], segment.end):
                continue
            try:
                store = await self._driver.store()
                read = partial(read_state, self._driver.layout, store, place, segment)
                return await self._calls.run(self._configs[CALL_TIMEOUT], read)
            except TierFailure as fault:
                reason = str(fault)
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason)


def read_state(layout: SegmentLayout, store: TierStore, place: TieredPartition, segment: RemoteSegment) -> Restored:
    """Return the state at the end of a segment, by its objects. It runs on a thread: 50,000 producers take 0.2 s.

    Raises:
        TierFailure: an object is missing, damaged, or has other epochs than the segment's record.
    """
    stored, name = layout.opened(store, place, segment), f"{place.topic}-{place.partition}/{segment.start}"
    epochs_name, producers_name = f"{name}{EPOCHS_SUFFIX}", f"{name}{SNAPSHOT_SUFFIX}"
    try:
        epochs = epochs_of(epochs_name, parse_lines(epochs_name, bytes(stored.file(EPOCHS_SUFFIX))))
        producers = producer_snapshots.decode(producers_name, bytes(stored.file(SNAPSHOT_SUFFIX)))
    except CorruptFile as fault:
        raise WrongBytes(str(fault)) from fault
    following = segment.end + 1
    if agreement(epochs, segment.epochs, segment.start, following) != following or epochs[-1][1] >= following:
        raise WrongBytes(f"{epochs_name} does not have the epochs of the segment")
    return Restored(following, epochs, producers)
