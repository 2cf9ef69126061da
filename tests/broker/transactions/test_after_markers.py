"""A producer that goes on at once waits for the markers of its transaction before, and is not sent away."""

from __future__ import annotations

from ottla.broker.transactions.after_markers import WAITING_MAX
from ottla.broker.transactions.transaction import TransactionState
from ottla.protocol.errors import ErrorCode
from tests.broker.transactions.harness import PARKED, TransactionalProducer, TransactionCoordinatorHarness

WAIT_MS = 100


def ended_with_late_marker() -> tuple[TransactionCoordinatorHarness, TransactionalProducer]:
    harness = TransactionCoordinatorHarness(add_partitions_retry_backoff_max_ms=WAIT_MS)
    producer = TransactionalProducer(harness)
    producer.init()
    harness.marker_behaviour("t-0", "later")
    producer.add("t-0")
    assert producer.end(True).error_code == ErrorCode.NONE
    return harness, producer


def test_the_next_transaction_begins_when_the_markers_are_written() -> None:
    harness, producer = ended_with_late_marker()
    answers: list[ErrorCode] = []
    producer.then = answers.append
    assert producer.add("t-1") is PARKED
    harness.clock.advance(WAIT_MS - 1)
    assert not answers
    harness.marker_behaviour("t-0", "NONE")
    assert answers == [ErrorCode.NONE]
    assert harness.shard.transactions["x"].state is TransactionState.ONGOING
    assert not harness.clock.armed or harness.clock.advance(WAIT_MS) is None
    assert answers == [ErrorCode.NONE], "its time-out has gone with it"


def test_markers_that_take_too_long_are_not_waited_for() -> None:
    harness, producer = ended_with_late_marker()
    answers: list[ErrorCode] = []
    producer.then = answers.append
    assert producer.add("t-1") is PARKED
    harness.clock.advance(WAIT_MS)
    assert answers == [ErrorCode.CONCURRENT_TRANSACTIONS]
    harness.marker_behaviour("t-0", "NONE")
    assert producer.add("t-1") == ErrorCode.NONE


def test_more_requests_than_a_client_has_in_flight_are_answered_at_once() -> None:
    harness, producer = ended_with_late_marker()
    assert [producer.add("t-1") for _ in range(WAITING_MAX + 1)] == [PARKED] * WAITING_MAX + [
        ErrorCode.CONCURRENT_TRANSACTIONS
    ]
    harness.marker_behaviour("t-0", "NONE")
    assert harness.printed.count("then: NONE") == WAITING_MAX


def test_a_coordinator_that_moves_sends_those_that_wait_to_the_next_one() -> None:
    harness, producer = ended_with_late_marker()
    answers: list[ErrorCode] = []
    producer.then = answers.append
    producer.add("t-1")
    harness.coordinator.unload(0)
    assert answers == [ErrorCode.NOT_COORDINATOR]
