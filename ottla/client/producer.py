"""An idempotent producer (KIP-98): batches per partition, sent to the leaders until each is acknowledged.

Lost connections, leader changes and brokers that do not answer are retried: by the sequence numbers a leader recognises batches
that it has already. One batch of a partition is in flight at a time, so that the order of its records stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ottla.client.cluster import (
    ATTEMPT_MS_MAX,
    RETRY_BACKOFF_MS,
    TRANSACTION_KEY_TYPE,
    ClusterClient,
    Leaders,
    NoConnection,
)
from ottla.client.cluster_state import directory_problems
from ottla.client.errors import ClusterError, check, code_of, failure
from ottla.client.failures import Kind
from ottla.client.idempotence import (
    BATCH_BYTES_MAX,
    BatchVerdict,
    IdempotentBatches,
    ProducerIdentity,
    SentBatch,
    produce_request,
    record_bytes,
)
from ottla.client.partitions import TopicPartition
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.produce import PartitionProduceResponse
from ottla.protocol.records.builder import partition_for_key
from ottla.protocol.records.compression import NO_COMPRESSION
from ottla.protocol.records.record import NewRecord

#: A request with a transactional id needs a transaction timeout. No transaction is opened here.
FENCE_TIMEOUT_MS = 60_000


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
        `topic_id`: records are for the topic with this id. Another topic of the same name gets none of them.
        """
        self.cluster = cluster
        self.topic = topic
        self.acknowledged = 0
        #: The number of the topic's partitions, after `start`.
        self.partitions = 0
        self._on_acknowledged = on_acknowledged
        self._transactional_id = transactional_id
        self.topic_id = topic_id
        self._leaders = Leaders(cluster, [topic])
        self._batches = IdempotentBatches(compression, batch_bytes)
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
        self._batches.identity = ProducerIdentity(response.producer_id, response.producer_epoch)

    @property
    def sent(self) -> int:
        """The number of records that `send` has taken."""
        return self._batches.added

    @property
    def unacknowledged(self) -> list[int]:
        """The numbers of the records, in the order of `send` and from 1, that are not acknowledged. They may have been written."""
        return self._batches.unacknowledged

    async def send(self, record: NewRecord, partition: int | None = None) -> None:
        """Collect the record, and send the batches when one is full. Keyless records fill one partition's batch after another."""
        count = self.partitions
        if partition is None:
            partition = self._sticky % count if record.key is None else partition_for_key(record.key, count)
        elif not 0 <= partition < count:
            raise ClusterError(
                f"topic {self.topic} has no partition {partition}", f"it has 0 to {count - 1}", Kind.WRONG
            )
        place, size = (self.topic, partition), record_bytes(record)
        if not self._batches.fits(place, size):
            await self.flush()
        self._batches.add(place, record, size)

    async def flush(self) -> None:
        """Send the collected records and wait until all of them are acknowledged.

        Raises:
            ClusterError: a leader has rejected a batch for good, or the topic was created again (UNKNOWN_TOPIC_ID). `unacknowledged` has
                the records that are left.
        """
        self._batches.seal()
        self._sticky += 1
        self.cluster.doing = f"producing to topic {self.topic}"
        while self._batches.sealed:
            if self.topic_id not in (None, self._leaders.topic_id(self.topic)):
                raise failure(f"topic {self.topic} as it was", ErrorCode.UNKNOWN_TOPIC_ID)
            by_node = self._leaders.by_node(self._batches.sealed)
            sending = (self._send(node, places) for node, places in by_node.items())
            # Wait for all of them: a rejection by one leader must not hide what another leader has acknowledged.
            outcomes = await asyncio.gather(*sending, return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome
            failed = [node for node in outcomes if isinstance(node, int)]
            if self._batches.sealed and (failed or not by_node):
                await asyncio.sleep(RETRY_BACKOFF_MS / 1000)
                await self._look_for_leaders(failed[0] if failed else None)

    async def _send(self, node: int, places: list[TopicPartition]) -> int | None:
        """Send the next batch of each of the partitions. Return the node if one of them must be sent again."""
        batches = {place: self._batches.next_batch(place) for place in places}
        topic_ids = {self.topic: self._leaders.topic_id(self.topic)}
        request = produce_request(batches, ATTEMPT_MS_MAX, topic_ids=topic_ids)
        try:
            response = await self.cluster.request(request, node, timeout_ms=2 * ATTEMPT_MS_MAX)
        except NoConnection as fault:
            self._leaders.forget(node)
            self.cluster.doing = f"producing to topic {self.topic} ({fault.cause})"
            return node
        rows = response.responses[0].partition_responses
        answers = {row.index: row for row in rows}
        results = [index in answers and self._acknowledged(answers[index]) for _, index in places]
        if any(row.error_code == ErrorCode.KAFKA_STORAGE_ERROR for row in rows):
            await self._explain_disk(node)
        return None if all(results) else node

    async def _explain_disk(self, node: int) -> None:
        """Notify once for each broker: a disk may stay full for longer than the command waits."""
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

    def _acknowledged(self, result: PartitionProduceResponse) -> bool:
        """Take the answer for the next batch of a partition. Return False if the batch must be sent again."""
        verdict, batch = self._batches.answered((self.topic, result.index), result.error_code)
        if verdict is BatchVerdict.WRITTEN:
            self.acknowledged += len(batch.records)
            if self._on_acknowledged is not None:
                self._on_acknowledged(result.index, result.base_offset, batch)
            return True
        if verdict is BatchVerdict.TOO_LARGE:
            return True
        place = f"partition {self.topic}-{result.index}"
        if verdict is BatchVerdict.AGAIN:
            code = code_of(result.error_code)
            self.cluster.doing = f"producing to {place}, which is answered {code.name} ({code.message})"
            return False
        if result.record_errors:
            first = result.record_errors[0]
            place += f", record {batch.numbers[first.batch_index]} ({first.batch_index_error_message})"
        raise failure(place, result.error_code, result.error_message)
