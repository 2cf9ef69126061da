"""The producer of one lane. A transaction holds records of the lane's partitions, and their new positions in the source.

    start --> begin --> produce --> end --> begin ...
      ^__________ after a failure the positions show the outcome of the transaction

There are no retries inside a transaction. A failure ends it, and `start` takes the next producer epoch: the coordinator then
completes or aborts the open transaction, and rejects later requests of a worker that had the lane before.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ottla.client.cluster import (
    ATTEMPT_MS_MAX,
    RETRY_BACKOFF_MS,
    TRANSACTION_KEY_TYPE,
    ClusterClient,
    Leaders,
    NoConnection,
)
from ottla.client.errors import ClusterError, check, code_of, failure
from ottla.client.failures import Failure
from ottla.client.idempotence import (
    ADD_VERSION,
    END_VERSION,
    FENCED,
    INIT_VERSION,
    BatchVerdict,
    ProducerIdentity,
    Sequences,
    add_partitions,
    produce_request,
    produced,
    refused_partitions,
    verdict_on,
)
from ottla.client.partitions import NO_LEADER, TopicPartition
from ottla.mirror.batches import Outgoing, Stamp
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.produce import PartitionProduceResponse, ProduceRequest

PRODUCE_VERSION = 9
#: A transaction is aborted by its coordinator after this time. A killed worker delays the readers of its partitions for this
#: long, unless another worker takes its lanes earlier.
TRANSACTION_MS_MAX = 60_000
#: One lane has at most this many requests in flight to one broker: an idempotent producer may have five (KIP-98).
IN_FLIGHT_MAX = 5


class Fenced(Exception):
    """Another worker has the lane, or the transaction took too long. Consumers will see nothing of it."""


class PlaceFailed(ClusterError):
    """One partition of the target rejects records. The transaction was not committed."""

    def __init__(self, place: TopicPartition, fault: Failure) -> None:
        super().__init__(fault.cause, fault.remedy, fault.kind, fault.code)
        self.at = place


class LaneProducer:
    """The producer of a lane.

    With `transactional_id` None it is an idempotent producer without transactions, which writes the positions after the
    records.
    """

    def __init__(self, cluster: ClusterClient, leaders: Leaders, transactional_id: str | None) -> None:
        self._cluster = cluster
        self._leaders = leaders
        self._id = transactional_id
        self._coordinator: int | None = None
        self._identity = ProducerIdentity()
        self._sequences = Sequences()
        self._is_open = False

    async def start(self) -> None:
        """Take the next producer epoch. When it returns, the open transaction is completed or aborted.

        Raises:
            Failure: no permission, or the cluster does not answer.
        """

        async def ask() -> tuple[InitProducerIdResponse, int]:
            if self._id is None:
                response = await self._cluster.request(InitProducerIdRequest(None, 0), version=INIT_VERSION)
                return response, response.error_code
            self._coordinator = await self._cluster.coordinator(self._id, TRANSACTION_KEY_TYPE)
            request = InitProducerIdRequest(self._id, TRANSACTION_MS_MAX)
            response = await self._cluster.request(request, self._coordinator, version=INIT_VERSION)
            return response, response.error_code

        self._is_open = False
        self._cluster.doing = "getting a producer id"
        async with self._cluster.limit():
            response, code = await self._cluster.retry(ask)
        check(f"transactional id {self._id}", code)
        self._identity = ProducerIdentity(response.producer_id, response.producer_epoch)
        self._sequences = Sequences()

    async def begin(self, places: Iterable[TopicPartition]) -> None:
        """Begin a transaction with these partitions."""
        if self._id is None:
            return
        request = add_partitions(self._id, self._identity, places)

        def first_failed(response: AddPartitionsToTxnResponse) -> int:
            return next((code for _, code in refused_partitions(response)), ErrorCode.NONE)

        self._is_open = True
        response, code = await self._ask_coordinator(request, ADD_VERSION, first_failed)
        if code in FENCED:
            raise Fenced
        for place, found in refused_partitions(response):
            raise PlaceFailed(place, failure(f"partition {place[0]}-{place[1]}", found))

    async def produce(self, batches: Mapping[TopicPartition, Sequence[Outgoing]]) -> dict[TopicPartition, list[int]]:
        """Send the batches of each partition in their order. Return the offset of the first record of each.

        Raises:
            PlaceFailed: a partition has rejected one.
            Fenced: another worker has the lane.
            Failure: it is not known what was written.
        """
        offsets: dict[TopicPartition, list[int]] = {place: [] for place in batches}
        flying: deque[asyncio.Task[None]] = deque()
        try:
            for number in range(max(map(len, batches.values()), default=0)):
                row = {place: listed[number] for place, listed in batches.items() if number < len(listed)}
                for node, places in self._by_node(row).items():
                    request = self._request({place: row[place] for place in places})
                    while len(flying) >= IN_FLIGHT_MAX:
                        await flying.popleft()
                    flying.append(asyncio.ensure_future(self._send(node, request, offsets)))
                    # The tasks send their requests in the order in which they are started.
                    await asyncio.sleep(0)
            while flying:
                await flying.popleft()
        finally:
            for task in flying:
                task.cancel()
            await asyncio.gather(*flying, return_exceptions=True)
        return offsets

    async def end(self, *, commit: bool) -> None:
        """End the transaction.

        Raises:
            Fenced: another worker has the lane, and the transaction was aborted.
            Failure: it is not known whether it was committed; the positions show it after `start`.
        """
        if self._id is None or not self._is_open:
            return
        request = EndTxnRequest(self._id, *self._identity, commit)
        _, code = await self._ask_coordinator(request, END_VERSION, lambda response: response.error_code)
        if code in FENCED:
            raise Fenced
        check(f"transactional id {self._id}", code)
        self._is_open = False

    # -- Requests ------------------------------------------------------------------------------------------------------

    async def _ask_coordinator(self, request: object, version: int, code_in: Callable[[Any], int]) -> tuple[Any, int]:
        """Return the coordinator's response and its error code, which is not a retriable one.

        If the coordinator has moved, the new one is asked.
        """

        async def ask() -> tuple[Any, int]:
            response = await self._cluster.request(request, self._coordinator, version=version)
            code = code_in(response)
            if code == ErrorCode.NOT_COORDINATOR:
                self._coordinator = await self._cluster.coordinator(self._id or "", TRANSACTION_KEY_TYPE)
            return response, code

        async with self._cluster.limit():
            return await self._cluster.retry(ask)

    def _by_node(self, places: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        found: dict[int, list[TopicPartition]] = {}
        for place in places:
            node = self._leaders.of(place).node
            if node == NO_LEADER:
                raise Failure(f"partition {place[0]}-{place[1]} of the target has no leader")
            found.setdefault(node, []).append(place)
        return found

    def _request(self, batches: Mapping[TopicPartition, Outgoing]) -> ProduceRequest:
        encoded = {}
        for place, batch in batches.items():
            stamp = Stamp(*self._identity, self._sequences.take(place, batch.count), self._id is not None)
            encoded[place] = memoryview(batch.encoded(stamp))
        return produce_request(encoded, ATTEMPT_MS_MAX, transactional_id=self._id)

    async def _send(self, node: int, request: ProduceRequest, offsets: dict[TopicPartition, list[int]]) -> None:
        try:
            response = await self._cluster.request(
                request, node, version=PRODUCE_VERSION, timeout_ms=4 * ATTEMPT_MS_MAX
            )
        except NoConnection:
            self._leaders.forget(node)
            raise
        for place, part in produced(response):
            self._check(place, part)
            offsets[place].append(part.base_offset)

    def _check(self, place: TopicPartition, part: PartitionProduceResponse) -> None:
        code = code_of(part.error_code)
        if code is ErrorCode.NONE:
            return
        verdict = verdict_on(code)
        if verdict is BatchVerdict.FENCED:
            raise Fenced
        name, index = place
        fault = failure(f"partition {name}-{index} of the target", code, part.error_message)
        # A full disk may get room again: only this partition waits for that.
        if verdict is BatchVerdict.AGAIN and code not in (
            ErrorCode.KAFKA_STORAGE_ERROR,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ):
            raise fault
        # A duplicate (DUPLICATE_SEQUENCE_NUMBER) is a failure, too: pairs of offsets need its offset, which the response does
        # not have.
        raise PlaceFailed(place, fault)


async def refreshed(leaders: Leaders) -> None:
    """Look the leaders up again after a failure. If the cluster cannot be reached, the next request shows that."""
    await asyncio.sleep(RETRY_BACKOFF_MS / 1000)
    try:
        await leaders.refresh()
    except Failure:
        return
