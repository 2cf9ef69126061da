"""A transactional producer (transaction.version 2, KIP-890): records in several partitions, seen together or never.

Its operations end ok (committed), fail (aborted: no consumer may ever see it) or info. What it cannot end, it leaves to its own
next InitProducerId, or to the coordinator's time-out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records.builder import build_batch
from tests.histories import Violation
from tests.sim.clients.connection import BACKOFF_SECONDS, REQUEST_TIMEOUT_MS, Client, Unreachable
from tests.sim.history import TopicPartition

TRANSACTION = "transaction"
TRANSACTION_KEY = 1
TIMEOUT_MS = 10_000
SEND_SECONDS, END_SECONDS = 6.0, 20.0
#: The id has a newer epoch: the coordinator aborted, or the client sent InitProducerId. No other fatal error may ever come
#: (invariant 34), because only this client uses the id.
FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
#: A batch of a transaction that has ended in the meantime.
NO_TRANSACTION = ErrorCode.INVALID_TXN_STATE
#: Errors for an id or a transaction that began where a coordinator could not know of it. A coordinator that is cut off, and
#: does not know yet that another one leads, rejects requests by its old metadata, as Kafka's does. It has written nothing.
UNKNOWN = frozenset({ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING})
#: The leader sees a gap before this batch: the previous batch was lost with a former leader, and with it the transaction.
ABORTABLE = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.TRANSACTION_ABORTABLE}
)
#: The leader has the batch.
WRITTEN = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})


class Transactions(Client):
    """One transactional id, one transaction at a time."""

    partitions: Sequence[TopicPartition] = ()
    transactional_id = "txn"
    pause_seconds = 1.5
    #: The epoch in which that broker coordinates the id, if it does so by the newest metadata.
    leadership: Callable[[int], object] = staticmethod(lambda node: None)

    def start(self) -> None:
        self.producer_id, self.epoch = -1, -1
        self.sequences: dict[TopicPartition, int] = {}
        self._count = 0
        self._is_current = True
        super().start()

    async def run(self) -> None:
        while not self.stopping:
            if self.producer_id < 0 and not await self._init():
                continue
            await self.pause(self.pause_seconds)
            await self._transaction()

    async def _init(self) -> bool:
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=TIMEOUT_MS)
        answer = await self._ask_coordinator(request)
        if answer is None or answer.error_code != ErrorCode.NONE:
            if answer is not None and not ErrorCode(answer.error_code).retriable:
                raise Violation("34", f"InitProducerId is answered {ErrorCode(answer.error_code).name}")
            await asyncio.sleep(BACKOFF_SECONDS)
            return False
        self._goes_on_as(answer.producer_id, answer.producer_epoch)
        return True

    def _goes_on_as(self, producer_id: int, epoch: int) -> None:
        self.producer_id, self.epoch = producer_id, epoch
        self.sequences.clear()
        self.history.note(f"{self.name} is producer {producer_id} in epoch {epoch}")

    async def _transaction(self) -> None:
        chosen = self.rng.sample(list(self.partitions), self.rng.randint(1, len(self.partitions)))
        batches_in_flight = self.rng.choice((1, 1, 2, 5))
        values: dict[TopicPartition, list[str]] = {}
        for partition in chosen:
            for _ in range(self.rng.choice((1, batches_in_flight))):
                self._count += 1
                values.setdefault(partition, []).append(f"{self.name}/{partition[1]}/{self._count}")
        operation = self.history.begin(
            self.name, TRANSACTION, [(*partition, value) for partition in values for value in values[partition]]
        )
        is_written = True
        for partition in values:
            is_written = is_written and await self._send(partition, values[partition])
        commits = is_written and self.rng.random() < 0.75
        outcome = await self._end(commits)
        if outcome == "ok" and not commits:
            outcome = "fail"
        self.history.end(operation, outcome, "commit" if commits else "abort")

    async def _send(self, partition: TopicPartition, values: list[str]) -> bool:
        """Send one batch for each value, all of them in flight at the same time.

        Return False if the transaction has to be aborted.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + SEND_SECONDS
        sequence = self.sequences.get(partition, 0)
        pending = [self._batch(value, sequence + number) for number, value in enumerate(values)]
        topic, index = partition
        while loop.time() < end:
            leader = await self.leader_of(topic, index)
            if leader is not None and topic in self.topic_ids:
                codes = await asyncio.gather(
                    *(self._produce(leader, self._request(partition, data)) for data in pending)
                )
                if self._must_abort(partition, codes):
                    return False
                pending = [data for data, code in zip(pending, codes, strict=True) if code not in WRITTEN]
                if not pending:
                    self.sequences[partition] = sequence + len(values)
                    return True
            await asyncio.sleep(BACKOFF_SECONDS)
            await self.refresh([topic])
        return False

    def _batch(self, value: str, sequence: int) -> bytes:
        return build_batch(
            [(None, value.encode(), self.world.clock.wall_ms())],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )

    def _request(self, partition: TopicPartition, batch: bytes) -> ProduceRequest:
        topic, index = partition
        rows = [PartitionProduceData(index=index, records=batch)]
        return ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=REQUEST_TIMEOUT_MS - 500,
            topic_data=[TopicProduceData(name=topic, topic_id=self.topic_ids[topic], partition_data=rows)],
        )

    def _must_abort(self, partition: TopicPartition, codes: Sequence[ErrorCode | None]) -> bool:
        """Judges the responses to the batches of one connection, in the order in which they were sent."""
        for before, code in zip((None, *codes), codes, strict=False):
            if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and before is ErrorCode.NONE:
                raise Violation(
                    "26", f"{self.name}: batches of one connection to {partition} were appended out of order"
                )
            if code in FENCED or code in ABORTABLE or code is NO_TRANSACTION:
                return True
            if code is not None and code not in WRITTEN and not code.retriable:
                raise Violation("13", f"{self.name} was answered {code.name} for a batch to {partition}")
        return False

    async def _produce(self, leader: int, request: ProduceRequest) -> ErrorCode | None:
        try:
            response = await self.ask_node(leader, request)
        except Unreachable:
            return None
        return ErrorCode(response.responses[0].partition_responses[0].error_code)

    async def _end(self, commits: bool) -> str:
        """Return ok, fail (it is not committed and never will be), or info."""
        loop = asyncio.get_running_loop()
        end = loop.time() + END_SECONDS
        is_first = True
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commits,
        )
        while loop.time() < end:
            answer = await self._ask_coordinator(request)
            code = None if answer is None else ErrorCode(answer.error_code)
            if code is ErrorCode.NONE:
                self._goes_on_as(answer.producer_id, answer.producer_epoch)
                return "ok"
            if code in FENCED:
                self.producer_id = -1
                return "fail" if is_first or not commits else "info"
            if code is not None and not code.retriable:
                if code in UNKNOWN and not self._is_current:
                    self.producer_id = -1
                    return "fail" if is_first or not commits else "info"
                raise Violation("34", f"{self.name} ends a transaction and is answered {code.name}")
            # A request with an error response changed nothing, but another attempt may still be in flight.
            is_first = is_first and code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            await asyncio.sleep(BACKOFF_SECONDS)
        self.producer_id = -1
        return "info"

    async def _ask_coordinator(self, request: Any) -> Any:
        try:
            node = await self.coordinator(self.transactional_id, TRANSACTION_KEY)
            before = self.leadership(node)
            answer = await self.ask_node(node, request)
            self._is_current = before is not None and self.leadership(node) == before
            return answer
        except Unreachable:
            return None
