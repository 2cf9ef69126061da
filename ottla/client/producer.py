"""An idempotent producer (KIP-98): batches per partition, sent to the leaders until each is acknowledged.

Lost connections, leader changes and brokers that do not answer are retried: the sequence numbers of the batches let the leader
recognise what it has already. One batch of a partition is in flight at a time, so that the order of its records stays.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from ottla.client.cluster import (
    ATTEMPT_MS_MAX,
    RETRY_BACKOFF_MS,
    TRANSACTION_KEY_TYPE,
    ClusterClient,
    NoConnection,
)
from ottla.client.cluster_error import ClusterError, check, code_of, failure
from ottla.client.cluster_state import directory_problems
from ottla.client.errors import Kind
from ottla.client.leaders import Leaders
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from ottla.protocol.records.builder import build_batch, partition_for_key
from ottla.protocol.records.compression import NO_COMPRESSION
from ottla.protocol.records.record import NewRecord

ACKS_ALL = -1
# Well below max.message.bytes (1 MB by default), so that header and record overhead never matter.
BATCH_BYTES_MAX = 512 * 1024
#: The request with a transactional id needs a timeout of transactions; none is opened here.
FENCE_TIMEOUT_MS = 60_000
# The bytes of a record besides key and value; only the estimate of a batch's size uses it.
_RECORD_OVERHEAD_BYTES = 20
_SEQUENCES = 1 << 31


@dataclass(slots=True)
class SentBatch:
    """Records of one partition, with the number of each in the order of `send`, from 1."""

    records: list[NewRecord] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    size: int = 0
    sequence: int = -1

    def halves(self) -> tuple[SentBatch, SentBatch]:
        """Return two batches with the same records and sequence numbers."""
        middle = len(self.records) // 2
        return (
            SentBatch(self.records[:middle], self.numbers[:middle], 0, self.sequence),
            SentBatch(self.records[middle:], self.numbers[middle:], 0, (self.sequence + middle) % _SEQUENCES),
        )


class ClusterProducer:
    """A producer for commands. `send()` collects records, and `flush()` waits for their acknowledgements."""

    def __init__(
        self,
        cluster: ClusterClient,
        topic: str,
        *,
        compression: int = NO_COMPRESSION,
        batch_bytes: int = BATCH_BYTES_MAX,
        notify: Callable[[str], object] | None = None,
        on_acknowledged: Callable[[int, int, SentBatch], None] | None = None,
        transactional_id: str | None = None,
        topic_id: bytes | None = None,
    ) -> None:
        """Make a producer that has sent nothing.

        `notify` is called with the reason as soon as a broker's disk refuses records. The batch is repeated nevertheless.
        `on_acknowledged` gets the partition, the offset of the first record, and the batch.
        `transactional_id`: each start under it takes the next producer epoch, and the partitions reject what producers with an
        earlier one send afterwards. No transaction is opened.
        `topic_id`: what is sent is for the topic of this id. Another one of the same name gets none of it.
        """
        self.cluster = cluster
        self.topic = topic
        self.compression = compression
        self.batch_bytes = batch_bytes
        self.sent = 0
        self.acknowledged = 0
        #: How many the topic has, after `start`.
        self.partitions = 0
        self._on_acknowledged = on_acknowledged
        self._transactional_id = transactional_id
        self.topic_id = topic_id
        self._leaders = Leaders(cluster, [topic])
        self._producer_id = -1
        self._producer_epoch = -1
        self._sequences: dict[int, int] = {}
        self._collected: dict[int, SentBatch] = {}
        # What `flush` sends, in its order; a batch leaves it once it is acknowledged.
        self._unacknowledged: dict[int, deque[SentBatch]] = {}
        self._sticky = 0
        self._notify = notify
        # The brokers whose disks `notify` was called about.
        self._failed_disks: set[int] = set()

    async def start(self) -> None:
        """Look the topic up and get a producer id. A topic that does not exist is created, if the broker creates topics by itself.

        Raises:
            ClusterError: there is no such topic, or no permission.
        """
        await self._leaders.start(create=True)
        self.partitions = len(self._leaders.partitions(self.topic))

        async def ask() -> tuple[InitProducerIdResponse, int]:
            node = None
            if self._transactional_id is not None:
                node = await self.cluster.coordinator(self._transactional_id, TRANSACTION_KEY_TYPE)
            timeout_ms = 0 if self._transactional_id is None else FENCE_TIMEOUT_MS
            request = InitProducerIdRequest(self._transactional_id, timeout_ms)
            response = await self.cluster.request(request, node)
            return response, response.error_code

        self.cluster.doing = "getting a producer id"
        response, code = await self.cluster.retry(ask)
        check("producer id", code)
        self._producer_id, self._producer_epoch = response.producer_id, response.producer_epoch

    @property
    def unacknowledged(self) -> list[int]:
        """The numbers of the records, in the order of `send` and from 1, that are not acknowledged. They may have been written."""
        waiting = [batch for batches in self._unacknowledged.values() for batch in batches]
        return sorted(number for batch in (*waiting, *self._collected.values()) for number in batch.numbers)

    async def send(self, record: NewRecord, partition: int | None = None) -> None:
        """Take the record, and send batches when one is full. Keyless records fill one partition's batch after another."""
        count = self.partitions
        if partition is None:
            partition = self._sticky % count if record.key is None else partition_for_key(record.key, count)
        elif not 0 <= partition < count:
            raise ClusterError(
                f"topic {self.topic} has no partition {partition}", f"it has 0 to {count - 1}", Kind.WRONG
            )
        size = _RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
        size += sum(len(name) + len(value or b"") for name, value in record.headers)
        filled = self._collected.get(partition)
        if filled is not None and filled.size + size > self.batch_bytes:
            await self.flush()
        batch = self._collected.setdefault(partition, SentBatch())
        self.sent += 1
        batch.records.append(record)
        batch.numbers.append(self.sent)
        batch.size += size

    async def flush(self) -> None:
        """Send the collected records and wait until all of them are acknowledged.

        Raises:
            ClusterError: a leader has rejected a batch for good, or the topic was created again (UNKNOWN_TOPIC_ID). `unacknowledged` has
                the records that are left.
        """
        for index, batch in self._collected.items():
            batch.sequence = self._sequences.get(index, 0)
            self._sequences[index] = (batch.sequence + len(batch.records)) % _SEQUENCES
            self._unacknowledged.setdefault(index, deque()).append(batch)
        self._collected = {}
        self._sticky += 1
        self.cluster.doing = f"producing to topic {self.topic}"
        while self._unacknowledged:
            if self.topic_id not in (None, self._leaders.topic_id(self.topic)):
                raise failure(f"topic {self.topic} as it was", ErrorCode.UNKNOWN_TOPIC_ID)
            by_node = self._leaders.by_node((self.topic, index) for index in self._unacknowledged)
            sending = (self._send(node, [index for _, index in places]) for node, places in by_node.items())
            # All of them end first: what one leader rejects does not hide what another has acknowledged.
            outcomes = await asyncio.gather(*sending, return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome
            failed = [node for node in outcomes if isinstance(node, int)]
            if self._unacknowledged and (failed or not by_node):
                await asyncio.sleep(RETRY_BACKOFF_MS / 1000)
                await self._look_for_leaders(failed[0] if failed else None)

    async def _send(self, node: int, indexes: list[int]) -> int | None:
        """Send the next batch of each of the partitions. Return the node if one of them must be sent again."""
        try:
            response = await self.cluster.request(self._request(indexes), node, timeout_ms=2 * ATTEMPT_MS_MAX)
        except NoConnection as fault:
            self._leaders.forget(node)
            self.cluster.doing = f"producing to topic {self.topic} ({fault.cause})"
            return node
        rows = response.responses[0].partition_responses
        results = [self._acknowledged(result) for result in rows]
        if any(row.error_code == ErrorCode.KAFKA_STORAGE_ERROR for row in rows):
            await self._explain_disk(node)
        return None if all(results) else node

    async def _explain_disk(self, node: int) -> None:
        """Notify once for each broker: a disk stays full until there is room, which may be longer than the command waits."""
        if self._notify is None or node in self._failed_disks:
            return
        self._failed_disks.add(node)
        doing = self.cluster.doing
        try:
            problems = await directory_problems(self.cluster, node)
        except ClusterError:  # no permission, or the broker has ended
            problems = []
        self.cluster.doing = doing
        reason = "; ".join(problems) or ErrorCode.KAFKA_STORAGE_ERROR.message
        self._notify(f"broker {node} cannot write to topic {self.topic}: {reason}; trying again")

    async def _look_for_leaders(self, failed: int | None) -> None:
        doing = self.cluster.doing
        try:
            await self._leaders.refresh(avoid=failed)
        except NoConnection as fault:
            doing = f"producing to topic {self.topic} ({fault.cause})"
        self.cluster.doing = doing

    def _request(self, indexes: list[int]) -> ProduceRequest:
        rows = [PartitionProduceData(index=index, records=self._encoded(index)) for index in indexes]
        topic = TopicProduceData(name=self.topic, topic_id=self._leaders.topic_id(self.topic), partition_data=rows)
        return ProduceRequest(acks=ACKS_ALL, timeout_ms=ATTEMPT_MS_MAX, topic_data=[topic])

    def _encoded(self, index: int) -> bytes:
        batch = self._unacknowledged[index][0]
        return build_batch(
            batch.records,
            compression=self.compression,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=batch.sequence,
        )

    def _acknowledged(self, result: PartitionProduceResponse) -> bool:
        """Take the answer for the next batch of a partition. Return False if the batch must be sent again."""
        batches, code = self._unacknowledged[result.index], code_of(result.error_code)
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            batch = batches.popleft()
            self.acknowledged += len(batch.records)
            if self._on_acknowledged is not None:
                self._on_acknowledged(result.index, result.base_offset, batch)
            if not batches:
                del self._unacknowledged[result.index]
            return True
        if code is ErrorCode.MESSAGE_TOO_LARGE and len(batches[0].records) > 1:
            batches.extendleft(reversed(batches.popleft().halves()))
            return True
        place = f"partition {self.topic}-{result.index}"
        if code.retriable:
            self.cluster.doing = f"producing to {place}, which is answered {code.name} ({code.message})"
            return False
        if result.record_errors:
            first = result.record_errors[0]
            place += f", record {batches[0].numbers[first.batch_index]} ({first.batch_index_error_message})"
        raise failure(place, result.error_code, result.error_message)
