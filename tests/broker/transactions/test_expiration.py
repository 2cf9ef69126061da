"""The parts of an idle transactional producer's state expire one by one, with Kafka's errors, in both versions of transactions.

The steps are those of Kafka's TransactionsExpirationTest: INVALID_PRODUCER_ID_MAPPING is fatal to a producer, which begins
again with InitProducerId; a producer id that only a partition has forgotten goes on.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.protocol.messages.describe_producers import DescribeProducersRequest
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.shared_structs import TopicPartitionIndexes
from tests.broker.conftest import Node, eventually, start_node, stop_node
from tests.broker.transactions.test_over_the_wire import end, init, produce
from tests.broker.wire import Wire

EXPIRATION_MS = 1_000
#: The last versions of EndTxn for transaction versions 1 and 2.
V1, V2 = 4, 5


#: The properties of nodes: on each only one kind of state expires, because a busy machine may let the other one expire by being
#: late.
EXPIRING = {
    "transactional ids": {
        "transactional_id_expiration_ms": str(3 * EXPIRATION_MS),
        "transaction_remove_expired_transaction_cleanup_interval_ms": "100",
    },
    "producer ids": {
        "producer_id_expiration_ms": str(EXPIRATION_MS),
        "producer_id_expiration_check_interval_ms": "50",
    },
}


@pytest.fixture(scope="module")
def node(request: pytest.FixtureRequest) -> Iterator[Node]:
    started = start_node(**EXPIRING[request.param])
    started.create("t")
    find = FindCoordinatorRequest(key_type=1, coordinator_keys=["x"])
    with started.wire() as wire:
        eventually(lambda: not wire.request(find).coordinators[0].error_code, "the coordinator")
    yield started
    stop_node(started)


@pytest.fixture
def wire(node: Node) -> Iterator[Wire]:
    with node.wire() as opened:
        yield opened


def add(wire: Wire, name: str, producer: tuple[int, int]) -> ErrorCode:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
    )
    (topic,) = wire.request(request, 3).results_by_topic_v3_and_below
    return ErrorCode(topic.results_by_partition[0].partition_error_code)


def begin(wire: Wire, name: str, producer: tuple[int, int], version: int) -> ErrorCode:
    """Send the first request of a transaction; a producer of version 2 adds its partitions with Produce."""
    return add(wire, name, producer) if version == V1 else produce(wire, name, producer)


def ended(wire: Wire, name: str, version: int, *, commit: bool) -> tuple[int, int]:
    """Do a transaction of one record; return the producer's id and epoch after it."""
    answer = init(wire, name)
    producer = (answer.producer_id, answer.producer_epoch)
    assert begin(wire, name, producer, version) == ErrorCode.NONE
    if version == V1:
        assert produce(wire, name, producer) == ErrorCode.NONE
    answer = end(wire, name, producer, commit=commit, version=version)
    assert answer.error_code == ErrorCode.NONE
    return producer if version == V1 else (answer.producer_id, answer.producer_epoch)


def described(wire: Wire, name: str) -> ErrorCode:
    (state,) = wire.request(DescribeTransactionsRequest(transactional_ids=[name])).transaction_states
    return ErrorCode(state.error_code)


def active_producers(wire: Wire) -> set[int]:
    request = DescribeProducersRequest(topics=[TopicPartitionIndexes(name="t", partition_indexes=[0])])
    (partition,) = wire.request(request).topics[0].partitions
    return {producer.producer_id for producer in partition.active_producers}


@pytest.mark.chaos
@pytest.mark.parametrize("node", ["transactional ids"], indirect=True)
@pytest.mark.parametrize("version", [V1, V2])
def test_a_producer_whose_transactional_id_has_expired_is_refused_until_it_starts_over(
    wire: Wire, version: int
) -> None:
    name = f"expires-{version}"
    producer = ended(wire, name, version, commit=False)
    assert described(wire, name) == ErrorCode.NONE
    eventually(lambda: described(wire, name) == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "the id to expire")
    assert begin(wire, name, producer, version) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert end(wire, name, producer, commit=False, version=version).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    again = ended(wire, name, version, commit=True)
    assert again[0] != producer[0]
    assert described(wire, name) == ErrorCode.NONE


@pytest.mark.chaos
@pytest.mark.parametrize("node", ["producer ids"], indirect=True)
@pytest.mark.parametrize("version", [V1, V2])
def test_a_producer_id_that_its_partition_forgot_goes_on_with_a_higher_epoch(wire: Wire, version: int) -> None:
    name = f"idle-{version}"
    before = ended(wire, name, version, commit=False)
    eventually(lambda: before[0] not in active_producers(wire), "the partition to forget the producer")
    after = ended(wire, name, version, commit=True)
    assert after[0] == before[0]
    assert after[1] > before[1]
    while after[0] not in active_producers(wire):  # the producer has expired before the question: a second has passed
        assert ended(wire, name, version, commit=True)[0] == after[0]
