"""Reads of remote segments for clients: a Fetch below the local start offset, and searches by time (KIP-405).

The loop decides which segment has an offset; the rest runs on threads with a deadline, a bounded number at a time. A failure is
an error that clients retry, KAFKA_STORAGE_ERROR: a consumer must not reset its offset because a store is unavailable.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

from ottla.broker.configs import BrokerConfigs
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.replicas import Replicas
from ottla.broker.tiered_topics import RemoteFindings
from ottla.broker.tiers.log_bounds import place_of_partition
from ottla.broker.tiers.objects import TierFailure
from ottla.broker.tiers.partition_tier import TierCount, TierCounts
from ottla.broker.tiers.read_ahead import ReadingAhead
from ottla.broker.tiers.remote_chunks import RemoteChunks
from ottla.broker.tiers.remote_reading import RemoteSegmentReader
from ottla.broker.tiers.remote_segments import FoundSegment, RemoteSegment, lineage_of
from ottla.broker.tiers.tier_driver import TierDriver
from ottla.broker.tiers.tier_quota import FETCHES, TierQuota
from ottla.broker.tiers.tier_report import reader_metrics
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.list_offsets import ListOffsetsRequest
from ottla.server.clock import pause
from ottla.server.metrics import Family, Histogram
from ottla.server.network.context import Answer, Reply
from ottla.server.world import World
from ottla.storage.log.log import Log
from ottla.storage.log_files import AbortedTxn

T = TypeVar("T")
log = logging.getLogger(__name__)

#: One Fetch takes no more than this of a remote segment, whatever it asks for.
READ_BYTES = 8 << 20


class RemoteSearch(NamedTuple):
    """A search by time in the part of a log that is only in remote storage."""

    partition: Partition
    log: Log
    timestamp: int


class TieredRecords(NamedTuple):
    """Complete batches for a consumer, and the aborted transactions in them, if it asked for committed records."""

    records: bytes
    aborted: list[AbortedTxn]


class TierReads:
    """Reads of the partitions that this broker leads, or follows."""

    def __init__(
        self, world: World, configs: BrokerConfigs, driver: TierDriver, counts: TierCounts, chunks: RemoteChunks
    ) -> None:
        self._world, self._configs, self._driver, self._counts, self._chunks = world, configs, driver, counts, chunks
        self._ahead = ReadingAhead(chunks, world.spawn)
        self.quota = TierQuota(configs, world.clock, FETCHES)
        #: The times of reads, in microseconds.
        self._times = Histogram()

    def metrics(self) -> Iterator[Family]:
        """Yield the throttle times, and Kafka's metrics of the threads that read."""
        yield from self.quota.metrics()
        yield from reader_metrics(self._times, self._chunks)

    @property
    def wait_ms(self) -> int:
        """Return how long a Fetch waits for the store."""
        found: int = self._configs["remote.fetch.max.wait.ms"]
        return found

    async def read(
        self, partition: Partition, own: Log, offset: int, max_bytes: int, *, read_committed: bool
    ) -> TieredRecords:
        """Return batches from the one with `offset` on, at least one; none if the quota is used up, and stays so for `wait_ms`.

        Raises:
            KafkaError: OFFSET_OUT_OF_RANGE if the log does not start before the offset any more; KAFKA_STORAGE_ERROR.
        """
        if throttle_ms := self.quota.wait_ms():
            self.quota.throttled(throttle_ms)
            await pause(self._world.clock, min(throttle_ms, self.wait_ms))
            if self.quota.wait_ms():
                return TieredRecords(b"", [])
        self._counts.add(partition.topic, TierCount.FETCHES)
        began_ns = self._world.clock.mono_ns()
        try:
            found = self._found(partition, own, offset)
            reader = await self._reader(partition, found.segment)
            size = max(1, min(max_bytes, READ_BYTES))
            read = await reader.read(max(offset, found.segment.start), found.agreed_to, size)
            self.quota.take(len(read.records))
            following = partial(self._following, partition, own, found)
            self._ahead.after(place_of_partition(partition), offset, read, reader, following)
            aborted: list[AbortedTxn] = []
            if read_committed:
                aborted = await self._aborted(partition, own, offset, read.next_offset)
        except (TierFailure, KafkaError) as fault:
            if offset < own.log_start_offset:
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE) from None
            self._counts.add(partition.topic, TierCount.FETCH_ERRORS)
            log.warning("Offset %d of %s cannot be read from remote storage: %s", offset, partition, fault)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(fault)) from fault
        finally:
            self._times.add((self._world.clock.mono_ns() - began_ns) // 1_000)
        self._counts.add(partition.topic, TierCount.FETCHED_BYTES, len(read.records))
        return TieredRecords(read.records, aborted)

    async def search(self, partition: Partition, own: Log, timestamp: int) -> tuple[int, int, int] | None:
        """Return (timestamp, offset, leader epoch) of the first record that is not older, of those before the local start offset.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        start, end = own.log_start_offset, own.local_start_offset
        try:
            segments = self._driver.segments_of(partition)
            if segments is None:
                raise TierFailure("the metadata of remote segments is not loaded yet")
            limit = own.config.max_decompressed_message_bytes
            for segment, agreed_to in list(segments.in_lineage(start, lineage_of(own))):
                if segment.start >= end:
                    break
                if segment.max_timestamp < timestamp:
                    continue
                reader = await self._reader(partition, segment)
                found = await reader.search(timestamp, max(start, segment.start), min(agreed_to, end), limit)
                if found is not None:
                    return found
        except TierFailure as fault:
            self._counts.add(partition.topic, TierCount.FETCH_ERRORS)
            log.warning("%s cannot be searched in remote storage: %s", partition, fault)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(fault)) from fault
        return None

    def begin(self, partition: Partition, work: Coroutine[Any, Any, T], done: Callable[[T | KafkaError], None]) -> None:
        """Call `done` with the result of a read or a search of the partition, or with its error, whatever that is."""

        async def run() -> None:
            found: T | KafkaError
            try:
                found = await work
            except KafkaError as error:
                found = error
            except Exception:
                log.exception("A remote read of %s has failed", partition)
                found = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
            done(found)

        self._world.spawn(run(), f"remote read of {partition}")

    def searches_of(self, replicas: Replicas, request: ListOffsetsRequest) -> dict[tuple[str, int], RemoteSearch]:
        """Return the searches by time of a request that begin in remote storage."""
        found: dict[tuple[str, int], RemoteSearch] = {}
        for topic in request.topics:
            for asked in topic.partitions:
                partition = replicas.by_name.get(topic.name, {}).get(asked.partition_index)
                own = None if partition is None else partition.log
                if partition is None or own is None or asked.timestamp < 0:
                    continue
                if own.log_start_offset < own.local_start_offset:
                    found[topic.name, asked.partition_index] = RemoteSearch(partition, own, asked.timestamp)
        return found

    async def search_all(
        self,
        searches: Mapping[tuple[str, int], RemoteSearch],
        reply: Reply[T],
        then: Callable[[RemoteFindings], Answer[T]],
    ) -> None:
        """Search all partitions, and complete the reply with the result of `then(findings)`, unless it is cancelled."""
        found: dict[tuple[str, int], tuple[int, int, int] | KafkaError | None] = {}
        searched_to: dict[tuple[str, int], int] = {}
        left = searches
        while left:
            for key, search in left.items():
                if reply.cancelled:
                    return
                searched_to[key] = search.log.local_start_offset
                try:
                    found[key] = await self.search(search.partition, search.log, search.timestamp)
                except KafkaError as error:
                    found[key] = error
            # Search again if retention has deleted local segments meanwhile: their records were neither searched in the store
            # nor will they be found on the disk.
            left = {
                key: search
                for key, search in searches.items()
                if found[key] is None and search.log.local_start_offset != searched_to[key]
            }
        reply.follow(then(found))

    def _found(self, partition: Partition, own: Log, offset: int) -> FoundSegment:
        segments = self._driver.segments_of(partition)
        if segments is None:
            raise TierFailure("the metadata of remote segments is not loaded yet")
        # A segment ends where the next one begins, so that there are no gaps: what has no segment is missing, and not stepped over.
        found = segments.find(offset, lineage_of(own))
        if found is None or found.segment.start >= own.local_start_offset:
            raise TierFailure("no remote segment has it")
        return found

    async def _following(self, partition: Partition, own: Log, found: FoundSegment) -> RemoteSegmentReader | None:
        """Return the reader of the next segment, or None if that segment is on the local disk."""
        if found.agreed_to >= own.local_start_offset:
            return None
        return await self._reader(partition, self._found(partition, own, found.agreed_to).segment)

    async def _reader(self, partition: Partition, segment: RemoteSegment) -> RemoteSegmentReader:
        open_segment = partial(
            self._driver.layout.opened, await self._driver.store(), place_of_partition(partition), segment
        )
        stored = await self._chunks.opened(segment.id, open_segment)
        return RemoteSegmentReader(self._chunks, self._world.workers, stored, segment)

    async def _aborted(self, partition: Partition, own: Log, start: int, end: int) -> list[AbortedTxn]:
        """Return the aborted transactions of [start, end): their markers may be in later segments, and those on the local disk."""
        segments = self._driver.segments_of(partition)
        assert segments is not None
        is_all, local_start = False, -1
        # Retention may take segments from the disk during the wait: their markers are then neither among those that were read nor here.
        while not is_all and local_start != own.local_start_offset:
            local_start, found = own.local_start_offset, dict[AbortedTxn, None]()
            for each in list(segments.with_aborted(start, lineage_of(own))):
                if is_all or each.segment.start >= local_start:
                    break
                aborted = await (await self._reader(partition, each.segment)).aborted()
                of_log = [txn for txn in aborted if txn.last_offset < each.agreed_to]
                found |= dict.fromkeys(txn for txn in of_log if txn.last_offset >= start and txn.first_offset < end)
                # No later segment can have more of them.
                is_all = any(txn.last_stable_offset >= end for txn in of_log)
        if not is_all:
            found |= dict.fromkeys(own.segments.aborted_transactions(start, end))
        return list(found)
