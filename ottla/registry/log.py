"""The topic `_schemas` as a log: one partition that is read from its beginning for ever, and appended to by the leader.

Two leaders at once cannot both write. A new leader takes the producer epoch of a transactional id that all instances share, and
writes a NOOP with it; from then on the partition's broker rejects batches of the leader before it (INVALID_PRODUCER_EPOCH). After
the NOOP is read back, the leader's state has all that was ever acknowledged. No transaction is opened: the records are plain ones,
which other registries read.

The topic may be deleted and created again under running instances. Offsets, ids and versions of the deleted one then mean nothing:
the state begins again with the new topic's first record, the leader takes the lead once more before it writes, because the new
partition knows no producer epoch, and what was decided for the deleted topic is not written to the new one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import NamedTuple

from ottla.client import topics
from ottla.client.cluster import ClusterClient
from ottla.client.cluster_error import NO_SUCH_TOPIC
from ottla.client.consumer import Consumer
from ottla.client.errors import Failure
from ottla.client.fetched import recreated_texts
from ottla.client.producer import ClusterProducer
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.primitives import uuid_from_str, uuid_to_str
from ottla.protocol.records.record import NewRecord
from ottla.registry.errors import RegistryError
from ottla.registry.registry_state import RegistryState
from ottla.registry.schema_records import Record, noop_record

logger = logging.getLogger(__name__)

PARTITION = 0
REPLICAS_MAX = 3
RETRY_S = 1.0
SYNC_S_MAX = 30.0
#: For so long a topic that was just created may be unknown to the broker that is asked; how often it is asked.
CREATE_MS_MAX, LOOK_AGAIN_S = 30_000, 0.1
#: Codes by which the partition rejects a leader that another one has followed.
FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


class LeadershipLost(Exception):
    """Another instance is the leader by now."""


class LogPlace(NamedTuple):
    """An offset of the topic that has the id."""

    topic_id: bytes
    offset: int

    def text(self) -> str:
        return f"{uuid_to_str(self.topic_id)}:{self.offset}"


def place_from(text: str) -> LogPlace | None:
    """Return the place of a text, None for a text that is none."""
    topic_id, _, offset = text.partition(":")
    try:
        return LogPlace(uuid_from_str(topic_id), int(offset))
    except ValueError:
        return None


class _Reader(Consumer):
    """Reads the partition from a place on, and knows of which topic its position is."""

    def begin(self, topic: str, place: LogPlace) -> None:
        self.assign({(topic, PARTITION): place.offset})
        self._ids[topic, PARTITION] = place.topic_id

    @property
    def place(self) -> LogPlace:
        ((at, offset),) = self.positions.items()
        return LogPlace(self._ids[at], offset)


class SchemaLog:
    """The topic, replayed into `state`. Reads and writes have connections of their own: a read that waits delays no write."""

    def __init__(self, reading: ClusterClient, writing: ClusterClient, topic: str, fence: str) -> None:
        self.topic = topic
        self.state = RegistryState()
        #: The state has the records before it.
        self.place = LogPlace(b"", 0)
        self._former: set[bytes] = set()
        self._reading = reading
        self._writing = writing
        self._fence = fence
        self._reader = _Reader(reading, {})
        self._producer: ClusterProducer | None = None
        self._moved = asyncio.Condition()

    async def start(self) -> None:
        """Create the topic if it is not there, and read what it holds.

        Raises:
            Failure: it cannot be had, or it has more than one partition.
            TimeoutError: nothing has been read for the command's time limit.
        """
        await self._create()
        end = await self._end()
        self.place = LogPlace(end.topic_id, await self._first())
        self._reader.begin(self.topic, self.place)
        while not self._has(end):
            before = self.place
            async with asyncio.timeout(self._reading.timeout_ms / 1000):
                while self.place == before:
                    await self._read()

    async def follow(self) -> None:
        """Read for ever. While the cluster cannot be reached it is tried again."""
        while True:
            try:
                await self._read()
            except (Failure, KafkaError, TimeoutError) as fault:
                if isinstance(fault, Failure) and fault.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    await self._begin_again()
                    continue
                logger.warning("reading %s: %s; it is tried again", self.topic, fault)
                await asyncio.sleep(RETRY_S)

    async def sync(self, place: LogPlace | None = None) -> LogPlace:
        """Wait until the state has all records before `place`, or before the end of the log. Returns the place.

        Raises:
            RegistryError: it takes too long, or the topic of the place was deleted.
        """
        try:
            async with asyncio.timeout(SYNC_S_MAX):
                wanted = await self._settled_end() if place is None else place
                async with self._moved:
                    await self._moved.wait_for(lambda: self._has(wanted) or wanted.topic_id in self._former)
        except TimeoutError:
            raise RegistryError("timeout", "Reading the Kafka store timed out") from None
        except Failure as fault:
            raise RegistryError("store", f"Error while reading the Kafka store: {fault}") from None
        if wanted.topic_id in self._former:
            raise self._gone()
        return wanted

    async def lead(self) -> None:
        """Become the only writer, with a state that has all records.

        Raises:
            RegistryError, Failure: the cluster does not answer.
            Fenced: another instance has become it meanwhile.
        """
        topic_id = (await self._writing.topic(self.topic)).topic_id
        producer = ClusterProducer(self._writing, self.topic, transactional_id=self._fence, topic_id=topic_id)
        await producer.start()
        # The NOOP is for the topic that the state is of by then.
        await self.sync(LogPlace(topic_id, 0))
        self._producer = producer
        await self.append([noop_record()])

    async def append(self, records: Sequence[Record]) -> LogPlace:
        """Write records as the leader to the topic that the state is of, and wait until it has them. Returns the place after them.

        Raises:
            RegistryError: they may not have been written, or the topic was created again.
            Fenced: another instance is the leader, and they have not been written.
        """
        producer = self._producer
        if producer is None:
            raise LeadershipLost
        if not self.is_writable:
            raise self._gone()
        now_ms = self._writing.world.clock.wall_ms()
        try:
            async with asyncio.timeout(SYNC_S_MAX):
                for key, value in records:
                    await producer.send(NewRecord(key, value, now_ms), PARTITION)
                await producer.flush()
        except Failure as fault:
            self._producer = None
            if fault.code in FENCED:
                raise LeadershipLost from None
            if fault.code in TOO_LARGE:
                raise RegistryError("too_large") from None
            raise RegistryError("store", f"Error while writing to the Kafka store: {fault}") from None
        except TimeoutError:
            # What is left in the producer would be sent before the records of the next write.
            self._producer = None
            raise RegistryError("timeout", "Write to the Kafka store timed out") from None
        end = await self.sync()
        if end.topic_id != producer.topic_id:
            raise self._gone()
        return end

    @property
    def is_writable(self) -> bool:
        """Whether this instance has taken the lead in the topic that the state is of."""
        return self._producer is not None and self._producer.topic_id == self.place.topic_id

    def resign(self) -> None:
        self._producer = None

    # -- Reading -------------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        """Take in what the next response brings, of the topic that is there by now."""
        rows = await self._reader.poll()
        if self._reader.recreated:
            self._former.add(self.place.topic_id)
            self.state = RegistryState()
            for text in recreated_texts(self._reader.recreated):
                logger.error("%s; the ids and versions of the former one are gone", text)
        for _, _, records, _ in rows:
            for record in records:
                self.state.replay(record.key, record.value)
        if self._reader.place != self.place:
            async with self._moved:
                self.place = self._reader.place
                self._moved.notify_all()

    async def _begin_again(self) -> None:
        """The log does not have the position any more: records before it were deleted, or its end was lost."""
        try:
            first = await self._first()
        except Failure as fault:
            logger.warning("reading %s: %s; it is tried again", self.topic, fault)
            await asyncio.sleep(RETRY_S)
            return
        logger.error("topic %s has no offset %d any more: its records are read again", self.topic, self.place.offset)
        self.state = RegistryState()
        self._reader.seek((self.topic, PARTITION), first)
        self.place = LogPlace(self.place.topic_id, first)

    def _has(self, place: LogPlace) -> bool:
        return self.place.topic_id == place.topic_id and self.place.offset >= place.offset

    def _gone(self) -> RegistryError:
        return RegistryError("store", f"The topic {self.topic} was deleted and created again")

    async def _end(self) -> LogPlace:
        """Return the end of the log. The id is asked for first: if another topic follows meanwhile, the place is one of a former topic."""
        topic_id = (await self._writing.topic(self.topic)).topic_id
        ends = await topics.list_offsets(self._writing, self.topic, topics.LATEST, [PARTITION])
        return LogPlace(topic_id, ends[PARTITION])

    async def _settled_end(self) -> LogPlace:
        """Return the end of the log once the state is of this log: one that ends before what was read has lost its end, which the
        reader notices."""
        while True:
            before, end = self.place, await self._end()
            if end.topic_id != before.topic_id or end.offset >= before.offset:
                return end
            await asyncio.sleep(LOOK_AGAIN_S)

    async def _first(self) -> int:
        first = await topics.list_offsets(self._writing, self.topic, topics.EARLIEST, [PARTITION])
        return first[PARTITION]

    async def _create(self) -> None:
        if self.topic not in await self._writing.topic_names():
            replicas = min(REPLICAS_MAX, max(1, len(self._writing.brokers)))
            try:
                await topics.create_topic(self._writing, self.topic, 1, replicas, {"cleanup.policy": "compact"})
            except Failure as fault:
                if fault.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
        await self._known_partitions(self._reading)
        partitions = await self._known_partitions(self._writing)
        if len(partitions) != 1:
            raise Failure(f"topic {self.topic} has {len(partitions)} partitions", "a registry's topic has one")

    async def _known_partitions(self, cluster: ClusterClient) -> list[int]:
        """Returns the topic's partitions when the broker knows them: it may get the metadata of a new topic a little later than others."""
        until_ms = cluster.world.clock.mono_ms() + CREATE_MS_MAX
        while True:
            try:
                return await cluster.partitions(self.topic)
            except Failure as fault:
                if fault.code not in NO_SUCH_TOPIC or cluster.world.clock.mono_ms() > until_ms:
                    raise
            await asyncio.sleep(LOOK_AGAIN_S)
