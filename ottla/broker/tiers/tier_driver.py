"""Copies old segments of led partitions to a store, reads them, and deletes them when they have expired (KIP-405).

    every replica   learns from `__remote_log_metadata` how far its log is in the store: only up to there local retention may delete
    the leader      copies the oldest sealed segment that the store does not have and that lies below the last stable offset; deletes what
                    retention of the whole log takes
    the leader of   deletes the segments of topics that are gone, or that have remote storage no more
    the metadata

The order of a copy is Kafka's: COPY_SEGMENT_STARTED is committed, the objects are written, COPY_SEGMENT_FINISHED is committed. A leader that is
deposed meanwhile does no harm, because readers go by the log's leader epochs. All calls of the store run on threads of their own with a deadline.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from ottla.broker.configs import BrokerConfigs
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.replication.disk_work import flush_log
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.partition_log import LedLog, led_log
from ottla.broker.replication.replicas import Replicas
from ottla.broker.tiered_topics import TieredTopics
from ottla.broker.tiers.log_bounds import first_readable, learn, place_of_partition, start_where_readable
from ottla.broker.tiers.metadata_topic import MetadataTopic
from ottla.broker.tiers.objects import (
    FoundObject,
    SegmentLayout,
    StoreCalls,
    TierFailure,
    TierStore,
    claim,
    copy_of,
    epochs_between,
    objects_in,
)
from ottla.broker.tiers.own_copies import OwnCopies
from ottla.broker.tiers.partition_tier import PartitionTier, TierCount, TierCounts
from ottla.broker.tiers.remote_retention import expiry_of
from ottla.broker.tiers.remote_segments import (
    RemoteSegment,
    RemoteSegments,
    RemoteState,
    TieredPartition,
    changed,
    started,
)
from ottla.broker.tiers.tier_quota import COPIES, TierQuota
from ottla.controller.metadata.topic_names import is_valid_topic_name
from ottla.protocol.errors import KafkaError
from ottla.protocol.internal_topics.remote_log_records import RemoteLogRecord
from ottla.server.clock import TimerHandle, pause
from ottla.server.workers import Priority
from ottla.server.world import World
from ottla.storage.errors import StorageFailure
from ottla.storage.log.log import Log
from ottla.storage.log.retention import advance_log_start_offset
from ottla.storage.segment.segment import Segment

log = logging.getLogger(__name__)

INTERVAL, CALL_TIMEOUT = "remote.log.manager.task.interval.ms", "ottla.tier.call.timeout.ms"
COPIERS = "remote.log.manager.copier.thread.pool.size"
#: Shown in place of the reason when it is a bug of this broker.
FAULT = "an error of this broker, which its log has"
RETRY_MS = 1_000
#: The time for which a topic must be absent from this broker's metadata before its segments are deleted.
GONE_MS = 60_000


class _Candidate(NamedTuple):
    """A sealed segment that is to be copied, and its record."""

    local: Segment
    remote: RemoteSegment


class TierDriver:
    """The remote segments of a broker's partitions."""

    def __init__(
        self,
        world: World,
        configs: BrokerConfigs,
        metadata: MetadataCache,
        replicas: Replicas,
        tiered: TieredTopics,
        topic: MetadataTopic,
        open_store: Callable[[], TierStore],
        layout: SegmentLayout,
        counts: TierCounts,
    ) -> None:
        self._world, self._configs, self._metadata, self._replicas = world, configs, metadata, replicas
        self._tiered, self.topic, self._open_store, self._counts = tiered, topic, open_store, counts
        self.layout = layout
        self._store: TierStore | None = None
        self._is_ours = False
        self._calls = StoreCalls(world, "tier copies", configs[COPIERS])
        self.copy_quota = TierQuota(configs, world.clock, COPIES)
        self._resume: TimerHandle | None = None
        #: The state of each partition that this broker leads, by topic id and index.
        self._partitions: dict[tuple[bytes, int], PartitionTier] = {}
        self._all = PartitionTier("all topics")
        self._copies = OwnCopies()
        #: The time since which a topic is gone, by its id and the partition (monotonic, ms).
        self._gone_ms: dict[tuple[bytes, int], int] = {}
        self._due = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        topic.on_change = tiered.on_change = self._due.set

    async def start(self) -> None:
        self._task = self._world.spawn(self._run(), "tiers")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._resume is not None:
            self._resume.cancel()
        self.topic.close()

    @property
    def waits(self) -> str:
        """Return why no partition's segments are copied; empty if that is each partition's own matter."""
        return self._all.waits

    def on_leader(self, partition: Partition) -> None:
        if partition.log is not None and partition.log.config.remote_storage_enable:
            self._due.set()

    def on_resigned(self, partition: Partition) -> None:
        self._partitions.pop((partition.topic_id, partition.index), None)

    def segments_of(self, partition: Partition) -> RemoteSegments | None:
        """Return the store's segments of a partition, or None as long as they are not known."""
        return self.topic.segments(partition.topic_id, partition.index)

    def _known(self, topic_id: bytes, partition: int) -> Mapping[bytes, RemoteSegment] | None:
        segments = self.topic.segments(topic_id, partition)
        return None if segments is None else segments.by_id

    def led(self) -> Iterator[tuple[LedLog, PartitionTier]]:
        """Yield the partitions with remote storage that this broker leads."""
        for partition, _ in self._replicas_with_tier():
            if (led := led_log(partition)) is not None:
                yield led, self._tier(partition)

    def look(self) -> None:
        """Take a round soon: something is asked about a partition that is not followed yet."""
        self._due.set()

    async def store(self) -> TierStore:
        """Return the store, which is opened by its first use. Raises TierFailure."""
        if self._store is None:
            self._store = await self._calls.run(self._configs[CALL_TIMEOUT], self._open_store)
        return self._store

    async def own_store(self) -> TierStore:
        """Return the store if it is this cluster's, so that it may be changed. Raises TierFailure."""
        store = await self.store()
        if not self._is_ours:
            await self._calls.run(self._configs[CALL_TIMEOUT], claim, store, self._metadata.cluster_id)
            self._is_ours = True
        return store

    # -- Rounds ------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            self._due.clear()
            if not await self._attempt():
                await pause(self._world.clock, RETRY_MS)
            timer = self._world.clock.call_later(self._configs[INTERVAL], self._due.set)
            await self._due.wait()
            timer.cancel()

    async def _attempt(self) -> bool:
        """Make a round. Return False if it has failed for all partitions: the topic of the records cannot be made, for example."""
        try:
            await self._round()
        except (KafkaError, StorageFailure) as fault:
            self._all.failed(str(fault))
            return False
        except Exception:
            self._all.failed(FAULT)
            log.exception("A round of tiered storage has failed")
            return False
        self._all.succeeded()
        return True

    def _replicas_with_tier(self) -> Iterator[tuple[Partition, Log]]:
        for name in sorted(self._tiered.names):
            for partition in self._replicas.by_name.get(name, {}).values():
                if partition.log is not None and partition.log.config.remote_storage_enable:
                    yield partition, partition.log

    def _tier(self, partition: Partition) -> PartitionTier:
        key = partition.topic_id, partition.index
        tier = self._partitions.get(key)
        if tier is None:
            tier = self._partitions[key] = PartitionTier(str(partition))
        return tier

    def _copied_ms(self, partition: Partition) -> float:
        tier = self._partitions.get((partition.topic_id, partition.index))
        return float("-inf") if tier is None else tier.copied_ms

    async def _round(self) -> None:
        self._counts.keep(self._tiered.names)
        # Under a quota the one whose last copy is the longest ago comes first.
        tiered = sorted(self._replicas_with_tier(), key=lambda each: self._copied_ms(each[0]))
        await self.topic.follow((partition.topic_id, partition.index) for partition, _ in tiered)
        for partition, own in tiered:
            segments = self.segments_of(partition)
            if segments is None:
                continue
            learn(own, segments)
            if (led := led_log(partition)) is not None:
                tier = self._tier(partition)
                if not tier.is_busy:
                    tier.is_busy = True
                    self._world.spawn(self._tend(led, tier), f"tier of {partition}")
            elif own.recovery_point <= own.remote_end and not own.closed and own.failure is None:
                await flush_log(self._world, own, Priority.FLUSH)  # local retention waits for it
        await self._sweep()
        for undo in self._copies.settle(self._known):
            self._calls.leave(undo)
        await self._calls.undo_left(self._configs[CALL_TIMEOUT])

    async def _tend(self, led: LedLog, tier: PartitionTier) -> None:
        """Copy the due segments of one led partition, and delete the expired ones."""
        try:
            if (segments := self.segments_of(led.partition)) is not None:
                await self._confirm(led, segments)
                is_early = first_readable(led.log, segments) > led.log.log_start_offset
                if is_early and tier.may_move_start(self._world.clock.mono_ms(), self._configs[INTERVAL]):
                    await start_where_readable(led, self.topic, self._objects_of)
            if led.still_holds and (segments := self.segments_of(led.partition)) is not None:
                # First the remains of failed copies are deleted, so that an unavailable store gets no more of them.
                await self._expire(led, segments, tier)
            while led.still_holds and (segments := self.segments_of(led.partition)) is not None:
                learn(led.log, segments)
                candidate = self._candidate(led.log)
                if candidate is None or self._is_throttled():
                    break
                tier.copied_ms = self._world.clock.mono_ms()
                self.copy_quota.take(candidate.remote.size)
                await self._copy(led, candidate)
            tier.succeeded()
        except (TierFailure, KafkaError, StorageFailure, OSError) as fault:
            tier.failed(str(fault))
        except Exception:
            tier.failed(FAULT)
            log.exception("Remote storage of %s has failed", led.partition)
        finally:
            tier.is_busy = False

    def _is_throttled(self) -> bool:
        """Return whether the quota of copies is used up. A round begins when it is not any more."""
        wait_ms = self.copy_quota.wait_ms()
        if wait_ms:
            self.copy_quota.throttled(wait_ms)
            if self._resume is not None:
                self._resume.cancel()
            self._resume = self._world.clock.call_later(min(wait_ms, self._configs[INTERVAL]), self._due.set)
        return wait_ms > 0

    # -- Copies ------------------------------------------------------------------------------------------------------

    def _candidate(self, own: Log) -> _Candidate | None:
        """Return the oldest segment that is to be copied next."""
        offset = max(own.remote_end + 1, own.local_start_offset)
        index = own.segments.floor_index(offset)
        following = own.segments.next_base(index)
        if not own.config.is_copied or following is None or following > own.last_stable_offset or own.closed:
            return None
        local = own.segments[index]
        largest = local.indexes.largest_timestamp()
        remote = RemoteSegment(
            id=self._world.rng.getrandbits(128).to_bytes(16, "big"),
            start=local.base_offset,
            end=following - 1,
            size=local.file.size,
            max_timestamp=largest.timestamp,
            epochs=tuple(epochs_between(own.epochs.entries, local.base_offset, following)),
            broker_id=self._metadata.node_id,
            event_ms=self._world.clock.wall_ms(),
            has_aborted=bool(local.txn_index.entries(own.files)),
        )
        return _Candidate(local, remote)

    async def _copy(self, led: LedLog, candidate: _Candidate) -> None:
        partition, own = led.partition, led.log
        place, remote = place_of_partition(partition), candidate.remote
        copy = copy_of(own, place, candidate.local, remote)
        store = await self.own_store()
        if own.recovery_point <= remote.end:
            await flush_log(self._world, own)  # local retention waits for it
        undo = partial(self.layout.delete, store, place, remote)
        self._copies.begin(remote.id, place.topic_id, place.partition, undo)
        self._counts.add(place.topic, TierCount.COPIES)
        try:
            await self.topic.publish(place, started(place, remote))
            self._copies.named(remote.id)
            await self._calls.run(self._configs[CALL_TIMEOUT], self.layout.put, store, copy, undo=undo)
            self._copies.written(remote.id)
            await self.topic.publish(place, self._changed(place, remote, RemoteState.COPY_FINISHED))
        except Exception:
            self._counts.add(place.topic, TierCount.COPY_ERRORS)
            raise
        finally:
            self._copies.end(remote.id)
        self._counts.add(place.topic, TierCount.COPIED_BYTES, remote.size)
        log.info("Copied segment %d of %s (%d bytes) to remote storage", remote.start, partition, remote.size)

    async def _confirm(self, led: LedLog, segments: RemoteSegments) -> None:
        """Send COPY_FINISHED again for copies whose record may be committed, or not (`OwnCopies`)."""
        place = place_of_partition(led.partition)
        for segment in list(segments.by_id.values()):
            if segment.state is RemoteState.COPY_STARTED and self._copies.is_unconfirmed(segment.id):
                await self.topic.publish(place, self._changed(place, segment, RemoteState.COPY_FINISHED))

    def _changed(self, place: TieredPartition, remote: RemoteSegment, state: RemoteState) -> RemoteLogRecord:
        return changed(place, remote.id, state, self._metadata.node_id, self._world.clock.wall_ms())

    # -- Deletions ---------------------------------------------------------------------------------------------------

    async def _objects_of(self, place: TieredPartition) -> list[FoundObject]:
        store = await self.own_store()
        return await self._calls.run(self._configs[CALL_TIMEOUT], objects_in, store, self.layout, place)

    async def _expire(self, led: LedLog, segments: RemoteSegments, tier: PartitionTier) -> None:
        now_ms = self._world.session_clock.wall_ms()
        expiry = expiry_of(led.log, segments, now_ms, self._copies)
        if expiry.log_start > led.log.log_start_offset:
            advance_log_start_offset(led.log, expiry.log_start)
        place = place_of_partition(led.partition)
        tier.expired([segment.size for segment in expiry.gone])
        for segment in expiry.gone:
            if not led.still_holds:
                return
            await self._delete(place, segment)
            tier.deleted(segment.size)

    async def _delete(self, place: TieredPartition, segment: RemoteSegment) -> None:
        """Delete a segment's objects, in Kafka's order; each step may be repeated. A segment that has changed since this was decided
        stays until the next round: replicas may have deleted it from their disks by a COPY_FINISHED that came late."""
        self._counts.add(place.topic, TierCount.DELETIONS)
        try:
            store = await self.own_store()
            if (known := self._known(place.topic_id, place.partition)) is None or known.get(segment.id) != segment:
                return
            if segment.state is not RemoteState.DELETE_STARTED:
                await self.topic.publish(place, self._changed(place, segment, RemoteState.DELETE_STARTED))
            await self._calls.run(self._configs[CALL_TIMEOUT], self.layout.delete, store, place, segment)
            await self.topic.publish(place, self._changed(place, segment, RemoteState.DELETE_FINISHED))
        except Exception:
            self._counts.add(place.topic, TierCount.DELETE_ERRORS)
            raise
        self._copies.settled(segment.id)
        log.info("Deleted segment %d of %s-%d from remote storage", segment.start, place.topic, place.partition)

    async def _sweep(self) -> None:
        """Delete the segments of partitions that are gone, or have no remote storage any more, where this broker leads their records."""
        now_ms = self._world.clock.mono_ms()
        gone = [(place, segments) for place, segments in self.topic.led_places() if not self.is_wanted(place)]
        keys = {(place.topic_id, place.partition) for place, _ in gone}
        self._gone_ms = {key: self._gone_ms.get(key, now_ms) for key in keys}
        for place, segments in gone:
            since_ms = self._gone_ms[place.topic_id, place.partition]
            if now_ms - since_ms < GONE_MS or not is_valid_topic_name(place.topic):
                continue
            for segment in list(segments.by_id.values()):
                if self.is_wanted(place):
                    break
                try:
                    await self._delete(place, segment)
                except TierFailure as fault:
                    log.warning(
                        "Segments of %s-%d, which is gone, stay in remote storage: %s",
                        place.topic,
                        place.partition,
                        fault,
                    )
                    break

    def is_wanted(self, place: TieredPartition) -> bool:
        """Return True if the topic is there, with remote storage."""
        image = self._metadata.image
        topic = image.topics.by_name(place.topic)
        if topic is None or topic.id != place.topic_id:
            return False
        return self._configs.for_topic(image.configs, place.topic).remote_storage_enable
