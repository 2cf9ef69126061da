"""The end of a transaction on a real node: after a retry, or a late request, the client can go on from the response (34)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.conftest import Node, eventually, start_node, stop_node
from tests.broker.records import batch
from tests.broker.wire import Wire

PRODUCE_VERSION = 12  # the last version with names of topics; the broker adds partitions to the transaction
INIT_VERSION = 5
END_VERSIONS = (4, 5)


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    started = start_node(transaction_abort_timed_out_transaction_cleanup_interval_ms="100")
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


def init(wire: Wire, transactional_id: str, timeout_ms: int = 60_000) -> InitProducerIdResponse:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
    answers: list[InitProducerIdResponse] = []

    def asked() -> bool:
        answers.append(wire.request(request, INIT_VERSION))
        return not answers[-1].error_code

    eventually(asked, "a producer id")
    return answers[-1]


def produce(wire: Wire, transactional_id: str, producer: tuple[int, int]) -> ErrorCode:
    producer_id, epoch = producer
    records = batch([b"v"], producer_id=producer_id, producer_epoch=epoch, base_sequence=0, transactional=True)
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=5_000,
        topic_data=[
            TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=memoryview(records))])
        ],
    )
    return ErrorCode(wire.request(request, PRODUCE_VERSION).responses[0].partition_responses[0].error_code)


def end(
    wire: Wire, transactional_id: str, producer: tuple[int, int], *, commit: bool, version: int = 5
) -> EndTxnResponse:
    request = EndTxnRequest(
        transactional_id=transactional_id, producer_id=producer[0], producer_epoch=producer[1], committed=commit
    )
    answer: EndTxnResponse = wire.request(request, version)
    return answer


def begun(wire: Wire, transactional_id: str, timeout_ms: int = 60_000) -> tuple[int, int]:
    for _ in range(10):
        answer = init(wire, transactional_id, timeout_ms)
        producer = (answer.producer_id, answer.producer_epoch)
        code = produce(wire, transactional_id, producer)
        if code != ErrorCode.INVALID_PRODUCER_EPOCH:  # a busy machine may have taken longer than the time-out
            break
    assert code == ErrorCode.NONE
    return producer


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_that_is_asked_for_again_is_answered_as_before(wire: Wire, commit: bool) -> None:
    name = f"again-{commit}"
    producer = begun(wire, name)
    first = end(wire, name, producer, commit=commit)
    assert first.error_code == ErrorCode.NONE
    assert (first.producer_id, first.producer_epoch) == (producer[0], producer[1] + 1)
    answers = []

    def again() -> bool:
        answers.append(end(wire, name, producer, commit=commit))
        return answers[-1].error_code != ErrorCode.CONCURRENT_TRANSACTIONS

    eventually(again, "the markers")
    assert answers[-1] == first
    other = end(wire, name, producer, commit=not commit)
    assert other.error_code == (ErrorCode.INVALID_TXN_STATE if commit else ErrorCode.PRODUCER_FENCED)


@pytest.mark.parametrize("version", END_VERSIONS)
def test_a_commit_that_lost_against_the_time_out_is_fenced_and_its_producer_starts_over(
    wire: Wire, version: int
) -> None:
    name = f"late-{version}"
    producer = begun(wire, name, timeout_ms=500)
    answers = []

    def is_over() -> bool:
        # Produce shows the end of the transaction. Another EndTxn would end the transaction itself.
        answers.append(produce(wire, name, (producer[0], producer[1])))
        return answers[-1] == ErrorCode.INVALID_PRODUCER_EPOCH

    eventually(is_over, "the coordinator's abort")
    eventually(
        lambda: end(wire, name, producer, commit=True, version=version).error_code == ErrorCode.PRODUCER_FENCED,
        "the markers to be written",
    )
    again = init(wire, name)
    assert again.producer_id == producer[0]
    assert again.producer_epoch > producer[1]
    assert produce(wire, name, (again.producer_id, again.producer_epoch)) == ErrorCode.NONE


@pytest.mark.parametrize(("version", "code"), [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)])
def test_a_client_from_before_the_error_that_it_is_fenced_gets_another_one(
    wire: Wire, version: int, code: ErrorCode
) -> None:
    name = f"known-{version}"
    first = init(wire, name)
    init(wire, name)
    request = AddOffsetsToTxnRequest(
        transactional_id=name, producer_id=first.producer_id, producer_epoch=first.producer_epoch, group_id="g"
    )
    assert wire.request(request, version).error_code == code
