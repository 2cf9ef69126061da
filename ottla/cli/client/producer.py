"""Writes records: batches per partition, sent to the leaders, retried where the error passes.

Not idempotent: a retry after a lost response can write a batch twice. Fit for tools, not for exactly-once pipelines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from ottla.cli.client.cluster import RETRY_BACKOFF_MS, ClusterClient
from ottla.cli.client.failures import code_of, failure
from ottla.cli.errors import USAGE, CommandFailed
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from ottla.protocol.primitives import ZERO_UUID
from ottla.protocol.records import NewRecord, build_batch
from ottla.protocol.records.compression import NO_COMPRESSION

ACKS_ALL = -1
# Well below max.message.bytes (1 MB by default), so that header and record overhead never matter.
BATCH_BYTES_MAX = 512 * 1024
# The bytes of a record besides key and value; only the estimate of a batch's size uses it.
_RECORD_OVERHEAD_BYTES = 20
# MurmurHash2 with Kafka's seed.
_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFF_FFFF


class Producer:
    """A producer for commands. `send()` collects records, and `flush()` waits for their acknowledgements."""

    def __init__(
        self,
        cluster: ClusterClient,
        topic: str,
        *,
        compression: int = NO_COMPRESSION,
        batch_bytes: int = BATCH_BYTES_MAX,
    ) -> None:
        self.cluster = cluster
        self.topic = topic
        self.compression = compression
        self.batch_bytes = batch_bytes
        self.acknowledged = 0
        self._leaders: dict[int, int] = {}
        self._topic_id = ZERO_UUID
        self._pending: dict[int, list[NewRecord]] = {}
        self._pending_bytes: dict[int, int] = {}
        self._sticky = 0

    async def start(self) -> None:
        topic = await self.cluster.topic(self.topic)
        self._topic_id = topic.topic_id
        self._leaders = {part.partition_index: part.leader_id for part in topic.partitions}

    @property
    def partitions(self) -> int:
        """How many the topic has, after `start`."""
        return len(self._leaders)

    async def send(self, record: NewRecord, partition: int | None = None) -> None:
        """Take the record, and send batches when one is full. Keyless records fill one partition's batch after another."""
        count = len(self._leaders)
        if partition is None:
            partition = self._sticky % count if record.key is None else partition_for_key(record.key, count)
        elif partition not in self._leaders:
            raise CommandFailed(f"topic {self.topic} has no partition {partition}", f"it has 0 to {count - 1}", USAGE)
        size = _RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
        size += sum(len(name) + len(value or b"") for name, value in record.headers)
        filled = self._pending_bytes.get(partition, 0)
        if filled and filled + size > self.batch_bytes:
            await self.flush()
        self._pending.setdefault(partition, []).append(record)
        self._pending_bytes[partition] = self._pending_bytes.get(partition, 0) + size

    async def flush(self) -> None:
        """Send the pending records and wait until all of them are acknowledged."""
        pending, self._pending, self._pending_bytes = self._pending, {}, {}
        self._sticky += 1
        batches = {index: build_batch(records, compression=self.compression) for index, records in pending.items()}
        doing = f"producing to topic {self.topic}"
        while batches:
            self.cluster.doing = doing
            by_leader: dict[int, list[int]] = {}
            for index in batches:
                by_leader.setdefault(self._leaders[index], []).append(index)
            for node, indexes in by_leader.items():
                request = self._request((index, batches[index]) for index in indexes)
                for result in (await self.cluster.request(request, node)).responses[0].partition_responses:
                    if self._acknowledged(result):
                        self.acknowledged += len(pending[result.index])
                        del batches[result.index]
                    else:
                        code = code_of(result.error_code)
                        doing = f"producing to partition {self.topic}-{result.index}, which is answered {code.name} ({code.message})"
            if batches:
                self._leaders = await self.cluster.leaders(self.topic)
                self.cluster.doing = doing
                await asyncio.sleep(RETRY_BACKOFF_MS / 1000)

    def _request(self, batches: Iterable[tuple[int, bytes]]) -> ProduceRequest:
        rows = [PartitionProduceData(index=index, records=batch) for index, batch in batches]
        topic = TopicProduceData(name=self.topic, topic_id=self._topic_id, partition_data=rows)
        return ProduceRequest(acks=ACKS_ALL, timeout_ms=self.cluster.timeout_ms, topic_data=[topic])

    def _acknowledged(self, result: PartitionProduceResponse) -> bool:
        """Returns True if the partition acknowledged its batch; False if the batch must be sent again."""
        if not result.error_code:
            return True
        if code_of(result.error_code).retriable:
            return False
        place = f"partition {self.topic}-{result.index}"
        if result.record_errors:
            first = result.record_errors[0]
            place += f", record {first.batch_index} of the batch ({first.batch_index_error_message})"
        raise failure(place, result.error_code, result.error_message)


def partition_for_key(key: bytes, partitions: int) -> int:
    """Return the partition of a key, by murmur2: the one that Java's, librdkafka's ("murmur2") and kafka-python's producers choose."""
    return (murmur2(key) & 0x7FFF_FFFF) % partitions


def murmur2(data: bytes) -> int:
    """MurmurHash2, 32 bits, Kafka's seed."""
    tail = len(data) & ~3
    value = _SEED ^ len(data)
    for start in range(0, tail, 4):
        k = int.from_bytes(data[start : start + 4], "little") * _M & _MASK
        value = (value * _M & _MASK) ^ ((k ^ k >> 24) * _M & _MASK)
    if tail < len(data):
        value = (value ^ int.from_bytes(data[tail:], "little")) * _M & _MASK
    value = (value ^ value >> 13) * _M & _MASK
    return value ^ value >> 15
