"""A consumer reads partitions from given offsets, and follows their leaders through lost connections and leader changes.

It returns no control records. With read_committed, it returns no records of aborted transactions either: the broker names these
transactions (producer id and first offset), and each ends at its abort marker.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

from ottla.client.cluster import ATTEMPT_MS_MAX, RETRY_BACKOFF_MS, ClusterClient, Leaders, NoConnection
from ottla.client.errors import NO_SUCH_TOPIC, ClusterError, code_of, failure
from ottla.client.fetched import At, Batches, Recreated, Trouble, batches_of, records_between
from ottla.client.partitions import NO_LEADER, TopicPartition
from ottla.client.topics import EARLIEST, list_offsets
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from ottla.protocol.records.batch import BatchView
from ottla.protocol.records.record import Record

READ_UNCOMMITTED = 0
READ_COMMITTED = 1
FETCH_WAIT_MS = 500
FETCH_BYTES_MAX = 8 * 1024 * 1024
PARTITION_BYTES_MAX = 1024 * 1024
#: The time between two refreshes when a partition has no leader: Kafka's retry.backoff.max.ms.
BACKOFF_MS_MAX = 1_000
#: A leader that is cut off from the others still answers Fetches, but without new records: another broker names its successor.
LEADERS_AGE_MS_MAX = 3_000


class Consumed(NamedTuple):
    """Records of one partition. `is_append_time`: their timestamps are the broker's (LogAppendTime), not the producer's."""

    topic: str
    partition: int
    records: list[Record]
    is_append_time: bool = False


class _Fetch(NamedTuple):
    """A Fetch in flight: the place where each of its partitions is read, and a task that returns the response or the error."""

    places: dict[TopicPartition, At]
    response: asyncio.Task[FetchResponse | ClusterError]


class BatchConsumer:
    """A consumer that returns batches as they are stored (`poll_batches()`)."""

    def __init__(
        self,
        cluster: ClusterClient,
        positions: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int] | None = None,
        *,
        isolation_level: int = READ_UNCOMMITTED,
        reset: int | None = None,
        partition_bytes_max: int = PARTITION_BYTES_MAX,
        batch_bytes_max: int | None = None,
    ) -> None:
        """Begin at `positions`. A batch that has more than `batch_bytes_max` when it is decompressed cannot be read.

        `reset` (topics.EARLIEST or LATEST) is where a partition goes on when its offset has been deleted; with None the read
        fails.
        """
        self.cluster = cluster
        self.positions: dict[TopicPartition, int] = {}
        self.ends = ends
        self.isolation_level = isolation_level
        self.reset = reset
        #: Topics that were created again meanwhile. The caller reports them and clears the list.
        self.recreated: list[Recreated] = []
        #: How long a leader delays a response that would be empty.
        self.wait_ms = FETCH_WAIT_MS
        self._partition_bytes_max = partition_bytes_max
        self._batch_bytes_max = batch_bytes_max
        self._leaders = Leaders(cluster, ())
        #: The id of the topic that each position is an offset of: the id in the first Fetch of the partition.
        self._ids: dict[TopicPartition, bytes] = {}
        #: The end of each partition, as its leader has last named it.
        self._ends_seen: dict[TopicPartition, int] = {}
        #: The leader epoch of the last batch that was read of each partition.
        self._epochs_seen: dict[TopicPartition, int] = {}
        self._in_flight: dict[int, _Fetch] = {}
        #: The errors in the last responses. They are handled after the batches beside them have been returned.
        self._troubles: deque[Trouble] = deque()
        self._faults: deque[ClusterError] = deque()
        self._refreshing: asyncio.Task[ClusterError | None] | None = None
        self._refreshes_in_vain = 0
        self._leaders_ms = self._answered_ms = cluster.world.clock.mono_ms()
        self.assign(positions)

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Replace the partitions and their positions. Fetches in flight for other partitions are dropped."""
        self.positions = dict(positions)
        self._ids = {place: topic_id for place, topic_id in self._ids.items() if place in positions}
        self._leaders.topics = list(dict.fromkeys(topic for topic, _ in positions))

    def seek(self, place: TopicPartition, offset: int) -> None:
        """Continue the partition at `offset`."""
        self.positions[place] = offset

    async def poll_batches(self) -> list[Batches]:
        """Return the records of the next response; none if no leader has records within half a second.

        Raises:
            ClusterError: a partition cannot be read, or no broker has answered for the command's time limit.
        """
        clock = self.cluster.world.clock
        await self._settle()
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
        return [fetched for node in list(self._in_flight) for fetched in self._received(node)]

    def _wanted(self, place: TopicPartition) -> bool:
        return self.ends is None or self.positions[place] < self.ends[place]

    # -- Leaders -------------------------------------------------------------------------------------------------------

    async def _refresh(self) -> ClusterError | None:
        """Look the leaders up. Return why that failed: asyncio would log an exception of the task."""
        try:
            if not self._leaders.known:
                await self._leaders.start()
            else:
                await asyncio.sleep(min(RETRY_BACKOFF_MS << self._refreshes_in_vain, BACKOFF_MS_MAX) / 1000)
                await self._leaders.refresh()
        except ClusterError as fault:
            return fault
        self._answered_ms = self.cluster.world.clock.mono_ms()
        return None

    # -- Fetches -------------------------------------------------------------------------------------------------------

    def _send_fetches(self) -> None:
        """Send a Fetch to each leader that has none in flight."""
        busy = {place for fetch in self._in_flight.values() for place in fetch.places}
        idle = [place for place in self.positions if place not in busy and self._wanted(place)]
        for node, listed in self._leaders.by_node(idle).items():
            if node not in self._in_flight:
                places = {place: self._at(place) for place in listed if not self._is_another(place)}
                if places:
                    response = self.cluster.world.spawn(self._ask(node, self._request(places)), f"fetch from {node}")
                    self._in_flight[node] = _Fetch(places, response)

    def _at(self, place: TopicPartition) -> At:
        return At(self._ids.setdefault(place, self._leaders.topic_id(place[0])), self.positions[place])

    def _reads(self, place: TopicPartition, at: At | None) -> bool:
        """Return whether the partition is still read, at this offset of the same topic."""
        return at is not None and self.positions.get(place) == at.offset and self._ids.get(place) == at.topic_id

    async def _ask(self, node: int, request: FetchRequest) -> FetchResponse | ClusterError:
        try:
            response: FetchResponse = await self.cluster.request(request, node, timeout_ms=2 * ATTEMPT_MS_MAX)
        except ClusterError as fault:
            return fault
        return response

    def _request(self, places: Mapping[TopicPartition, At]) -> FetchRequest:
        topics: dict[str, FetchTopic] = {}
        for (name, index), (topic_id, offset) in places.items():
            topic = topics.setdefault(name, FetchTopic(name, topic_id, []))
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

    def _received(self, node: int) -> list[Batches]:
        """Take a Fetch that is done out of those in flight, and return its batches.

        Nothing is awaited between the moment when positions move and the one when the caller has the batches. Errors are kept
        for the next poll.
        """
        if not self._in_flight[node].response.done():
            return []
        fetch = self._in_flight.pop(node)
        response = fetch.response.result()
        if isinstance(response, NoConnection):
            self._leaders.forget(node)
            return []
        if isinstance(response, ClusterError):
            self._faults.append(response)
            return []
        self._answered_ms = self.cluster.world.clock.mono_ms()
        if response.error_code:
            self._faults.append(failure(f"reading from broker {node}", response.error_code))
            return []
        fetched = []
        for topic in response.responses:
            name = topic.topic or self._leaders.name_of(topic.topic_id)
            if name is None:
                self._leaders.forget(node)
                continue
            for part in topic.partitions:
                place = (name, part.partition_index)
                at = fetch.places.get(place)
                # The partition was assigned to another consumer, moved or created again meanwhile.
                if at is None or not self._reads(place, at):
                    continue
                if part.error_code:
                    self._troubles.append(Trouble(node, place, at, part.error_code))
                    continue
                self._answered(place, part)
                batches, fault = self._take(place, part)
                if fault is not None:
                    self._troubles.append(
                        Trouble(node, place, At(at.topic_id, self.positions[place]), fault.code, fault)
                    )
                if self.positions[place] != at.offset:
                    after, epoch = self.positions[place], self._epochs_seen[place]
                    fetched.append(Batches(*place, at.offset, batches, after, at.topic_id, epoch))
        return fetched

    def _answered(self, place: TopicPartition, part: PartitionData) -> None:
        """Note that a leader has answered for the partition without an error."""
        self._ends_seen[place] = part.high_watermark

    # -- What could not be read ------------------------------------------------------------------------------------------

    async def _settle(self) -> None:
        """Handle the errors of the last responses, and topics that were created again."""
        while self._troubles:
            trouble = self._troubles.popleft()
            if self._reads(trouble.place, trouble.at):
                await self._handle(trouble)
        if self._faults:
            raise self._faults.popleft()
        for name in dict.fromkeys(place[0] for place in self.positions if self._is_another(place)):
            await self._begin_again(name)

    def _is_another(self, place: TopicPartition) -> bool:
        """Return whether the topic has another id than the one in which the position counts."""
        topic_id = self._ids.get(place)
        return topic_id is not None and self._leaders.current_id(place[0]) not in (None, topic_id)

    async def _handle(self, trouble: Trouble) -> None:
        """Look the leader up again if it has moved. Reset the position if its offset was deleted."""
        place = trouble.place
        if trouble.fault is not None:
            await self._unreadable(place, trouble.code, trouble.fault)
        elif trouble.code in NO_SUCH_TOPIC:
            self._leaders.forget_topic(place[0])
        elif code_of(trouble.code).retriable:
            self._leaders.forget(trouble.node)
        elif trouble.code == ErrorCode.OFFSET_OUT_OF_RANGE and self.reset is not None:
            name, index = place
            offset = (await list_offsets(self.cluster, name, self.reset, [index]))[index]
            if self._reads(place, trouble.at):
                self.seek(place, offset)
        else:
            await self._unreadable(place, trouble.code, None)

    async def _begin_again(self, name: str) -> None:
        """Continue a topic that was deleted and created again at the beginning of the new one.

        Raises:
            ClusterError: `ends` are offsets of the deleted topic; or the new one cannot be read.
        """
        if self.ends is not None:
            remedy = "what was read is of the deleted topic: read it again"
            raise ClusterError(f"topic {name} was deleted and created again while it was read", remedy)
        topic_id, before = self._leaders.topic_id(name), dict(self.positions)
        begins = await list_offsets(self.cluster, name, EARLIEST)
        if self._leaders.topic_id(name) != topic_id:
            return  # created again once more: the next poll handles it
        for place in [place for place in self.positions if place[0] == name and self._is_another(place)]:
            at, begin = self.positions[place], begins.get(place[1])
            if at != before.get(place):
                continue
            unread = max(0, self._ends_seen.pop(place, at) - at)
            self.recreated.append(Recreated(*place, at, unread, begin))
            if begin is None:
                del self.positions[place], self._ids[place]
            else:
                self.positions[place], self._ids[place] = begin, topic_id

    async def _unreadable(self, place: TopicPartition, code: int, fault: KafkaError | None) -> None:
        """Let the read fail for good.

        Raises:
            ClusterError: always, with the error code's meaning.
            KafkaError: always, if a batch is malformed.
        """
        name, index = place
        raise fault or failure(f"offset {self.positions[place]} of partition {name}-{index}", code)

    def _take(self, place: TopicPartition, part: PartitionData) -> tuple[list[BatchView], KafkaError | None]:
        """Return the batches that can be read and why the next one cannot. Move the position behind them."""
        epoch = self._epochs_seen.get(place, -1)
        read = batches_of(part, self.positions[place], epoch, None if self.ends is None else self.ends[place])
        self.positions[place], self._epochs_seen[place] = read.next_offset, read.epoch
        return read.batches, read.fault


class Consumer(BatchConsumer):
    """Iterate over `fetch()`. It stops at `ends`; without them it never stops."""

    async def fetch(self) -> AsyncIterator[Consumed]:
        """Yield records as they arrive, in order within each partition.

        Raises:
            TimeoutError: `ends` are given, and nothing has been read for the command's time limit.
        """
        clock, before, moved_ms = self.cluster.world.clock, dict(self.positions), self._answered_ms
        while any(map(self._wanted, self.positions)):
            async for consumed in self.poll_each():
                yield consumed
            if self.positions != before:
                before, moved_ms = dict(self.positions), clock.mono_ms()
            elif self.ends is not None and clock.mono_ms() - moved_ms > self.cluster.timeout_ms:
                raise TimeoutError

    async def poll(self) -> list[Consumed]:
        """Return the records of the next response; nothing if no leader has records within half a second.

        Raises:
            ClusterError: a partition cannot be read, or no broker has answered for the command's time limit.
            KafkaError: a batch is malformed; the records before it were returned, and the position is at it.
        """
        rows: list[Consumed] = []
        async for row in self.poll_each():
            # it continues the rows of the batch before
            if rows and (*rows[-1][:2], rows[-1].is_append_time) == (*row[:2], row.is_append_time):
                rows[-1].records.extend(row.records)
            else:
                rows.append(row)
        return rows

    async def poll_each(self) -> AsyncIterator[Consumed]:
        """Give out the records of the next response batch by batch: one is decoded at a time.

        A caller that stops early loses the rest.

        Raises:
            ClusterError, KafkaError: as `poll`.
        """
        for fetched in await self.poll_batches():
            async for row in self._decoded(fetched):
                yield row

    async def _decoded(self, fetched: Batches) -> AsyncIterator[Consumed]:
        """Give out the records between the position and the end: a fetch starts at the batch that holds the offset."""
        place = fetched[:2]
        end = None if self.ends is None else self.ends[place]
        for batch in fetched.batches:
            try:
                records = await records_between(batch, fetched.position, end, self._batch_bytes_max)
            except KafkaError as fault:
                if self._reads(place, At(fetched.topic_id, fetched.next_offset)):
                    at = At(fetched.topic_id, max(fetched.position, batch.base_offset))
                    self.positions[place] = at.offset
                    self._troubles.append(Trouble(NO_LEADER, place, at, fault.code, fault))
                return
            if records:
                yield Consumed(*place, records, batch.append_time is not None)


def places_of(topic: str, offsets: Mapping[int, int]) -> dict[TopicPartition, int]:
    """Return offsets by topic and partition."""
    return {(topic, index): offset for index, offset in offsets.items()}
