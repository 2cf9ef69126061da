"""The topic `_schemas` as a log: one partition, which all instances read from its beginning, and to which the leader appends.

Two leaders cannot both write at the same time. A new leader takes the next producer epoch of a transactional id that all
instances share, and writes a NOOP with it. From then on the partition's broker rejects batches of the former leader
(INVALID_PRODUCER_EPOCH). Once the NOOP has been read back, the leader's state has all records that were ever acknowledged. No
transaction is opened: the records are plain ones, which other registries can read.

The topic may be deleted and created again under running instances. Offsets, ids and versions of the deleted one then mean
nothing: the state begins again with the new topic's first record. Before the leader writes, it takes the next producer epoch
again, because the new partition knows none. Records that were decided for the deleted topic are not written to the new one.

An unclean leader election may cut the log of a topic: records that were read are gone, and at the next read others may have
their offsets. Whenever the partition has another leader epoch, its leader is asked where the epoch of the last record ends
(OffsetForLeaderEpoch, KIP-320). If that is before the position, the state begins again, as with a new topic.

A record that cannot be parsed is skipped, as in Confluent's registry (`RegistryState.replay`). A batch that cannot be read,
because its CRC is wrong, may have schemas whose ids would be given out again: the state stays as it was before the batch, and
nothing is written.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import NamedTuple

from ottla.client import topics
from ottla.client.cluster import ClusterClient
from ottla.client.consumer import Consumer
from ottla.client.errors import NO_SUCH_TOPIC, ClusterError, code_of, failure
from ottla.client.failures import Failure
from ottla.client.fetched import epoch_ends, recreated_texts
from ottla.client.idempotence import FENCED
from ottla.client.partitions import NO_LEADER
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
#: A broker may not know a new topic for so long, and is asked so often.
CREATE_MS_MAX, LOOK_AGAIN_S = 30_000, 0.1
TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


class LeadershipLost(Exception):
    """Another instance is the leader now."""


class LogPlace(NamedTuple):
    """An offset in the topic with this id."""

    topic_id: bytes
    offset: int

    def text(self) -> str:
        return f"{uuid_to_str(self.topic_id)}:{self.offset}"


def place_from(text: str) -> LogPlace | None:
    """Return the place in a text, or None if the text is no place."""
    topic_id, _, offset = text.partition(":")
    try:
        return LogPlace(uuid_from_str(topic_id), int(offset))
    except ValueError:
        return None


class Cut(ClusterError):
    """The log has lost records that were read before."""


class _Reader(Consumer):
    """Reads the partition from a place on.

    It knows the topic id of its position, and the leader epoch that has confirmed the position.
    """

    #: The leader epoch with which the position was last confirmed.
    confirmed = (b"", -1)

    def begin(self, topic: str, place: LogPlace) -> None:
        self.assign({(topic, PARTITION): place.offset})
        self._ids[topic, PARTITION] = place.topic_id
        self._epochs_seen.clear()

    @property
    def place(self) -> LogPlace:
        ((at, offset),) = self.positions.items()
        return LogPlace(self._ids[at], offset)

    async def _settle(self) -> None:
        """Before the next Fetch, confirm the position with the leader if its epoch is another one.

        Raises:
            Cut: the log no longer has the records before the position.
        """
        await super()._settle()
        ((at, offset),) = self.positions.items()
        leader, place = self._leaders.of(at), self.place
        if leader.node == NO_LEADER or self._is_another(at) or self.confirmed == (place.topic_id, leader.epoch):
            return
        epoch = self._epochs_seen.get(at, -1)
        if epoch >= 0:
            row = (await epoch_ends(self.cluster, self._leaders, {at: epoch})).get(at)
            if row is None:  # the leader does not answer
                return
            if row.error_code:
                if not code_of(row.error_code).retriable:
                    raise failure(f"partition {at[0]}-{PARTITION}", row.error_code)
                self._leaders.forget(leader.node)
                return
            if row.end_offset < offset:
                cause = f"the log of {at[0]} was cut below offset {offset}, as by an unclean leader election"
                raise Cut(cause, code=ErrorCode.OFFSET_OUT_OF_RANGE)
        self.confirmed = place.topic_id, leader.epoch

    async def _begin_again(self, name: str) -> None:
        before = self.place.topic_id
        await super()._begin_again(name)
        if self.place.topic_id != before:
            self._epochs_seen.clear()


class SchemaLog:
    """The topic, replayed into `state`.

    Reads and writes have separate connections, so that a waiting read does not delay a write.
    """

    def __init__(self, reading: ClusterClient, writing: ClusterClient, topic: str, fence: str) -> None:
        self.topic = topic
        self.state = RegistryState()
        #: The state has the records before this offset.
        self.place = LogPlace(b"", 0)
        self._former: set[bytes] = set()
        self._reading = reading
        self._writing = writing
        self._fence = fence
        self._reader = _Reader(reading, {})
        self._producer: ClusterProducer | None = None
        self._moved = asyncio.Condition()
        #: The reason why the next batch cannot be read.
        self._fault: KafkaError | None = None
        #: How often the state has begun again because the log was cut.
        self._cuts = 0

    @property
    def cluster_id(self) -> str:
        return self._reading.id or ""

    async def start(self) -> None:
        """Create the topic if it does not exist, and read its records.

        Raises:
            Failure: the topic cannot be created or read, or it has more than one partition.
            TimeoutError: nothing has been read for the command's time limit.
        """
        await self._create()
        end, _ = await self._end()
        self.place = LogPlace(end.topic_id, await self._first())
        self._reader.begin(self.topic, self.place)
        while not self._has(end):
            before = self.place
            async with asyncio.timeout(self._reading.timeout_ms / 1000):
                while self.place == before:
                    try:
                        await self._read()
                    except KafkaError as fault:
                        raise Failure(self._unreadable(fault), "no registry can start with this log") from None
            if self.place.topic_id != end.topic_id:  # the topic was deleted and created again in between
                end, _ = await self._end()

    async def follow(self) -> None:
        """Read for ever. If the cluster cannot be reached, try again."""
        while True:
            try:
                await self._read()
            except (Failure, KafkaError, TimeoutError) as fault:
                if isinstance(fault, Failure) and fault.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    await self._begin_again(fault)
                    continue
                if isinstance(fault, KafkaError):
                    await self._stand_still(fault)
                else:
                    logger.warning("reading %s: %s; it is tried again", self.topic, fault)
                await asyncio.sleep(RETRY_S)

    async def sync(self, place: LogPlace | None = None) -> LogPlace:
        """Wait until the state has all records before `place`, or before the end of the log. Return the place.

        Raises:
            RegistryError: it takes too long, a batch before the place cannot be read, or the topic of the place was deleted.
        """
        try:
            async with asyncio.timeout(SYNC_S_MAX):
                wanted = await self._settled_end() if place is None else place
                async with self._moved:
                    await self._moved.wait_for(
                        lambda: self._has(wanted) or wanted.topic_id in self._former or self._fault is not None
                    )
        except TimeoutError:
            raise RegistryError("timeout", "Reading the Kafka store timed out") from None
        except Failure as fault:
            raise RegistryError("store", f"Error while reading the Kafka store: {fault}") from None
        if wanted.topic_id in self._former:
            raise self._gone()
        if not self._has(wanted) and self._fault is not None:
            raise RegistryError("store", f"Error while reading the Kafka store: {self._unreadable(self._fault)}")
        return wanted

    async def lead(self) -> None:
        """Become the only writer, with a state that has all records.

        Raises:
            RegistryError: the cluster does not answer, or not in time.
            LeadershipLost: another instance has become it meanwhile.
        """
        try:
            async with asyncio.timeout(SYNC_S_MAX):
                topic_id = (await self._writing.topic(self.topic)).topic_id
                producer = ClusterProducer(self._writing, self.topic, transactional_id=self._fence, topic_id=topic_id)
                await producer.start()
        except Failure as fault:
            raise RegistryError("store", f"Error while writing to the Kafka store: {fault}") from None
        except TimeoutError:
            raise RegistryError("timeout", "Write to the Kafka store timed out") from None
        # The NOOP is for the present topic of the state.
        await self.sync(LogPlace(topic_id, 0))
        self._producer = producer
        ids = self.state.greatest_ids()
        await self.append([noop_record(ids)])
        if self.state.greatest_ids() != ids:
            # Only now has the state the last records of the former leader. Compaction keeps only the last NOOP.
            await self.append([noop_record(self.state.greatest_ids())])

    async def append(self, records: Sequence[Record]) -> LogPlace:
        """Write records as the leader to the topic of the state, and wait until the state has them.

        Return the place after them.

        Raises:
            RegistryError: they may not have been written, or the topic was created again or cut meanwhile.
            LeadershipLost: another instance is the leader, and they have not been written.
        """
        producer = self._producer
        if producer is None:
            raise LeadershipLost
        if not self.is_writable:
            raise self._gone()
        now_ms, cuts = self._writing.world.clock.wall_ms(), self._cuts
        try:
            async with asyncio.timeout(SYNC_S_MAX):
                for key, value in records:
                    await producer.send(NewRecord(key, value, now_ms), PARTITION)
                await producer.flush()
        except Failure as fault:
            self._producer = None
            if fault.code in FENCED:  # another instance has become the leader
                raise LeadershipLost from None
            if fault.code in TOO_LARGE:
                raise RegistryError("too_large") from None
            raise RegistryError("store", f"Error while writing to the Kafka store: {fault}") from None
        except TimeoutError:
            # Drop the producer: otherwise it would send the remaining records before those of the next write.
            self._producer = None
            raise RegistryError("timeout", "Write to the Kafka store timed out") from None
        end = await self.sync()
        if end.topic_id != producer.topic_id:
            raise self._gone()
        if self._cuts != cuts:
            raise RegistryError("store", f"The log of {self.topic} was cut while a record was written")
        return end

    @property
    def is_writable(self) -> bool:
        """Return whether this instance may write: it became the leader with the topic that the state has now."""
        return self._producer is not None and self._producer.topic_id == self.place.topic_id

    def resign(self) -> None:
        self._producer = None

    # -- Reading -------------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        """Take in the records of the next response, from the present topic."""
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
                self.place, self._fault = self._reader.place, None
                self._moved.notify_all()

    async def _stand_still(self, fault: KafkaError) -> None:
        """Let everything fail that waits for the state to have an unreadable batch.

        Log it once, until something else has been read.
        """
        if str(fault) != str(self._fault):
            logger.error("%s; nothing is registered until it can be read", self._unreadable(fault))
        async with self._moved:
            self._fault = fault
            self._moved.notify_all()

    def _unreadable(self, fault: KafkaError) -> str:
        return f"topic {self.topic} cannot be read at offset {self.place.offset}: {fault}"

    async def _begin_again(self, why: Failure) -> None:
        """Read the log from its start: records below the position were deleted, or the end of the log was lost.

        The partition may not know the leader's producer epoch either, so the leader takes the next epoch.
        """
        try:
            first = await self._first()
        except Failure as fault:
            logger.warning("reading %s: %s; it is tried again", self.topic, fault)
            await asyncio.sleep(RETRY_S)
            return
        logger.error("%s: all its records are read again", why)
        self.state, self._fault, self._producer = RegistryState(), None, None
        self._cuts += 1
        self.place = LogPlace(self.place.topic_id, first)
        self._reader.begin(self.topic, self.place)

    def _has(self, place: LogPlace) -> bool:
        return self.place.topic_id == place.topic_id and self.place.offset >= place.offset

    def _gone(self) -> RegistryError:
        return RegistryError("store", f"The topic {self.topic} was deleted and created again")

    async def _end(self) -> tuple[LogPlace, int]:
        """Return the end of the log and the epoch of its leader.

        The topic id is requested first: if the topic is replaced meanwhile, the place belongs to the former topic.
        """
        topic_id = (await self._writing.topic(self.topic)).topic_id
        ends = await topics.list_places(self._writing, self.topic, topics.LATEST, [PARTITION])
        offset, epoch = ends[PARTITION]
        return LogPlace(topic_id, offset), epoch

    async def _settled_end(self) -> LogPlace:
        """Return the end of the log once the state belongs to this log: the position has been confirmed with the leader of its
        epoch.
        """
        while True:
            end, epoch = await self._end()
            topic_id, confirmed = self._reader.confirmed
            if end.topic_id != self.place.topic_id or (topic_id == end.topic_id and confirmed >= epoch):
                return end
            if self._fault is not None:
                raise RegistryError("store", f"Error while reading the Kafka store: {self._unreadable(self._fault)}")
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
        """Return the topic's partitions once the broker knows them: it may get the metadata of a new topic a little later than
        others.
        """
        until_ms = cluster.world.clock.mono_ms() + CREATE_MS_MAX
        while True:
            try:
                return await cluster.partitions(self.topic)
            except Failure as fault:
                if fault.code not in NO_SUCH_TOPIC or cluster.world.clock.mono_ms() > until_ms:
                    raise
            await asyncio.sleep(LOOK_AGAIN_S)
