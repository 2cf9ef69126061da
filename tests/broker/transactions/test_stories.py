"""The story of a transactional id says who fenced whom, and why a transaction ended."""

from __future__ import annotations

import pytest

from ottla.broker.transactions import decisions
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.server.story import Asker
from tests.broker.transactions.harness import TransactionalProducer, TransactionCoordinatorHarness


def story(harness: TransactionCoordinatorHarness) -> list[str]:
    """Return the lines of the story without their times."""
    return [f"{line.cause} {line.client_id}: {line.text}" for line in harness.coordinator.stories.of("x")]


def test_a_producer_that_is_fenced_finds_who_fenced_it() -> None:
    harness = TransactionCoordinatorHarness()
    first = TransactionalProducer(harness)
    first.init()
    first.add("t-0")
    request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
    for _ in range(2):  # the first request aborts the transaction
        harness.coordinator.init_producer_id(request, Asker("second", "/10.0.0.2"))
    assert first.end(commit=True).error_code == ErrorCode.PRODUCER_FENCED
    assert story(harness) == [
        "InitProducerId : The transaction is in state Empty: producerId 100, epoch 0, 0 partitions",
        " : The transaction is in state Ongoing: producerId 100, epoch 0, 1 partitions",
        "InitProducerId second: Fencing the producer of transactionalId x (producerId 100, epoch 0), whose transaction is ongoing",
        "InitProducerId second: The transaction is in state PrepareAbort: producerId 100, epoch 1, 1 partitions",
        "WriteTxnMarkers : The transaction is in state CompleteAbort: producerId 100, epoch 1, 0 partitions",
        "InitProducerId second: The transaction is in state Empty: producerId 100, epoch 2, 0 partitions",
        "EndTxn : The producer with producerId 100 and epoch 0 was answered PRODUCER_FENCED",
    ]


def test_a_thousand_transactions_leave_the_beginning_in_the_story() -> None:
    harness = TransactionCoordinatorHarness()
    producer = TransactionalProducer(harness)
    producer.init()
    for _ in range(1_000):
        producer.add("t-0")
        producer.end(commit=True)
    assert [(line.text.split(":")[0], line.times) for line in harness.coordinator.stories.of("x")] == [
        ("The transaction is in state Empty", 1),
        ("The transaction is in state Ongoing", 1_000),
        ("The transaction is in state PrepareCommit", 1_000),
        ("The transaction is in state CompleteCommit", 1_000),
    ]


def test_a_transaction_that_is_open_for_too_long_names_the_timeout() -> None:
    harness = TransactionCoordinatorHarness()
    producer = TransactionalProducer(harness)
    producer.init(timeout=5_000)
    producer.add("t-0")
    harness.clock.advance(20_000)
    assert (
        "transaction.timeout.ms : The transaction is in state PrepareAbort: producerId 100, epoch 1, 1 partitions"
        in story(harness)
    )


def test_a_marker_that_is_not_written_is_why_the_transaction_stays_open() -> None:
    harness = TransactionCoordinatorHarness()
    producer = TransactionalProducer(harness)
    producer.init()
    producer.add("t-0")
    harness.marker_behaviour("t-0", "KAFKA_STORAGE_ERROR")
    producer.end(commit=True)
    assert story(harness)[-1] == "WriteTxnMarkers : x: marker for t-0 failed, again: KAFKA_STORAGE_ERROR"


def test_a_removed_id_says_so() -> None:
    harness = TransactionCoordinatorHarness(transactional_id_expiration_ms=1_000, remove_expired_interval_ms=2_000)
    TransactionalProducer(harness).init()
    harness.clock.advance(5_000)
    assert story(harness)[-1] == "timer remove-expired : The transactional id was removed"


def test_an_assertion_in_a_decision_prints_the_story(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    harness = TransactionCoordinatorHarness()
    producer = TransactionalProducer(harness)
    producer.init()

    def broken(*args: object) -> None:
        raise AssertionError("no such state")

    monkeypatch.setattr(decisions, "_decide_v2", broken)
    with pytest.raises(AssertionError):
        producer.end(commit=True)
    assert any("The story of transactional id x:" in record.getMessage() for record in caplog.records)
