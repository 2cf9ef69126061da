"""One lane: it takes the records that were read of its partitions, and commits them to the target with the positions, in one
transaction after the other.

    starting --> running --> (a failure) --> starting, after a pause that doubles
                   |
                   +--> (fenced) --> starting, once the coordinator of the workers has confirmed that the lane is still here

If the target rejects a partition, only that one is stopped and tried again later; the others of the lane go on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ottla.client.cluster import Leaders
from ottla.client.failures import Failure
from ottla.client.fetched import Batches
from ottla.client.partitions import TopicPartition
from ottla.mirror.batches import Outgoing, TooLargeRecord, outgoing
from ottla.mirror.beginnings import PlaceBegin
from ottla.mirror.formats import OffsetSync, TopicIds
from ottla.mirror.positions import MirrorPosition, Positions, PositionsLost, begun_record, position_record
from ottla.mirror.syncs import worth_a_pair
from ottla.mirror.transaction import Fenced, LaneProducer, PlaceFailed, refreshed
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.record import Record
from ottla.server.clock import Clock

#: The bytes that may wait in a lane of one partition. Below them, more is read.
WAITING_BYTES_MAX = 16 * 1024 * 1024
#: The bytes of one transaction. If it fails, they are read again.
TRANSACTION_BYTES_MAX = 16 * 1024 * 1024
#: The least time between two commits of a lane, so that few records do not cause a transaction each.
COMMIT_EVERY_MS = 100
BACKOFF_S_MIN, BACKOFF_S_MAX = 0.2, 10.0
#: A stopped partition is tried again after this time.
STOPPED_S = 15.0
#: A partition without a leader in the source is looked up again after this time.
LATER_MS = 1_000
TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


class Surroundings(Protocol):
    """The interface of a worker that a lane needs."""

    source: str
    clock: Clock
    positions: Positions
    leaders: Leaders

    def target_of(self, place: TopicPartition) -> TopicPartition: ...

    def restart_at(self, begins: Mapping[TopicPartition, PlaceBegin]) -> None:
        """Let the reader read these partitions again, from these positions."""

    async def begins_of(
        self, places: Iterable[TopicPartition], found: Mapping[TopicPartition, MirrorPosition]
    ) -> dict[TopicPartition, PlaceBegin]:
        """Return where partitions with the positions `found` in the target begin. Those without a leader are left out."""

    async def latest_of(
        self, lane: int, found: Iterable[TopicPartition]
    ) -> dict[TopicPartition, MirrorPosition] | None:
        """Return the ends of the lane's partitions without a position; None if these begin at their first records."""

    async def batch_bytes_max(self, topic: str) -> int:
        """Return the largest batch that a topic of the target accepts."""

    async def confirm(self) -> None: ...

    def committed(self, lane: Lane, done: Done) -> None: ...

    def say(self, text: str) -> None: ...

    def say_seldom(self, text: str) -> None:
        """Log a failure that is tried again and again, unless it has just been logged."""


@dataclass(slots=True)
class Done:
    """The result of one transaction."""

    records: int = 0
    bytes: int = 0
    pairs: list[OffsetSync] = field(default_factory=list)


class Lane:
    """A lane of this worker. `put` gives it batches that were read; `run` is its task."""

    def __init__(self, number: int, producer: LaneProducer, around: Surroundings) -> None:
        self.number = number
        #: The committed position of each partition. Only partitions in it are read.
        self.positions: dict[TopicPartition, MirrorPosition] = {}
        #: The next offset to read of each partition.
        self.expected: dict[TopicPartition, int] = {}
        #: The bytes that were read and are not committed yet.
        self.bytes = 0
        #: The partitions that the target rejects, with the reason.
        self.stopped: dict[TopicPartition, str] = {}
        self.is_running = False
        self._producer = producer
        self._around = around
        self._wanted: set[TopicPartition] = set()
        self._waiting: deque[Batches] = deque()
        self._bytes: dict[TopicPartition, int] = {}
        self._limits: dict[str, int] = {}
        self._retry_ms: dict[TopicPartition, int] = {}
        #: The positions that differ from those in the target.
        self._unsaved: dict[TopicPartition, MirrorPosition] = {}
        #: The partitions to look up again: their topic, their leader or their log has changed.
        self._again: set[TopicPartition] = set()
        #: The partitions without a leader in the source, and the times when they are looked up again.
        self._later_ms: dict[TopicPartition, int] = {}
        self._changed = asyncio.Event()
        self._ends = False

    # -- What the worker calls -------------------------------------------------------------------------------------------

    def mirror(self, places: Iterable[TopicPartition]) -> None:
        """Set the partitions of the lane."""
        wanted = set(places)
        if wanted != self._wanted:
            self._wanted = wanted
            self._changed.set()

    def put(self, batches: Batches) -> None:
        """Take batches, if they are the next ones of their partition.

        Batches that were read before the lane began again are dropped: they will be read again.
        """
        place = batches[:2]
        if not self.is_running or place in self._again or batches.position != self.expected.get(place):
            return
        assert batches.topic_id == self.positions[place].topic_id, "the reader begins with the lane"
        size = _size(batches)
        self._waiting.append(batches)
        self._bytes[place] = self._bytes.get(place, 0) + size
        self.bytes += size
        self.expected[place] = batches.next_offset
        self._changed.set()

    def has_room(self, place: TopicPartition) -> bool:
        return (
            self.is_running
            and place in self.positions
            and place not in self._again
            and self._bytes.get(place, 0) < WAITING_BYTES_MAX
        )

    def look_again(self, place: TopicPartition) -> None:
        """Find out again where a partition goes on. Records that were read of it and are not in a transaction yet are dropped."""
        self._again.add(place)
        self._changed.set()

    def retry(self) -> None:
        """Try the stopped partitions now, because topics of the target were created."""
        self._retry_ms = dict.fromkeys(self._retry_ms, 0)
        self._changed.set()

    def end(self) -> None:
        """End after the transaction in progress."""
        self._ends = True
        self._changed.set()

    @property
    def is_idle(self) -> bool:
        """Return whether all records that were read are committed."""
        held = self._bytes or self._again or self._unsaved
        return self.is_running and not held and set(self.positions) | set(self.stopped) >= self._wanted

    @property
    def waits_for_source(self) -> bool:
        """Return whether a partition has no leader in the source, or was deleted there."""
        return bool(self._later_ms)

    # -- Its task ----------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        backoff_s = BACKOFF_S_MIN
        while not self._ends:
            try:
                await self._start()
                while not self._ends:
                    if await self._step():
                        backoff_s = BACKOFF_S_MIN
            except Fenced:
                self._pause()
                await self._around.confirm()
            except PositionsLost:
                raise
            except (Failure, KafkaError, TimeoutError) as fault:
                self._pause()
                if isinstance(fault, PlaceFailed) and await self._stop(fault):
                    continue
                self._around.say_seldom(f"writing: {fault or 'time is up'}; it is tried again")
                await asyncio.sleep(backoff_s)
                backoff_s = min(2 * backoff_s, BACKOFF_S_MAX)
                await refreshed(self._around.leaders)

    async def _start(self) -> None:
        """Fence the worker that had the lane before, and find out where that worker ended."""
        self._pause()
        await self._producer.start()
        await self._begin_at_ends()
        await self._adopt(self._wanted)
        self.is_running = True

    async def _begin_at_ends(self) -> None:
        """Commit the ends of the lane's partitions as their positions, if they are to begin there and the lane has never done
        so (--begin latest).

        A partition that is created later, or has no leader now, begins at its first record.
        """
        around = self._around
        ends = await around.latest_of(self.number, await around.positions.read())
        if ends is not None:
            await self._commit({}, self._position_batches(ends, [begun_record(around.source, self.number)]))

    def _pause(self) -> None:
        self.is_running = False
        self._waiting.clear()
        self._bytes.clear()
        self.bytes = 0
        self.positions.clear()
        self.expected.clear()
        self._unsaved.clear()
        self._again.clear()

    async def _adopt(self, places: Iterable[TopicPartition]) -> None:
        """Begin to mirror partitions at the target's positions."""
        places = [place for place in places if place not in self.stopped]
        if not places:
            return
        found = dict(await self._around.positions.read())
        begins = await self._around.begins_of(places, found)
        # From here to the end of the start nothing is awaited, so that no batch that was fetched earlier can come in between.
        for place, (position, _) in begins.items():
            self.positions[place], self.expected[place] = position, position.next_offset
            if place in found and found[place] != position:
                self._unsaved[place] = position
        self._later_ms = {place: self._around.clock.mono_ms() + LATER_MS for place in places if place not in begins}
        self._around.restart_at(begins)

    async def _step(self) -> bool:
        """Handle changes, or commit the records that have come. Return whether something was committed."""
        around = self._around
        self._changed.clear()
        for place, retry_ms in list(self._retry_ms.items()):
            if around.clock.mono_ms() >= retry_ms:
                del self._retry_ms[place], self.stopped[place]
        for place in (self.positions.keys() - self._wanted) | self._again:
            self._drop(place)
        self._again.clear()
        now_ms = around.clock.mono_ms()
        self._later_ms = {place: at for place, at in self._later_ms.items() if place in self._wanted and at > now_ms}
        missing = self._wanted - self.positions.keys() - self.stopped.keys() - self._later_ms.keys()
        if missing:
            await self._adopt(missing)
        if self._waiting or self._unsaved:
            began_ms = around.clock.mono_ms()
            done = await self._transaction()
            around.committed(self, done)
            await self._changed_or(COMMIT_EVERY_MS - (around.clock.mono_ms() - began_ms), only_if_full=True)
            return True
        next_ms = min((*self._retry_ms.values(), *self._later_ms.values()), default=None)
        await self._changed_or(None if next_ms is None else next_ms - around.clock.mono_ms())
        return False

    def _drop(self, place: TopicPartition) -> None:
        """Forget the position of a partition, and the records that were read of it."""
        self.positions.pop(place, None)
        self.expected.pop(place, None)
        self._unsaved.pop(place, None)
        self.bytes -= self._bytes.pop(place, 0)
        self._waiting = deque(row for row in self._waiting if row[:2] != place)

    async def _changed_or(self, wait_ms: float | None, *, only_if_full: bool = False) -> None:
        """Wait for a change, for at most this time."""
        if only_if_full:
            if wait_ms is not None and wait_ms > 0 and self.bytes < TRANSACTION_BYTES_MAX // 4:
                await asyncio.sleep(wait_ms / 1000)
            return
        try:
            async with asyncio.timeout(None if wait_ms is None else max(0.0, wait_ms / 1000)):
                await self._changed.wait()
        except TimeoutError:
            return

    # -- Transactions ------------------------------------------------------------------------------------------------------

    async def _transaction(self) -> Done:
        taken, size = [], 0
        while self._waiting and size < TRANSACTION_BYTES_MAX:
            taken.append(self._waiting.popleft())
            size += _size(taken[-1])
        batches = self._outgoing(taken)
        nexts = dict(self._unsaved)
        nexts |= {row[:2]: MirrorPosition(row.next_offset, row.topic_id, row.epoch) for row in taken}
        topic_ids = {place: self._around.leaders.current_id(place[0]) for place in batches}
        offsets = await self._commit(batches, self._position_batches(nexts))
        self.positions |= nexts
        self._unsaved.clear()
        for row in taken:
            self._bytes[row[:2]] -= _size(row)
            self.bytes -= _size(row)
            if not self._bytes[row[:2]]:
                del self._bytes[row[:2]]
        sources = {self._around.target_of(row[:2]): (row[:2], row.topic_id) for row in taken}
        return _done(sources, topic_ids, batches, offsets)

    async def _commit(
        self, batches: dict[TopicPartition, list[Outgoing]], saved: dict[TopicPartition, list[Outgoing]]
    ) -> dict[TopicPartition, list[int]]:
        """Write records and positions in one transaction. Return the offset of the first record of each batch."""
        await self._producer.begin([*batches, *saved])
        offsets = await self._producer.produce(batches)
        # The positions are sent after the records, for a producer without transactions: a position must not be ahead of the
        # records.
        await self._producer.produce(saved)
        await self._producer.end(commit=True)
        return offsets

    def _outgoing(self, taken: list[Batches]) -> dict[TopicPartition, list[Outgoing]]:
        batches: dict[TopicPartition, list[Outgoing]] = {}
        for row in taken:
            place = self._around.target_of(row[:2])
            limit = self._limits.get(place[0])
            try:
                made = outgoing(row.batches, row.position, limit)
            except TooLargeRecord as record:
                cause = f"the record at offset {record.offset} of {row.topic}-{row.partition} takes {record.size} bytes"
                hint = f"raise max.message.bytes of {place[0]} in the target: it is {limit}"
                raise PlaceFailed(place, Failure(cause, hint)) from None
            if made:
                batches.setdefault(place, []).extend(made)
        return batches

    def _position_batches(
        self, nexts: Mapping[TopicPartition, MirrorPosition], more: Iterable[tuple[bytes, bytes]] = ()
    ) -> dict[TopicPartition, list[Outgoing]]:
        rows: dict[TopicPartition, list[Record]] = {}
        now_ms = self._around.clock.wall_ms()
        for key, value in (*(position_record(self._around.source, *row) for row in nexts.items()), *more):
            rows.setdefault(self._around.positions.place_of(key), []).append(Record(0, now_ms, key, value))
        return {place: [Outgoing(None, records, 0)] for place, records in rows.items()}

    async def _stop(self, fault: PlaceFailed) -> bool:
        """Continue without the partition that the target rejects.

        If a batch is too large, split it first. Return whether the partition belongs to the lane.

        Return whether it is one of the lane's partitions.
        """
        failed = [place for place in self._wanted if self._around.target_of(place) == fault.at]
        topic = fault.at[0]
        if failed and fault.code in TOO_LARGE and topic not in self._limits:
            self._limits[topic] = await self._around.batch_bytes_max(topic)
            return True
        self._limits.pop(topic, None)
        for place in failed:
            if place not in self.stopped:
                self._around.say(f"{place[0]}-{place[1]} stops: {fault.text()}; it is tried again each {STOPPED_S:g} s")
            self.stopped[place] = str(fault)
            self._retry_ms[place] = self._around.clock.mono_ms() + int(STOPPED_S * 1000)
        await refreshed(self._around.leaders)
        return bool(failed)


def _size(batches: Batches) -> int:
    """Return the bytes that were read. It is at least 1, because a marker alone moves a position, too."""
    return sum(batch.size for batch in batches.batches) or 1


def _done(
    sources: Mapping[TopicPartition, tuple[TopicPartition, bytes]],
    topic_ids: Mapping[TopicPartition, bytes | None],
    batches: Mapping[TopicPartition, list[Outgoing]],
    offsets: Mapping[TopicPartition, list[int]],
) -> Done:
    """Return counts, and pairs of offsets for some records of each batch.

    `topic_ids` are the ids in the target before the transaction.
    """
    done = Done()
    for place, rows in batches.items():
        (source, source_id), target_id = sources[place], topic_ids[place]
        ids = None if target_id is None else TopicIds(source_id, target_id)
        for row, offset in zip(rows, offsets[place], strict=True):
            done.records += row.count
            done.bytes += row.size
            done.pairs += [OffsetSync(source, row.source_offset(i), offset + i, ids) for i in worth_a_pair(row.count)]
    return done
