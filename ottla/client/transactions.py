"""Transactions: their states, and their end by force (KIP-664, KIP-994)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ottla.client.cluster import TRANSACTION_KEY_TYPE, ClusterClient, Leaders
from ottla.client.errors import ClusterError, check, failure
from ottla.client.failures import Kind
from ottla.client.partitions import TopicPartition
from ottla.client.topics import ask_leaders
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
)
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest, TransactionState
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.protocol.messages.shared_structs import TopicPartitionIndexes
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

#: The transaction timeout in the command's InitProducerId. It never begins a transaction.
TIMEOUT_MS = 60_000


class ListedTransaction(NamedTuple):
    """A transaction, and the broker that coordinates it."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


#: The states of a transaction that is open or ending. Where brokers filter by time, an id without a transaction counts as open
#: since 1970, as in Kafka.
OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")


async def list_transactions(
    cluster: ClusterClient, *, states: Iterable[str] = (), producer_ids: Iterable[int] = (), open_ms_min: int = -1
) -> list[ListedTransaction]:
    """Return the transactions of all coordinators. If `open_ms_min` is not -1, return those that have been open for that long."""
    cluster.doing = "listing transactions"
    await cluster.metadata([])
    request = ListTransactionsRequest(list(states), list(producer_ids), duration_filter=open_ms_min)
    found = []
    for node in sorted(cluster.brokers):

        async def ask(node: int = node) -> tuple[ListTransactionsResponse, int]:
            response = await cluster.request(request, node)
            return response, response.error_code

        response, code = await cluster.retry(ask)
        check(f"transactions of broker {node}", code)
        if response.unknown_state_filters:
            raise ClusterError(
                f"there is no state {response.unknown_state_filters[0]!r} of transactions", None, Kind.WRONG
            )
        found += [
            ListedTransaction(row.transactional_id, node, row.producer_id, row.transaction_state)
            for row in response.transaction_states
        ]
    return sorted(found)


async def describe_transaction(cluster: ClusterClient, transactional_id: str) -> tuple[int, TransactionState]:
    """Return the coordinator of a transactional id, and its state.

    Raises:
        CommandFailed: there is no such id, no permission, or its record cannot be read (`code` UNKNOWN_SERVER_ERROR).
    """

    async def ask() -> tuple[tuple[int, TransactionState], int]:
        node = await cluster.coordinator(transactional_id, TRANSACTION_KEY_TYPE)
        response = await cluster.request(DescribeTransactionsRequest([transactional_id]), node)
        state: TransactionState = response.transaction_states[0]
        return (node, state), state.error_code

    found, code = await cluster.retry(ask)
    if code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        known = [row.transactional_id for row in await list_transactions(cluster)]
        raise failure(f"transactional id {transactional_id}", code, name=transactional_id, known=known)
    check(f"transactional id {transactional_id}", code)
    return found


async def describe_at(cluster: ClusterClient, node: int, transactional_ids: Iterable[str]) -> list[TransactionState]:
    """Return the states of transactional ids that `node` coordinates; those with an error are left out."""
    cluster.doing = f"describing transactions of broker {node}"
    response = await cluster.request(DescribeTransactionsRequest(list(transactional_ids)), node)
    return [row for row in response.transaction_states if not row.error_code]


async def abort_transaction(cluster: ClusterClient, transactional_id: str) -> None:
    """Fence the producer of a transactional id: its open transaction is aborted, as by a new producer with the id."""

    async def ask() -> tuple[InitProducerIdResponse, int]:
        node = await cluster.coordinator(transactional_id, TRANSACTION_KEY_TYPE)
        cluster.doing = f"aborting the transaction of {transactional_id}"
        response = await cluster.request(InitProducerIdRequest(transactional_id, TIMEOUT_MS), node)
        return response, response.error_code

    _, code = await cluster.retry(ask)
    check(f"transactional id {transactional_id}", code)


class OpenProducer(NamedTuple):
    """The producer of an open transaction, as the partition's leader knows it."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


async def describe_producers(
    cluster: ClusterClient, name: str, partitions: Iterable[int], broker: int | None = None
) -> dict[int, list[ProducerState]]:
    """Return the producers of each partition that its leader knows, or that the replica on `broker` knows."""

    def build(part: list[int]) -> DescribeProducersRequest:
        return DescribeProducersRequest([TopicPartitionIndexes(name, list(part))])

    cluster.doing = f"describing the producers of topic {name}"
    if broker is None:
        results = await ask_leaders(cluster, name, list(partitions), build)
        return {index: result.active_producers for index, result in results.items()}
    response: DescribeProducersResponse = await cluster.request(build(list(partitions)), broker)
    found = {}
    for topic in response.topics:
        for part in topic.partitions:
            check(f"partition {name}-{part.partition_index}", part.error_code, part.error_message)
            found[part.partition_index] = part.active_producers
    return found


async def abort_by_marker(cluster: ClusterClient, place: TopicPartition, producer: OpenProducer) -> None:
    """Write an abort marker into one partition, for a transaction that no coordinator knows."""
    name, index = place
    marker = WritableTxnMarker(
        producer.producer_id,
        producer.producer_epoch,
        transaction_result=False,
        topics=[TopicPartitionIndexes(name, [index])],
        coordinator_epoch=max(0, producer.coordinator_epoch),
    )
    leaders = Leaders(cluster, [name])
    await leaders.start()
    cluster.doing = f"aborting a transaction on partition {name}-{index}"
    response: WriteTxnMarkersResponse = await cluster.request(WriteTxnMarkersRequest([marker]), leaders.of(place).node)
    (result,) = (part for row in response.markers for topic in row.topics for part in topic.partitions)
    check(f"partition {name}-{index}", result.error_code)
