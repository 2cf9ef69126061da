"""The core of idempotent producers (KIP-98), without I/O: sequence numbers, batches, and what error codes mean for them.

    `ClusterProducer`      of commands, the registry and the mirror's own topics (ottla/client/producer.py)
    `BlockingProducer`     of Spark's sink, in transactions (ottla/spark/client/producer.py)
    `LaneProducer`         of the mirror, in transactions, with batches as the source has them (ottla/mirror/transaction.py)

The requests of transactions are those of clients before KIP-890's second part: brokers of all releases take them, the epoch
stays the same when a transaction ends, and an EndTxn whose response was lost can be repeated.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from ottla.client.partitions import TopicPartition, by_topic
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.compression import NO_COMPRESSION
from ottla.protocol.records.record import NewRecord

ACKS_ALL = -1
#: Well below max.message.bytes (1 MB by default), so that header and record overhead never matter.
BATCH_BYTES_MAX = 512 * 1024
#: The bytes of a record besides key, value and headers; only the estimate of a batch's size uses it.
RECORD_OVERHEAD_BYTES = 20
#: The sequence number that follows the largest int32 is 0 (KIP-98): this is how many numbers there are.
SEQUENCES = 1 << 31
INIT_VERSION, ADD_VERSION, END_VERSION = 4, 3, 3
#: Another producer with the same id has taken the next epoch; or the coordinator has, because the transaction timed out.
FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)


class ProducerIdentity(NamedTuple):
    """The producer id and epoch from InitProducerId. The order of the fields is that of requests."""

    producer_id: int = -1
    producer_epoch: int = -1


class BatchVerdict(Enum):
    """The meaning of the error code in a Produce response for the batch."""

    WRITTEN = auto()
    #: The batch has to be sent again, with the same sequence number: the leader recognises what it has.
    AGAIN = auto()
    #: The topic does not take such a large batch: its records have to be sent in two batches.
    TOO_LARGE = auto()
    FENCED = auto()
    REJECTED = auto()


def verdict_on(code: int) -> BatchVerdict:
    """Return what the error code of a Produce response means.

    With DUPLICATE_SEQUENCE_NUMBER an earlier attempt has written the batch.
    """
    if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        return BatchVerdict.WRITTEN
    if code == ErrorCode.MESSAGE_TOO_LARGE:
        return BatchVerdict.TOO_LARGE
    if code in FENCED:
        return BatchVerdict.FENCED
    return BatchVerdict.AGAIN if ErrorCode(code).retriable else BatchVerdict.REJECTED


class Sequences:
    """The next sequence number of each partition, under one producer epoch."""

    def __init__(self) -> None:
        self._next: dict[TopicPartition, int] = {}

    def take(self, place: TopicPartition, count: int) -> int:
        """Return the sequence number of the first of `count` records, which follow those before."""
        first = self._next.get(place, 0)
        self._next[place] = (first + count) % SEQUENCES
        return first


@dataclass(slots=True)
class SentBatch:
    """Records of one partition. Each has its number in the order in which all records were added, from 1."""

    records: list[NewRecord] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    size: int = 0
    sequence: int = -1

    def halves(self) -> tuple[SentBatch, SentBatch]:
        """Return two batches that together have the same records and sequence numbers."""
        middle = len(self.records) // 2
        return (
            SentBatch(self.records[:middle], self.numbers[:middle], 0, self.sequence),
            SentBatch(self.records[middle:], self.numbers[middle:], 0, (self.sequence + middle) % SEQUENCES),
        )


class IdempotentBatches:
    """Records on their way: collected, then sealed in batches with sequence numbers, until each batch is written.

    One batch of a partition is in flight at a time, so that the order of its records stays.
    """

    def __init__(
        self, compression: int = NO_COMPRESSION, batch_bytes: int = BATCH_BYTES_MAX, *, transactional: bool = False
    ) -> None:
        self.identity = ProducerIdentity()
        #: The number of records that were added.
        self.added = 0
        #: The estimated bytes of the records that are not sealed.
        self.collected_bytes = 0
        #: The sealed batches of each partition in their order. A batch is taken out once it is written.
        self.sealed: dict[TopicPartition, deque[SentBatch]] = {}
        self.collected: dict[TopicPartition, SentBatch] = {}
        self._compression = compression
        self._batch_bytes = batch_bytes
        self._transactional = transactional
        self._sequences = Sequences()

    def add(self, place: TopicPartition, record: NewRecord, size: int) -> None:
        """Collect a record of `record_bytes`. If it does not fit (`fits`), the caller has sealed and sent the batch before it."""
        batch = self.collected.get(place)
        if batch is None:
            batch = self.collected[place] = SentBatch()
        self.added += 1
        batch.records.append(record)
        batch.numbers.append(self.added)
        batch.size += size
        self.collected_bytes += size

    def fits(self, place: TopicPartition, size: int) -> bool:
        """Return whether a record of this size fits into the collected batch. Every record fits into an empty one."""
        batch = self.collected.get(place)
        return batch is None or batch.size + size <= self._batch_bytes

    def seal(self) -> None:
        """Give the collected records their sequence numbers, so that they can be sent."""
        for place, batch in self.collected.items():
            batch.sequence = self._sequences.take(place, len(batch.records))
            self.sealed.setdefault(place, deque()).append(batch)
        self.collected, self.collected_bytes = {}, 0

    def next_batch(self, place: TopicPartition) -> bytes:
        """Return the bytes of the first sealed batch of a partition. They are the same in each attempt."""
        batch = self.sealed[place][0]
        return build_batch(
            batch.records,
            compression=self._compression,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.producer_epoch,
            base_sequence=batch.sequence,
            transactional=self._transactional,
        )

    def answered(self, place: TopicPartition, code: int) -> tuple[BatchVerdict, SentBatch]:
        """Take the answer for the first sealed batch of a partition.

        Only a batch that is WRITTEN is done. One that is TOO_LARGE has been divided; if it has one record, the verdict becomes
        REJECTED.
        """
        batches, verdict = self.sealed[place], verdict_on(code)
        batch = batches[0]
        if verdict is BatchVerdict.WRITTEN:
            batches.popleft()
            if not batches:
                del self.sealed[place]
        elif verdict is BatchVerdict.TOO_LARGE:
            if len(batch.records) == 1:
                return BatchVerdict.REJECTED, batch
            batches.popleft()
            batches.extendleft(reversed(batch.halves()))
        return verdict, batch

    @property
    def unacknowledged(self) -> list[int]:
        """The numbers of the records that are not known to be written."""
        waiting = [batch for batches in self.sealed.values() for batch in batches]
        return sorted(number for batch in (*waiting, *self.collected.values()) for number in batch.numbers)


def record_bytes(record: NewRecord) -> int:
    """Return the estimated bytes of a record in its batch."""
    size = RECORD_OVERHEAD_BYTES + len(record[0] or b"") + len(record[1] or b"")
    return size + sum(len(name) + len(value or b"") for name, value in record[3]) if record[3] else size


# -- Requests --------------------------------------------------------------------------------------------------------------


def produce_request(
    batches: Mapping[TopicPartition, bytes | memoryview],
    timeout_ms: int,
    *,
    transactional_id: str | None = None,
    topic_ids: Mapping[str, bytes] | None = None,
) -> ProduceRequest:
    """Return the request with one batch of each partition, to be acknowledged by all replicas in sync."""
    topics = [
        TopicProduceData(name, partition_data=[PartitionProduceData(index, batches[name, index]) for index in indexes])
        for name, indexes in by_topic(batches).items()
    ]
    for topic in topics:
        if topic_ids is not None:
            topic.topic_id = topic_ids[topic.name]
    return ProduceRequest(transactional_id, ACKS_ALL, timeout_ms, topics)


def produced(response: ProduceResponse) -> Iterator[tuple[TopicPartition, PartitionProduceResponse]]:
    """Yield the answer of each partition from a response whose version has topic names."""
    for topic in response.responses:
        for part in topic.partition_responses:
            yield (topic.name, part.index), part


def add_partitions(
    transactional_id: str, identity: ProducerIdentity, places: Iterable[TopicPartition]
) -> AddPartitionsToTxnRequest:
    """Return the request that adds partitions to the transaction, which begins with its first ones."""
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name, indexes) for name, indexes in by_topic(places).items()],
    )


def refused_partitions(response: AddPartitionsToTxnResponse) -> list[tuple[TopicPartition, int]]:
    """Return the partitions that were not added, with the error code of each; where one is refused, the others are not attempted."""
    return [
        ((topic.name, row.partition_index), row.partition_error_code)
        for topic in response.results_by_topic_v3_and_below
        for row in topic.results_by_partition
        if row.partition_error_code not in (ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED)
    ]
