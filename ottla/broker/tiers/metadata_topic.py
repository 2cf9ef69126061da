"""The topic `__remote_log_metadata`, as one broker reads and writes it (KIP-405).

Each broker follows the partitions of the topic that its own replicas need, and those that it leads: it replays their committed
records, from the topic's start. Its own records take effect only by that replay, too. The leader of a partition of the topic
may be another broker, so records are produced to it and fetched from it as a client would.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ottla.broker.cluster.channels import BrokerChannels, ControllerChannel
from ottla.broker.configs import BrokerConfigs
from ottla.broker.metadata_cache import NO_LEADER, MetadataCache
from ottla.broker.replication.committed_write import CommittedWrites
from ottla.broker.replication.replicas import Replicas
from ottla.broker.tiers.remote_segments import (
    RemoteSegment,
    RemoteSegments,
    RemoteState,
    TieredPartition,
    changed,
    place_of,
    started,
)
from ottla.controller.metadata.topic_names import REMOTE_LOG_METADATA_TOPIC as TOPIC
from ottla.protocol.errors import ErrorCode, KafkaError, ProtocolError
from ottla.protocol.internal_topics.remote_log_records import (
    RemoteLogRecord,
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    decode_remote_log_record,
    encode_remote_log_record,
    metadata_partition,
)
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.records.batch import iter_batches
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.record import NewRecord
from ottla.server.clock import pause
from ottla.server.world import World
from ottla.storage.errors import StorageFailure

log = logging.getLogger(__name__)

#: Names of properties of Kafka's TopicBasedRemoteLogMetadataManager.
PARTITIONS, FACTOR = (
    "rlmm.config.remote.log.metadata.topic.num.partitions",
    "rlmm.config.remote.log.metadata.topic.replication.factor",
)
#: The topic's configurations that a property of the node says, and their defaults. With fewer than two replicas in sync nothing is copied: the
#: record of a segment that one disk alone has may be lost with it, and the segment has left the log.
OF_PROPERTIES = {
    "min.insync.replicas": ("rlmm.config.remote.log.metadata.topic.min.isr", "2"),
    "retention.ms": ("rlmm.config.remote.log.metadata.topic.retention.ms", "-1"),
}
TOPIC_CONFIG = {"cleanup.policy": "delete", "retention.bytes": "-1", "remote.storage.enable": "false"}
REQUEST_TIMEOUT_MS = 30_000
#: Records of one turn of the loop: 250 segments take 10 ms.
READ_BYTES = 1 << 16
#: The time that a read waits for new records, and the delay of the next read after a failure.
WAIT_MS, RETRY_MS = 500, 200
CREATED = frozenset({ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS})


class _Batches(NamedTuple):
    data: bytes
    high_watermark: int
    log_start: int
    #: The offset that was asked for is not in the log.
    is_elsewhere: bool = False


class _Followed:
    """One partition of the topic, as far as it has been replayed."""

    def __init__(self) -> None:
        #: Where the records began, and up to where they have been replayed.
        self.began = self.offset = 0
        self.is_loaded = False
        self.segments: dict[tuple[bytes, int], RemoteSegments] = {}
        self.places: dict[tuple[bytes, int], TieredPartition] = {}
        self.news = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def forget(self, offset: int) -> None:
        self.began = self.offset = offset
        self.is_loaded = False
        self.segments.clear()
        self.places.clear()


class MetadataTopic:
    """The topic's partitions that this broker follows."""

    def __init__(
        self,
        world: World,
        configs: BrokerConfigs,
        metadata: MetadataCache,
        replicas: Replicas,
        channels: BrokerChannels,
        controller: ControllerChannel,
        writes: CommittedWrites,
    ) -> None:
        self._world, self._configs, self._metadata, self._replicas = world, configs, metadata, replicas
        self._channels, self._controller, self._writes = channels, controller, writes
        self._followed: dict[int, _Followed] = {}
        #: Called after records have been replayed.
        self.on_change: Callable[[], None] = lambda: None

    @property
    def count(self) -> int:
        """Return the number of the topic's partitions, 0 before it is there."""
        topic = self._metadata.image.topics.by_name(TOPIC)
        return 0 if topic is None else len(topic.partitions)

    def segments(self, topic_id: bytes, partition: int) -> RemoteSegments | None:
        """Return a partition's remote segments; None as long as the topic has not been read to its end."""
        count = self.count
        followed = self._followed.get(metadata_partition(topic_id, partition, count)) if count else None
        if followed is None or not followed.is_loaded:
            return None
        found = followed.segments.get((topic_id, partition))
        return RemoteSegments() if found is None else found

    def led_places(self) -> list[tuple[TieredPartition, RemoteSegments]]:
        """Return the partitions whose records are in partitions of the topic that this broker leads."""
        found: list[tuple[TieredPartition, RemoteSegments]] = []
        for index, followed in self._followed.items():
            if followed.is_loaded and self._metadata.leader_and_epoch(TOPIC, index)[0] == self._metadata.node_id:
                found += [(place, followed.segments[key]) for key, place in followed.places.items()]
        return found

    def led_segments(self, place: TieredPartition) -> RemoteSegments | None:
        """Return a partition's remote segments where this broker leads their records, and has read them from the first one on."""
        count = self.count
        index = metadata_partition(place.topic_id, place.partition, count) if count else -1
        followed = self._followed.get(index)
        if (
            followed is None
            or followed.began
            or self._metadata.leader_and_epoch(TOPIC, index)[0] != self._metadata.node_id
        ):
            return None
        return self.segments(place.topic_id, place.partition)

    async def follow(self, wanted: Iterable[tuple[bytes, int]]) -> None:
        """Follow the partitions of the topic that these partitions need, and those led here. Make the topic if it is not there.

        Raises:
            KafkaError: the topic cannot be made, or is not known yet.
        """
        keys = list(wanted)
        count = self.count
        if not count:
            if keys:
                await self._create()
            return
        needed = {metadata_partition(*key, count) for key in keys}
        needed |= {
            each for each in range(count) if self._metadata.leader_and_epoch(TOPIC, each)[0] == self._metadata.node_id
        }
        for index in self._followed.keys() - needed:
            self._drop(index)
        for index in needed - self._followed.keys():
            followed = self._followed[index] = _Followed()
            followed.task = self._world.spawn(self._run(index, followed), f"{TOPIC}-{index}")

    def close(self) -> None:
        for index in list(self._followed):
            self._drop(index)

    def _drop(self, index: int) -> None:
        task = self._followed.pop(index).task
        if task is not None:
            task.cancel()

    async def publish(self, place: TieredPartition, *records: RemoteLogRecord) -> None:
        """Return once the records, which are one batch, are committed and replayed here.

        Raises:
            KafkaError: they are not committed, or not in time; they may be later.
        """
        count = self.count
        index = metadata_partition(place.topic_id, place.partition, count) if count else -1
        followed = self._followed.get(index)
        topic = self._metadata.image.topics.by_name(TOPIC)
        if followed is None or topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{TOPIC} is not followed yet")
        now_ms = self._world.clock.wall_ms()
        batch = build_batch([NewRecord(None, encode_remote_log_record(each), now_ms) for each in records])
        offset = await self._writes.write(TOPIC, topic.id, index, batch)
        deadline_ms = self._world.clock.mono_ms() + REQUEST_TIMEOUT_MS
        while followed.offset <= offset:
            if self._world.clock.mono_ms() > deadline_ms or self._followed.get(index) is not followed:
                raise KafkaError(
                    ErrorCode.REQUEST_TIMED_OUT, f"offset {offset} of {TOPIC}-{index} was not read in time"
                )
            followed.news.set()
            await pause(self._world.clock, 1)

    async def catch_up(self, place: TieredPartition) -> None:
        """Return once all is replayed here that was committed before, by a barrier: records of a segment that is nowhere.

        Raises:
            KafkaError: as `publish`.
        """
        now_ms, node_id = self._world.clock.wall_ms(), self._metadata.node_id
        nowhere = self._world.rng.getrandbits(128).to_bytes(16, "big")
        segment = RemoteSegment(nowhere, 0, 0, 0, -1, ((0, 0),), node_id, now_ms)
        states = RemoteState.DELETE_STARTED, RemoteState.DELETE_FINISHED
        await self.publish(
            place, started(place, segment), *(changed(place, nowhere, state, node_id, now_ms) for state in states)
        )

    # -- Reading -----------------------------------------------------------------------------------------------------

    async def _run(self, index: int, followed: _Followed) -> None:
        while True:
            try:
                await self._read(index, followed)
            except (KafkaError, StorageFailure) as fault:
                log.info("%s-%d cannot be read now: %s", TOPIC, index, fault)
                await pause(self._world.clock, RETRY_MS)
            except Exception:
                log.exception("%s-%d cannot be read", TOPIC, index)
                await pause(self._world.clock, REQUEST_TIMEOUT_MS)

    async def _read(self, index: int, followed: _Followed) -> None:
        offset = followed.offset
        batches = await self._fetch(index, offset)
        if batches.is_elsewhere:
            log.warning(
                "%s-%d is read again from offset %d on: %d is not in it", TOPIC, index, batches.log_start, offset
            )
            followed.forget(batches.log_start)
            return
        self._replay(followed, batches.data)
        if followed.offset >= batches.high_watermark and not followed.is_loaded:
            followed.is_loaded = True
            self.on_change()
        if not batches.data:
            await self._wait(followed)
        else:
            self.on_change()
            await pause(self._world.clock, 0)  # the next slice is for another turn of the loop

    async def _wait(self, followed: _Followed) -> None:
        """Wait until `publish` has written, for WAIT_MS at most. A fetch from another broker needs no such wait, because it
        waits at that broker.
        """
        timer = self._world.clock.call_later(WAIT_MS, followed.news.set)
        await followed.news.wait()
        followed.news.clear()
        timer.cancel()

    def _replay(self, followed: _Followed, data: bytes) -> None:
        for batch in iter_batches(data):
            if batch.last_offset < followed.offset:
                continue
            if not batch.is_control:
                for record in batch.iter_records():
                    if record.offset >= followed.offset and record.value is not None:
                        _apply(followed, record.value)
            followed.offset = batch.next_offset

    async def _fetch(self, index: int, offset: int) -> _Batches:
        leader, _ = self._metadata.leader_and_epoch(TOPIC, index)
        topic = self._metadata.image.topics.by_name(TOPIC)
        if leader == NO_LEADER or topic is None:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
        if leader == self._metadata.node_id:
            local = self._replicas.lookup(TOPIC, topic.id, index).local_log(-1, require_leader=True)
            high_watermark = local.high_watermark
            data = b""
            is_elsewhere = not local.log_start_offset <= offset <= local.log_end_offset
            if not is_elsewhere and offset < high_watermark:
                data = bytes(local.read(offset, max_bytes=READ_BYTES, up_to_offset=high_watermark).records)
            return _Batches(data, high_watermark, local.log_start_offset, is_elsewhere)
        asked = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=READ_BYTES)
        request = FetchRequest(
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=READ_BYTES,
            topics=[FetchTopic(topic=TOPIC, topic_id=topic.id, partitions=[asked])],
        )
        response = await self._channels.request(leader, request)
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code))
        for found in response.responses:
            for part in found.partitions:
                if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    return _Batches(b"", -1, max(0, part.log_start_offset), is_elsewhere=True)
                if part.error_code:
                    raise KafkaError(ErrorCode(part.error_code))
                return _Batches(bytes(part.records or b""), part.high_watermark, part.log_start_offset)
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the answer has no partition")

    # -- The topic ---------------------------------------------------------------------------------------------------

    async def _create(self) -> None:
        static = self._configs.node.static
        values = TOPIC_CONFIG | {name: static.get(*where) for name, where in OF_PROPERTIES.items()}
        configs = [CreatableTopicConfig(name=name, value=value) for name, value in values.items()]
        wanted = CreatableTopic(
            name=TOPIC,
            num_partitions=int(static.get(PARTITIONS, "50")),
            replication_factor=int(static.get(FACTOR, "3")),
            configs=configs,
        )
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=REQUEST_TIMEOUT_MS)
        response = await self._controller.request(request, REQUEST_TIMEOUT_MS)
        for result in response.topics:
            if result.error_code not in CREATED:
                raise KafkaError(ErrorCode(result.error_code), result.error_message)


def _apply(followed: _Followed, value: bytes) -> None:
    """Replay one record. What cannot be read is left out, as in Kafka: a newer version, or another program, has written it."""
    try:
        record = decode_remote_log_record(value)
    except ProtocolError as fault:
        log.error("A record of %s cannot be read: %s", TOPIC, fault)
        return
    place = place_of(record)
    if place is None or not isinstance(record, RemoteLogSegmentMetadataRecord | RemoteLogSegmentMetadataUpdateRecord):
        return
    key = place.topic_id, place.partition
    followed.places[key] = place
    segments = followed.segments.setdefault(key, RemoteSegments())
    segments.replay(record)
    if not segments.by_id:
        del followed.segments[key], followed.places[key]
