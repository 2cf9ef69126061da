"""The topic `_schemas` as a log: one partition that is read from its beginning for ever, and appended to by the leader.

Two leaders at once cannot both write. A new leader takes the producer epoch of a transactional id that all instances share, and
writes a NOOP with it; from then on the partition's broker rejects batches of the leader before it (INVALID_PRODUCER_EPOCH). After
the NOOP is read back, the leader's state has all that was ever acknowledged. No transaction is opened: the records are plain ones,
which other registries read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from ottla.cli.client import topics
from ottla.cli.client.cluster import ClusterClient
from ottla.cli.client.consumer import Consumer
from ottla.cli.client.failures import NO_SUCH_TOPIC
from ottla.cli.client.producer import Producer
from ottla.cli.errors import CommandFailed
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.record import NewRecord
from ottla.registry.errors import RegistryError
from ottla.registry.registry_state import State
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


class Fenced(Exception):
    """Another instance is the leader by now."""


class SchemaLog:
    """The topic, replayed into `state`. Reads and writes have connections of their own: a read that waits delays no write."""

    def __init__(self, reading: ClusterClient, writing: ClusterClient, topic: str, fence: str, state: State) -> None:
        self.topic = topic
        self.state = state
        #: The offset up to which the state has the log's records.
        self.position = 0
        self._reading = reading
        self._writing = writing
        self._fence = fence
        self._producer: Producer | None = None
        self._moved = asyncio.Condition()

    async def start(self) -> None:
        """Create the topic if it is not there, and read what it holds.

        Raises:
            CommandFailed: it cannot be had, or it has more than one partition, or is not compacted.
        """
        await self._create()
        ends = await topics.list_offsets(self._writing, self.topic, topics.LATEST, [PARTITION])
        await self._replay(Consumer(self._reading, await self._first(), {(self.topic, PARTITION): ends[PARTITION]}))
        self.position = max(self.position, ends[PARTITION])

    async def follow(self) -> None:
        """Read for ever. While the cluster cannot be reached it is tried again."""
        while True:
            try:
                await self._replay(Consumer(self._reading, {(self.topic, PARTITION): self.position}))
            except (CommandFailed, TimeoutError) as fault:
                logger.warning("reading %s: %s; it is tried again", self.topic, fault)
                await asyncio.sleep(RETRY_S)

    async def sync(self, offset: int | None = None) -> int:
        """Wait until the state has all records before `offset`, or before the end of the log. Returns the offset.

        Raises:
            RegistryError: it takes too long.
        """
        try:
            async with asyncio.timeout(SYNC_S_MAX):
                if offset is None:
                    ends = await topics.list_offsets(self._writing, self.topic, topics.LATEST, [PARTITION])
                    offset = ends[PARTITION]
                end = offset
                async with self._moved:
                    await self._moved.wait_for(lambda: self.position >= end)
                return end
        except TimeoutError:
            raise RegistryError("timeout", "Reading the Kafka store timed out") from None
        except CommandFailed as fault:
            raise RegistryError("store", f"Error while reading the Kafka store: {fault}") from None

    async def lead(self) -> None:
        """Become the only writer, with a state that has all records.

        Raises:
            RegistryError, CommandFailed: the cluster does not answer.
            Fenced: another instance has become it meanwhile.
        """
        producer = Producer(self._writing, self.topic, transactional_id=self._fence)
        await producer.start()
        self._producer = producer
        await self.append([noop_record()])

    async def append(self, records: Sequence[Record]) -> int:
        """Write records as the leader, and wait until the state has them. Returns the offset after them.

        Raises:
            RegistryError: they may not have been written.
            Fenced: another instance is the leader, and they have not been written.
        """
        producer = self._producer
        if producer is None:
            raise Fenced
        now_ms = self._writing.world.clock.wall_ms()
        try:
            async with asyncio.timeout(SYNC_S_MAX):
                for key, value in records:
                    await producer.send(NewRecord(key, value, now_ms), PARTITION)
                await producer.flush()
        except CommandFailed as fault:
            self._producer = None
            if fault.code in FENCED:
                raise Fenced from None
            if fault.code in TOO_LARGE:
                raise RegistryError("too_large") from None
            raise RegistryError("store", f"Error while writing to the Kafka store: {fault}") from None
        except TimeoutError:
            # What is left in the producer would be sent before the records of the next write.
            self._producer = None
            raise RegistryError("timeout", "Write to the Kafka store timed out") from None
        return await self.sync()

    @property
    def is_writable(self) -> bool:
        return self._producer is not None

    def resign(self) -> None:
        self._producer = None

    # -- Reading -------------------------------------------------------------------------------------------------------

    async def _replay(self, consumer: Consumer) -> None:
        async for _, _, records, _ in consumer.fetch():
            for record in records:
                self.state.replay(record.key, record.value)
            async with self._moved:
                self.position = consumer.positions[self.topic, PARTITION]
                self._moved.notify_all()

    async def _first(self) -> dict[tuple[str, int], int]:
        first = await topics.list_offsets(self._writing, self.topic, topics.EARLIEST, [PARTITION])
        self.position = first[PARTITION]
        return {(self.topic, PARTITION): first[PARTITION]}

    async def _create(self) -> None:
        if self.topic not in await self._writing.topic_names():
            replicas = min(REPLICAS_MAX, max(1, len(self._writing.brokers)))
            try:
                await topics.create_topic(self._writing, self.topic, 1, replicas, {"cleanup.policy": "compact"})
            except CommandFailed as fault:
                if fault.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
        await self._known_partitions(self._reading)
        partitions = await self._known_partitions(self._writing)
        if len(partitions) != 1:
            raise CommandFailed(f"topic {self.topic} has {len(partitions)} partitions", "a registry's topic has one")

    async def _known_partitions(self, cluster: ClusterClient) -> list[int]:
        """Returns the topic's partitions when the broker knows them: it may get the metadata of a new topic a little later than others."""
        until_ms = cluster.world.clock.mono_ms() + CREATE_MS_MAX
        while True:
            try:
                return await cluster.partitions(self.topic)
            except CommandFailed as fault:
                if fault.code not in NO_SUCH_TOPIC or cluster.world.clock.mono_ms() > until_ms:
                    raise
            await asyncio.sleep(LOOK_AGAIN_S)
