"""Writes dead letters of share groups into the groups' dead-letter topics (KIP-1191).

    round       the next letters that fit into one batch, with copies of their records if the group asks for them
    attempt     look at the settings and the topic as they are now; create the topic, or produce the batch with acks=all
    retry       what may pass (no leader, a lost connection, too few replicas), after a pause that doubles
    end         all letters are committed, or the rest has failed for good: both are `done`, as in Kafka, because a record
                that can have no dead letter must not hold the share partition for ever

The partition of the topic is that of the record, modulo the number of partitions. It is produced to by its leader: here, or through
the channel to its broker. A response that was lost is followed by a second copy of the letters: they are there at least once.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ottla.broker.cluster.broker_channels import BrokerChannels
from ottla.broker.cluster.controller_channel import ControllerChannel
from ottla.broker.configs import BrokerConfigs
from ottla.broker.metadata_cache import NO_LEADER, MetadataCache
from ottla.broker.replication.delayed_produce import DelayedProduce
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.replicas import Replicas
from ottla.broker.share.counts import ShareCounts
from ottla.broker.share.dead_letter import (
    RECORDS_A_BATCH_MAX,
    Letter,
    QueueTopic,
    Source,
    batch_of,
    copies_from,
    letters_of,
    why_unusable,
)
from ottla.broker.share.group_settings import GroupSettings
from ottla.broker.share.in_flight import Run
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records.record import Record
from ottla.server.clock import pause
from ottla.server.config.topic import TOPIC_CONFIGS
from ottla.server.timer_wheel import TimerWheel
from ottla.server.world import World
from ottla.storage.errors import StorageFailure

log = logging.getLogger(__name__)

ACKS_ALL = -1
REQUEST_TIMEOUT_MS = 30_000
#: Attempts of one batch. They take half a minute, longer than a broker's session and an election; Kafka makes 5 in 15 s.
ATTEMPTS_MAX = 9
RETRY_MS, RETRY_MS_MAX = 100, 30_000
#: What is read for the copies of one batch, and by one read of the log.
COPY_BYTES_MAX = 1 << 20
READ_BYTES = 1 << 16
IS_ENABLED = "errors.deadletterqueue.group.enable"
#: Kafka creates the topic so, with the controller's defaults for all the rest. Letters have the time at which they are written.
TOPIC_CONFIG = {IS_ENABLED: "true", "message.timestamp.type": "CreateTime"}
BY_DEFAULT = -1
#: The topic may have been created by another broker, or be in the metadata soon.
CREATED = frozenset({ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS})


class Queue(NamedTuple):
    """The partition of a dead-letter topic that gets the letters."""

    topic: str
    topic_id: bytes
    partition: int
    max_bytes: int


class DeadLetterQueue:
    """Dead letters of the share partitions that this broker leads."""

    def __init__(
        self,
        world: World,
        configs: BrokerConfigs,
        metadata: MetadataCache,
        replicas: Replicas,
        channels: BrokerChannels,
        controller: ControllerChannel,
        wheel: TimerWheel,
    ) -> None:
        self.counts = ShareCounts()
        self._world = world
        self._configs = configs
        self._metadata = metadata
        self._replicas = replicas
        self._channels = channels
        self._controller = controller
        self._wheel = wheel

    def write(
        self,
        group_id: str,
        partition: Partition,
        runs: Sequence[Run],
        settings: Callable[[], GroupSettings],
        done: Callable[[], None],
    ) -> None:
        """Dead letters of these records of `partition`; `done` in a later turn of the loop."""
        letters = list(letters_of(runs))
        source = Source(group_id, partition.topic, partition.index)

        async def bury() -> None:
            try:
                await self._write(source, partition, letters, settings)
            except KafkaError as error:
                self.counts.dead_letter_failures[group_id] += 1
                log.error(
                    "No dead letters of share group %s for %s from offset %d on: %s",
                    group_id,
                    partition,
                    letters[0].offset,
                    error,
                )
            except Exception:
                self.counts.dead_letter_failures[group_id] += 1
                log.exception("Dead letters of share group %s for %s have failed", group_id, partition)
            done()

        self._world.spawn(bury(), f"dead letters of {group_id} for {partition}")

    async def _write(
        self,
        source: Source,
        partition: Partition,
        letters: list[Letter],
        settings: Callable[[], GroupSettings],
    ) -> None:
        """Raises KafkaError: the letters that are left in the list have failed for good."""
        attempts = 0
        copies: Mapping[int, Record] = {}
        tried = 0
        while letters:
            now = settings()
            try:
                queue = await self._queue(now.dead_letter_topic, source.partition)
                if not tried:
                    tried = min(len(letters), RECORDS_A_BATCH_MAX)
                    if now.copies_records:
                        copies, tried = await self._copies(partition, letters[:tried], queue.max_bytes)
                batch, count = batch_of(source, letters[:tried], copies, queue.max_bytes, self._world.clock.wall_ms())
                self.counts.dead_letter_requests[source.group_id] += 1
                await self._produce(queue, batch)
            except KafkaError as error:
                attempts += 1
                if not error.code.retriable or attempts >= ATTEMPTS_MAX:
                    raise
                log.info("Dead letters of share group %s, again: %s", source.group_id, error)
                await pause(self._world.clock, min(RETRY_MS << (attempts - 1), RETRY_MS_MAX))
                continue
            self.counts.dead_letters[source.group_id] += count
            del letters[:count]
            attempts = tried = 0
            copies = {}

    # -- The topic ---------------------------------------------------------------------------------------------------

    async def _queue(self, name: str, partition: int) -> Queue:
        """Raises KafkaError: INVALID_CONFIG if the topic cannot have dead letters; others where it is created, or not known yet."""
        image = self._metadata.image
        topic = image.topics.by_name(name)
        own = image.configs.for_topic(name)
        why = why_unusable(
            QueueTopic(
                name,
                None if topic is None else TOPIC_CONFIGS[IS_ENABLED].parse(own.get(IS_ENABLED, "false")),
                self._configs["errors.deadletterqueue.topic.name.prefix"],
                self._configs["errors.deadletterqueue.auto.create.topics.enable"],
            )
        )
        if why is not None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, why)
        if topic is None:
            await self._create(name)
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} has just been created")
        return Queue(name, topic.id, partition % len(topic.partitions), self._configs.for_log(own).max_message_bytes)

    async def _create(self, name: str) -> None:
        configs = [CreatableTopicConfig(name=key, value=value) for key, value in TOPIC_CONFIG.items()]
        wanted = CreatableTopic(name=name, num_partitions=BY_DEFAULT, replication_factor=BY_DEFAULT, configs=configs)
        response = await self._controller.request(
            CreateTopicsRequest(topics=[wanted], timeout_ms=REQUEST_TIMEOUT_MS), REQUEST_TIMEOUT_MS
        )
        for result in response.topics:
            if result.error_code not in CREATED:
                raise KafkaError(ErrorCode(result.error_code), result.error_message)

    # -- Copies of the records ---------------------------------------------------------------------------------------

    async def _copies(
        self, partition: Partition, letters: Sequence[Letter], max_bytes: int
    ) -> tuple[dict[int, Record], int]:
        """Copies of the first records, as many as may be read, and how many those are. What the log does not have is left out."""
        offsets = [letter.offset for letter in letters]
        found: dict[int, Record] = {}
        tried, left = 0, COPY_BYTES_MAX
        while tried < len(offsets) and left > 0:
            end = -1
            try:
                log_ = partition.local_log(-1, require_leader=True)
                data = bytes(log_.read(offsets[tried], max_bytes=min(left, READ_BYTES)).records)
                left -= len(data)
                records, end = await self._world.workers.run(copies_from, data, offsets, max_bytes)
                found |= records
            except (KafkaError, StorageFailure) as error:
                log.info("No copy of offset %d of %s: %s", offsets[tried], partition, error)
            tried = max(tried + 1, bisect_left(offsets, end))
        return found, tried

    # -- Producing ---------------------------------------------------------------------------------------------------

    async def _produce(self, queue: Queue, batch: bytes) -> None:
        """Raises KafkaError unless the batch is committed."""
        leader, _ = self._metadata.leader_and_epoch(queue.topic, queue.partition)
        if leader == NO_LEADER:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
        if leader == self._metadata.node_id:
            error = await self._append(queue, batch)
        else:
            error = _error_of(await self._channels.request(leader, _request(queue, batch)))
        if error:
            raise KafkaError(error)

    async def _append(self, queue: Queue, batch: bytes) -> ErrorCode:
        partition = self._replicas.lookup(queue.topic, queue.topic_id, queue.partition)
        try:
            appended = partition.append(batch, ACKS_ALL, self._world.clock.wall_ms())
        except StorageFailure as failure:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure)) from failure
        errors: list[ErrorCode] = []
        committed = asyncio.Event()
        DelayedProduce(
            [(partition.when_committed, appended.last_offset, errors.append)],
            REQUEST_TIMEOUT_MS,
            self._wheel,
            committed.set,
        )
        await committed.wait()
        return errors[0] if errors else ErrorCode.NONE


def _request(queue: Queue, batch: bytes) -> ProduceRequest:
    data = TopicProduceData(queue.topic, queue.topic_id, [PartitionProduceData(queue.partition, batch)])
    return ProduceRequest(acks=ACKS_ALL, timeout_ms=REQUEST_TIMEOUT_MS, topic_data=[data])


def _error_of(response: Any) -> ErrorCode:
    for topic in response.responses:
        for partition in topic.partition_responses:
            return ErrorCode(partition.error_code)
    return ErrorCode.UNKNOWN_SERVER_ERROR
