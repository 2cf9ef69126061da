"""Writes dead letters of share groups into the groups' dead-letter topics (KIP-1191).

    round       the next letters that fit into one batch, with copies of their records if the group asks for them
    attempt     look at the settings and the topic as they are now; create the topic, or produce the batch with acks=all
    retry temporary errors (no leader, a lost connection, too few replicas), after a pause that doubles
    end         all letters are committed, or the rest has failed for good: both are `done`, as in Kafka, because a record
                that can have no dead letter must not hold the share partition for ever

The partition of the topic is that of the record, modulo the number of partitions. The letters are produced to its leader: here,
or through the channel to its broker. A response that was lost is followed by a second copy of the letters: they are there at
least once.

A dead letter has headers that say where its record is and why it was given up. Where the group asks for copies it also has the
record's key, value and own headers, which come first: of two headers of one name, clients take the last.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import NamedTuple

from ottla.broker.cluster.channels import ControllerChannel
from ottla.broker.configs import BrokerConfigs
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.replication.committed_write import CommittedWrites
from ottla.broker.replication.partition import Partition
from ottla.broker.share.counts import ShareCounts
from ottla.broker.share.group_settings import ShareGroupSettings
from ottla.broker.share.in_flight import Run
from ottla.broker.share.remote_records import TieredReads
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.records.batch import HEADER_BYTES, iter_batches
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.record import NewRecord, Record, RecordHeaders, encode_record
from ottla.protocol.slotted import entity
from ottla.server.clock import pause
from ottla.server.config.resource_configs import TOPIC_CONFIGS
from ottla.server.world import World
from ottla.storage.errors import StorageFailure

REJECTED = "Offset rejected by client."
DELIVERIES_USED_UP = "Offset delivery count exceeded the threshold."
#: Dead letters of one batch. A turn of the event loop makes one batch.
RECORDS_A_BATCH_MAX = 500
INTERNAL_PREFIX = "__"


class DeadLetterSource(NamedTuple):
    """The origin of the records of some dead letters.

    `leader_epoch` is the epoch in which they were given up. In a later epoch the log may have other records at their offsets,
    and the leader of that epoch has the letters written again.
    """

    group_id: str
    topic: str
    partition: int
    leader_epoch: int


class Letter(NamedTuple):
    """A record that gets a dead letter."""

    offset: int
    delivery_count: int
    reason: str


class QueueTopic(NamedTuple):
    """A topic that a group names for its dead letters. `is_enabled`: errors.deadletterqueue.group.enable; None: there is no topic."""

    name: str
    is_enabled: bool | None
    prefix: str
    is_auto_created: bool


def letters_of(runs: Iterable[Run]) -> Iterator[Letter]:
    """Return the dead letters in the order of their offsets."""
    for run in sorted(runs, key=lambda run: run.first):
        reason = REJECTED if run.is_rejected else DELIVERIES_USED_UP
        for offset in range(run.first, run.last + 1):
            yield Letter(offset, run.count, reason)


def why_unusable(topic: QueueTopic) -> str | None:
    """Return which of Kafka's rules the topic breaks, in Kafka's order; None: dead letters can be written, perhaps once it is created."""
    if not topic.name:
        return "the group names no dead-letter topic any more"
    if topic.name.startswith(INTERNAL_PREFIX):
        return f"{topic.name} begins with {INTERNAL_PREFIX}"
    if topic.is_enabled is False:
        return f"{topic.name} has no errors.deadletterqueue.group.enable"
    if not topic.name.startswith(topic.prefix):
        return f"{topic.name} does not begin with errors.deadletterqueue.topic.name.prefix, which is {topic.prefix}"
    if topic.is_enabled is None and not topic.is_auto_created:
        return f"{topic.name} does not exist, and errors.deadletterqueue.auto.create.topics.enable is false"
    return None


def headers(source: DeadLetterSource, letter: Letter) -> RecordHeaders:
    return (
        ("__dlq.errors.topic", source.topic.encode()),
        ("__dlq.errors.partition", b"%d" % source.partition),
        ("__dlq.errors.offset", b"%d" % letter.offset),
        ("__dlq.errors.group", source.group_id.encode()),
        ("__dlq.errors.delivery.count", b"%d" % letter.delivery_count),
        ("__dlq.errors.message", letter.reason.encode()),
    )


def batch_of(
    source: DeadLetterSource, letters: Sequence[Letter], copies: Mapping[int, Record], max_bytes: int, now_ms: int
) -> tuple[bytes, int]:
    """Return one batch of at most `max_bytes`, and how many of the letters it has; at least one, whatever its size."""
    rows: list[NewRecord] = []
    size = HEADER_BYTES
    for letter in letters[:RECORDS_A_BATCH_MAX]:
        copy = copies.get(letter.offset)
        row = (
            NewRecord(None, None, now_ms, headers(source, letter))
            if copy is None
            else NewRecord(copy.key, copy.value, now_ms, (*copy.headers, *headers(source, letter)))
        )
        size += len(encode_record(len(rows), 0, row.key, row.value, row.headers))
        if rows and size > max_bytes:
            break
        rows.append(row)
    return build_batch(rows), len(rows)


def copies_from(data: bytes, offsets: Sequence[int], max_bytes: int) -> tuple[dict[int, Record], int]:
    """Return the records with these ascending offsets in complete batches, and the offset after the last batch (-1: there is
    none).

    A batch that is damaged, or that takes more than `max_bytes` in memory, gives no record.
    """
    found: dict[int, Record] = {}
    end = -1
    for batch in iter_batches(data):
        end = batch.next_offset
        index = bisect_left(offsets, batch.base_offset)
        if batch.is_control or index == len(offsets) or offsets[index] > batch.last_offset:
            continue
        wanted = frozenset(offsets[index : bisect_right(offsets, batch.last_offset)])
        try:
            found |= {row.offset: row for row in batch.iter_records(max_bytes=max_bytes) if row.offset in wanted}
        except KafkaError:
            continue
    return found, end


log = logging.getLogger(__name__)

ACKS_ALL = -1
REQUEST_TIMEOUT_MS = 30_000
#: Attempts of one batch. They take half a minute, longer than a broker's session and an election; Kafka makes 5 in 15 s.
ATTEMPTS_MAX = 9
RETRY_MS, RETRY_MS_MAX = 100, 30_000
#: The records that are read for the copies of one batch, and by one read of the log.
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


@entity
class DeadLetterQueue:
    """Dead letters of the share partitions that this broker leads."""

    world: World
    configs: BrokerConfigs
    metadata: MetadataCache
    controller: ControllerChannel
    writes: CommittedWrites
    counts: ShareCounts = field(default_factory=ShareCounts)
    #: Reads of what is in remote storage alone, where it is on.
    remote_reads: TieredReads | None = None

    def write(
        self,
        group_id: str,
        partition: Partition,
        runs: Sequence[Run],
        settings: Callable[[], ShareGroupSettings],
        done: Callable[[], None],
    ) -> None:
        """Dead letters of these records of `partition`; `done` in a later turn of the loop."""
        letters = list(letters_of(runs))
        source = DeadLetterSource(group_id, partition.topic, partition.index, partition.leader_epoch)

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

        self.world.spawn(bury(), f"dead letters of {group_id} for {partition}")

    async def _write(
        self,
        source: DeadLetterSource,
        partition: Partition,
        letters: list[Letter],
        settings: Callable[[], ShareGroupSettings],
    ) -> None:
        """Produce the letters, and remove them from the list. Raise KafkaError if those that are left have failed for good."""
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
                        epoch = source.leader_epoch
                        copies, tried = await self._copies(partition, epoch, letters[:tried], queue.max_bytes)
                batch, count = batch_of(source, letters[:tried], copies, queue.max_bytes, self.world.clock.wall_ms())
                self.counts.dead_letter_requests[source.group_id] += 1
                await self.writes.write(queue.topic, queue.topic_id, queue.partition, batch)
            except KafkaError as error:
                attempts += 1
                if not error.code.retriable or attempts >= ATTEMPTS_MAX:
                    raise
                log.info("Dead letters of share group %s, again: %s", source.group_id, error)
                await pause(self.world.clock, min(RETRY_MS << (attempts - 1), RETRY_MS_MAX))
                continue
            self.counts.dead_letters[source.group_id] += count
            del letters[:count]
            attempts = tried = 0
            copies = {}

    # -- The topic ---------------------------------------------------------------------------------------------------

    async def _queue(self, name: str, partition: int) -> Queue:
        """Return the queue of the topic's partition. Raise KafkaError: INVALID_CONFIG if the topic cannot have dead letters,
        another error while it is created or not known yet.
        """
        image = self.metadata.image
        topic = image.topics.by_name(name)
        own = image.configs.for_topic(name)
        why = why_unusable(
            QueueTopic(
                name,
                None if topic is None else TOPIC_CONFIGS[IS_ENABLED].parse(own.get(IS_ENABLED, "false")),
                self.configs["errors.deadletterqueue.topic.name.prefix"],
                self.configs["errors.deadletterqueue.auto.create.topics.enable"],
            )
        )
        if why is not None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, why)
        if topic is None:
            await self._create(name)
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name} has just been created")
        return Queue(name, topic.id, partition % len(topic.partitions), self.configs.for_log(own).max_message_bytes)

    async def _create(self, name: str) -> None:
        configs = [CreatableTopicConfig(name=key, value=value) for key, value in TOPIC_CONFIG.items()]
        wanted = CreatableTopic(name=name, num_partitions=BY_DEFAULT, replication_factor=BY_DEFAULT, configs=configs)
        response = await self.controller.request(
            CreateTopicsRequest(topics=[wanted], timeout_ms=REQUEST_TIMEOUT_MS), REQUEST_TIMEOUT_MS
        )
        for result in response.topics:
            if result.error_code not in CREATED:
                raise KafkaError(ErrorCode(result.error_code), result.error_message)

    # -- Copies of the records ---------------------------------------------------------------------------------------

    async def _copies(
        self, partition: Partition, leader_epoch: int, letters: Sequence[Letter], max_bytes: int
    ) -> tuple[dict[int, Record], int]:
        """Return copies of the first records, as many as may be read, and how many letters these are for. A record that is gone has no copy."""
        offsets = [letter.offset for letter in letters]
        found: dict[int, Record] = {}
        tried, left = 0, COPY_BYTES_MAX
        while tried < len(offsets) and left > 0:
            end = -1
            try:
                data = await self._read(partition, leader_epoch, offsets[tried], min(left, READ_BYTES))
                left -= len(data)
                records, end = await self.world.workers.run(copies_from, data, offsets, max_bytes)
                found |= records
            except (KafkaError, StorageFailure) as error:
                log.info("No copy of offset %d of %s: %s", offsets[tried], partition, error)
            tried = max(tried + 1, bisect_left(offsets, end))
        return found, tried

    async def _read(self, partition: Partition, leader_epoch: int, offset: int, max_bytes: int) -> bytes:
        """Return batches from the one with `offset` on, of the log or of remote storage.

        Raises:
            KafkaError: the record is gone, or this broker does not lead in that epoch; or the store does not answer.
            StorageFailure: the disk fails.
        """
        for _ in range(ATTEMPTS_MAX):
            own = partition.local_log(leader_epoch, require_leader=True)
            if self.remote_reads is None or not own.log_start_offset <= offset < own.local_start_offset:
                return bytes(own.read(offset, max_bytes=max_bytes).records)
            found = await self.remote_reads.read(partition, own, offset, max_bytes, read_committed=False)
            if found.records:  # there are none while the quota of reads is used up, for which the read has waited
                return bytes(found.records)
        raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
