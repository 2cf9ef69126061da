"""Reads partitions from given offsets, and follows their leaders through lost connections and leader changes.

Control records are never given out. With read_committed, neither are records of aborted transactions: the broker names
them (producer id and first offset), and each ends at its abort marker.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from itertools import groupby
from typing import Any, NamedTuple

from ottla.cli.client.cluster import ATTEMPT_MS_MAX, RETRY_BACKOFF_MS, ClusterClient, NoConnection
from ottla.cli.client.failures import check, code_of, failure
from ottla.cli.client.leaders import NO_LEADER, Leaders, TopicPartition
from ottla.cli.client.topics import list_offsets
from ottla.cli.errors import CommandFailed
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from ottla.protocol.records.batch import BatchView, iter_batches
from ottla.protocol.records.control import end_txn_marker
from ottla.protocol.records.record import Record

READ_UNCOMMITTED = 0
READ_COMMITTED = 1
FETCH_WAIT_MS = 500
FETCH_BYTES_MAX = 8 * 1024 * 1024
PARTITION_BYTES_MAX = 1024 * 1024
#: Between two refreshes when a partition has no leader: Kafka's retry.backoff.max.ms.
BACKOFF_MS_MAX = 1_000
#: A leader that is cut off from the others answers Fetches as before, without news: another broker names its successor.
LEADERS_AGE_MS_MAX = 3_000


class Consumed(NamedTuple):
    """Records of one partition, of one type of timestamp: the broker gave it (LogAppendTime), or the producer."""

    topic: str
    partition: int
    records: list[Record]
    is_append_time: bool = False


class Batches(NamedTuple):
    """Batches of one partition that were fetched at `position`: the first may have records before it."""

    topic: str
    partition: int
    position: int
    batches: list[BatchView]


class _Fetch(NamedTuple):
    """A Fetch in flight: the offset of each partition in it, and the response, or why there is none."""

    offsets: dict[TopicPartition, int]
    response: asyncio.Task[FetchResponse | CommandFailed]


class BatchConsumer:
    """Reads batches as they are stored: `poll_batches()`."""

    def __init__(
        self,
        cluster: ClusterClient,
        positions: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int] | None = None,
        *,
        isolation_level: int = READ_UNCOMMITTED,
        reset: int | None = None,
        partition_bytes_max: int = PARTITION_BYTES_MAX,
    ) -> None:
        """Begin at `positions`. `reset` (topics.EARLIEST or LATEST) is where a partition goes on when its offset has been deleted; None: the read fails."""
        self.cluster = cluster
        self.positions: dict[TopicPartition, int] = {}
        self.ends = ends
        self.isolation_level = isolation_level
        self.reset = reset
        #: For so long a leader delays a response that would be empty.
        self.wait_ms = FETCH_WAIT_MS
        self._partition_bytes_max = partition_bytes_max
        self._leaders = Leaders(cluster, ())
        self._in_flight: dict[int, _Fetch] = {}
        self._refreshing: asyncio.Task[CommandFailed | None] | None = None
        self._refreshes_in_vain = 0
        self._leaders_ms = self._answered_ms = cluster.world.clock.mono_ms()
        self.assign(positions)

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Replace the partitions and their positions. What is in flight for others is dropped."""
        self.positions = dict(positions)
        if {topic for topic, _ in positions} != set(self._leaders.topics):
            self._leaders = Leaders(self.cluster, (topic for topic, _ in positions))

    def seek(self, place: TopicPartition, offset: int) -> None:
        """Go on at `offset`."""
        self.positions[place] = offset

    async def poll_batches(self) -> list[Batches]:
        """Return what the next response brings; nothing if no leader has records within half a second.

        Raises:
            CommandFailed: a partition cannot be read, or no broker has answered for the command's time limit.
        """
        clock = self.cluster.world.clock
        now_ms = clock.mono_ms()
        self._send_fetches()
        lost = [place for place in self.positions if self._wanted(place) and self._leaders.of(place).node == NO_LEADER]
        self.cluster.doing = f"reading {', '.join(self._leaders.topics)}"
        if lost:
            self.cluster.doing += f": partition {lost[0][0]}-{lost[0][1]} has no leader"
        if self._refreshing is None and (lost or now_ms - self._leaders_ms >= LEADERS_AGE_MS_MAX):
            self._refreshing = self.cluster.world.spawn(self._refresh(), "leaders")
        tasks: list[asyncio.Task[Any]] = [fetch.response for fetch in self._in_flight.values()]
        if self._refreshing is not None:
            tasks.append(self._refreshing)
        if tasks:
            await asyncio.wait(tasks, timeout=FETCH_WAIT_MS / 1000, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(FETCH_WAIT_MS / 1000)
        if self._refreshing is not None and self._refreshing.done():
            fault = self._refreshing.result()
            self._refreshing, self._leaders_ms = None, clock.mono_ms()
            self._refreshes_in_vain = self._refreshes_in_vain + 1 if lost else 0
            # All brokers may be away for a while.
            away_ms = clock.mono_ms() - self._answered_ms
            if fault is not None and (not isinstance(fault, NoConnection) or away_ms > self.cluster.timeout_ms):
                raise fault
        return [fetched for node in list(self._in_flight) for fetched in await self._received(node)]

    def _wanted(self, place: TopicPartition) -> bool:
        return self.ends is None or self.positions[place] < self.ends[place]

    # -- Leaders -------------------------------------------------------------------------------------------------------

    async def _refresh(self) -> CommandFailed | None:
        """Look the leaders up. Returns why that failed: an exception of a task would be logged."""
        try:
            if not self._leaders.known:
                await self._leaders.start()
            else:
                await asyncio.sleep(min(RETRY_BACKOFF_MS << self._refreshes_in_vain, BACKOFF_MS_MAX) / 1000)
                await self._leaders.refresh()
        except CommandFailed as fault:
            return fault
        self._answered_ms = self.cluster.world.clock.mono_ms()
        return None

    # -- Fetches -------------------------------------------------------------------------------------------------------

    def _send_fetches(self) -> None:
        """Send a Fetch to each leader that has none in flight."""
        busy = {place for fetch in self._in_flight.values() for place in fetch.offsets}
        idle = [place for place in self.positions if place not in busy and self._wanted(place)]
        for node, places in self._leaders.by_node(idle).items():
            if node not in self._in_flight:
                offsets = {place: self.positions[place] for place in places}
                response = self.cluster.world.spawn(self._ask(node, self._request(offsets)), f"fetch from {node}")
                self._in_flight[node] = _Fetch(offsets, response)

    async def _ask(self, node: int, request: FetchRequest) -> FetchResponse | CommandFailed:
        try:
            response: FetchResponse = await self.cluster.request(request, node, timeout_ms=2 * ATTEMPT_MS_MAX)
        except CommandFailed as fault:
            return fault
        return response

    def _request(self, offsets: Mapping[TopicPartition, int]) -> FetchRequest:
        topics: dict[str, FetchTopic] = {}
        for (name, index), offset in offsets.items():
            topic = topics.setdefault(name, FetchTopic(name, self._leaders.topic_id(name), []))
            epoch = self._leaders.of((name, index)).epoch
            topic.partitions.append(
                FetchPartition(
                    partition=index,
                    current_leader_epoch=epoch,
                    fetch_offset=offset,
                    partition_max_bytes=self._partition_bytes_max,
                )
            )
        return FetchRequest(
            max_wait_ms=self.wait_ms,
            min_bytes=1,
            max_bytes=FETCH_BYTES_MAX,
            isolation_level=self.isolation_level,
            topics=list(topics.values()),
        )

    async def _received(self, node: int) -> list[Batches]:
        """Take a Fetch that is done out of those in flight, and return its batches."""
        if not self._in_flight[node].response.done():
            return []
        fetch = self._in_flight.pop(node)
        response = fetch.response.result()
        if isinstance(response, NoConnection):
            self._leaders.forget(node)
            return []
        if isinstance(response, CommandFailed):
            raise response
        self._answered_ms = self.cluster.world.clock.mono_ms()
        check(f"reading from broker {node}", response.error_code)
        fetched = []
        for topic in response.responses:
            name = topic.topic or self._leaders.name_of(topic.topic_id)
            for part in topic.partitions:
                place = (name, part.partition_index)
                # It was assigned to another consumer, or moved, meanwhile.
                if self.positions.get(place) != fetch.offsets[place]:
                    continue
                position = self.positions[place]
                if await self._readable(node, place, part) and (batches := self._take(place, part)):
                    fetched.append(Batches(*place, position, batches))
        return fetched

    async def _readable(self, node: int, place: TopicPartition, part: PartitionData) -> bool:
        """False if the leader has moved, and is looked up again, or if the position was deleted, and is reset."""
        if not part.error_code:
            return True
        if code_of(part.error_code).retriable:
            self._leaders.forget(node)
            return False
        name, index = place
        if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and self.reset is not None:
            self.seek(place, (await list_offsets(self.cluster, name, self.reset, [index]))[index])
            return False
        return await self._unreadable(place, part.error_code)

    async def _unreadable(self, place: TopicPartition, code: int) -> bool:
        """The read fails for good. Returns whether the batches of the response count nevertheless."""
        name, index = place
        raise failure(f"offset {self.positions[place]} of partition {name}-{index}", code)

    def _take(self, place: TopicPartition, part: PartitionData) -> list[BatchView]:
        end = None if self.ends is None else self.ends[place]
        aborted = sorted((row.first_offset, row.producer_id) for row in part.aborted_transactions or ())
        open_aborted: set[int] = set()
        taken: list[BatchView] = []
        read = part.records or b""
        assert not isinstance(read, list), "what was decoded is in one buffer"
        for batch in iter_batches(read):
            if end is not None and batch.base_offset >= end:
                self.positions[place] = max(self.positions[place], end)
                break
            while aborted and aborted[0][0] <= batch.last_offset:
                open_aborted.add(aborted.pop(0)[1])
            if batch.is_control:
                marker = end_txn_marker(batch)
                if marker is not None and not marker.committed:
                    open_aborted.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in open_aborted):
                taken.append(batch)
            self.positions[place] = max(self.positions[place], batch.next_offset)
        return taken


class Consumer(BatchConsumer):
    """Iterate `fetch()`; with `ends` it stops there, without it goes on for ever."""

    async def fetch(self) -> AsyncIterator[Consumed]:
        """Records as they come, in order within each partition.

        Raises:
            TimeoutError: there are `ends`, and nothing has been read for the command's time limit.
        """
        clock, before, moved_ms = self.cluster.world.clock, dict(self.positions), self._answered_ms
        while any(map(self._wanted, self.positions)):
            for consumed in await self.poll():
                yield consumed
            if self.positions != before:
                before, moved_ms = dict(self.positions), clock.mono_ms()
            elif self.ends is not None and clock.mono_ms() - moved_ms > self.cluster.timeout_ms:
                raise TimeoutError

    async def poll(self) -> list[Consumed]:
        """Return the records of the next response; nothing if no leader has records within half a second.

        Raises:
            CommandFailed: a partition cannot be read, or no broker has answered for the command's time limit.
        """
        decoded = [
            Consumed(*row[:2], self._decode(row._replace(batches=list(batches))), is_append_time)
            for row in await self.poll_batches()
            for is_append_time, batches in groupby(row.batches, key=lambda batch: batch.append_time is not None)
        ]
        return [row for row in decoded if row.records]

    def _decode(self, fetched: Batches) -> list[Record]:
        """Return the records between the position and the end: a fetch starts at the batch that holds the offset."""
        end = None if self.ends is None else self.ends[fetched.topic, fetched.partition]
        return [
            row
            for batch in fetched.batches
            for row in batch.records()
            if row.offset >= fetched.position and (end is None or row.offset < end)
        ]


def places_of(topic: str, offsets: Mapping[int, int]) -> dict[TopicPartition, int]:
    """Return offsets by topic and partition."""
    return {(topic, index): offset for index, offset in offsets.items()}
