"""Producers with Kafka's rules of retrying: idempotent and not, with all acknowledgements or one, pipelined or not.

A batch has one of three ends: acknowledged at an offset, given up without knowing whether it was written (info), or
never sent. An idempotent producer that gave one up goes on in its next epoch, as Kafka's does (KIP-360).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records.builder import build_batch
from ottla.server.network.client import Channel
from tests.histories import Violation
from tests.sim.clients.connection import BACKOFF_SECONDS, Client, Unreachable
from tests.sim.history import Operation, TopicPartition

#: Names of operations, by the guarantee that they have.
SEND_IDEMPOTENT, SEND_ALL, SEND_ONE = "send idempotent", "send all", "send one"
DELIVERY_SECONDS = 20.0
REQUEST_TIMEOUT_MS = 4_000
#: The leader cannot have forgotten a batch that it acknowledged. After one of these two errors, a first batch in flight proves
#: that it did.
FORGOTTEN = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
#: Kafka's producer treats its batch as written if the leader knows the batch, but not its offset.
KNOWN_DUPLICATE = ErrorCode.DUPLICATE_SEQUENCE_NUMBER


@dataclass(slots=True)
class Sending:
    """One producer's state for one partition."""

    topic: str
    partition: int
    producer_id: int = -1
    epoch: int = 0
    sequence: int = 0
    count: int = 0


@dataclass(slots=True)
class Batch:
    values: list[bytes]
    data: bytes
    operation: Operation
    attempts: int = 0
    done: bool = field(default=False)


class Producer(Client):
    """Writes to its partitions, each on its own."""

    partitions: Sequence[TopicPartition] = ()
    acks = -1
    idempotent = True
    pause_seconds = 0.5
    #: Called for every acknowledged batch with the partition and its last offset.
    on_acknowledged: Callable[[TopicPartition, int], None] = staticmethod(lambda partition, offset: None)

    async def run(self) -> None:
        await asyncio.gather(*(self._feed(Sending(*partition)) for partition in self.partitions))

    async def _feed(self, sending: Sending) -> None:
        if self.idempotent:
            await self._init(sending)
        while not self.stopping:
            await self.pause(self.pause_seconds)
            window = self.rng.choices((1, 2, 4), (6, 2, 1))[0] if self.idempotent else 1
            await self._deliver(sending, [self._batch(sending) for _ in range(window)])

    async def _init(self, sending: Sending) -> None:
        while not self.stopping:
            try:
                response = await self.ask_any(InitProducerIdRequest(transactional_id=None))
            except Unreachable:
                continue
            if response.error_code == ErrorCode.NONE:
                sending.producer_id, sending.epoch = response.producer_id, response.producer_epoch
                self.history.note(f"{self.name} is producer {sending.producer_id}")
                return
            await asyncio.sleep(BACKOFF_SECONDS)

    def _batch(self, sending: Sending) -> Batch:
        values = []
        for _ in range(self.rng.choice((1, 1, 1, 3))):
            sending.count += 1
            filler = b"." * self.rng.choice((0, 0, 40, 400))
            values.append(f"{self.name}/{sending.partition}/{sending.count}".encode() + filler)
        data = build_batch(
            [(None, value, self.world.clock.wall_ms()) for value in values],
            producer_id=sending.producer_id,
            producer_epoch=sending.epoch if self.idempotent else -1,
            base_sequence=sending.sequence if self.idempotent else -1,
        )
        sending.sequence += len(values)
        given = (sending.topic, sending.partition, [value.rstrip(b".").decode() for value in values])
        return Batch(values, data, self.history.begin(self.name, self._name(), given))

    def _name(self) -> str:
        if self.idempotent:
            return SEND_IDEMPOTENT
        return SEND_ALL if self.acks == -1 else SEND_ONE

    async def _deliver(self, sending: Sending, batches: list[Batch]) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + DELIVERY_SECONDS
        pending = batches
        while pending and loop.time() < deadline:
            leader = await self.leader_of(sending.topic, sending.partition)
            topic_id = self.topic_ids.get(sending.topic)
            if leader is None or topic_id is None:
                await asyncio.sleep(BACKOFF_SECONDS)
                continue
            answers = await asyncio.gather(
                *(self._send(sending, batch, leader, topic_id, batch is pending[0]) for batch in pending)
            )
            for position, (batch, answer) in enumerate(zip(pending, answers, strict=True)):
                self._judge(sending, batch, answer, is_first=position == 0)
            pending = [batch for batch in pending if not batch.done]
            if pending:
                await asyncio.sleep(BACKOFF_SECONDS)
                await self.refresh([sending.topic])
        for batch in pending:
            self.history.end(batch.operation, "info", "given up")
        if pending and self.idempotent:
            sending.epoch += 1
            sending.sequence = 0

    async def _send(self, sending: Sending, batch: Batch, leader: int, topic_id: bytes, is_first: bool) -> Any:
        """The partition's answer, or None."""
        batch.attempts += 1
        row = PartitionProduceData(index=sending.partition, records=batch.data)
        topic = TopicProduceData(name=sending.topic, topic_id=topic_id, partition_data=[row])
        request = ProduceRequest(acks=self.acks, timeout_ms=REQUEST_TIMEOUT_MS - 500, topic_data=[topic])
        # This holds for the first batch only: a leader that does not know the producer accepts any first sequence number, as
        # Kafka's does, and a late copy of a later batch could overtake the rejected ones.
        if self.idempotent and self.rng.random() < 0.03 and is_first:
            self.spawn(self._repeat(leader, request), "repeats a request")
        try:
            response = await self.ask_node(leader, request, REQUEST_TIMEOUT_MS)
        except Unreachable:
            return None
        return response.responses[0].partition_responses[0]

    async def _repeat(self, leader: int, request: ProduceRequest) -> None:
        """The network delivers the request once more, on another connection, after a random time."""
        await asyncio.sleep(self.rng.choice((0, 0.01, 1, 5)))
        address = self.addresses.get(leader)
        if address is None:
            return
        channel = Channel(self.world, *address, self.name)
        try:
            await channel.request(request, timeout_ms=REQUEST_TIMEOUT_MS)
        except Exception:
            pass  # the answer is not looked at
        finally:
            channel.close()

    def _judge(self, sending: Sending, batch: Batch, answer: Any, *, is_first: bool) -> None:
        if answer is None:
            return
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.NONE or (code is KNOWN_DUPLICATE and self.idempotent):
            batch.done = True
            offset = answer.base_offset if code is ErrorCode.NONE else -1
            self.history.end(batch.operation, "ok", offset)
            if offset >= 0 and self.acks == -1:
                self.on_acknowledged((sending.topic, sending.partition), offset + len(batch.values) - 1)
        elif code in FORGOTTEN:
            if is_first:
                raise Violation("26", f"{self.name} was answered {code.name} for {batch.operation.input}")
        elif not code.retriable:
            raise Violation("13", f"{self.name} was answered {code.name} for {batch.operation.input}")
