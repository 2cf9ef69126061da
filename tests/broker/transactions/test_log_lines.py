"""The log shows an operator a transaction: its producers, its states, its end by time."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from tests.broker.transactions.harness import TransactionalProducer, TransactionCoordinatorHarness

Read = Callable[[], list[str]]


@pytest.fixture
def read(caplog: pytest.LogCaptureFixture) -> Read:
    """Return the lines since the last call, with their levels."""
    caplog.set_level(logging.DEBUG)

    def lines() -> list[str]:
        found = [f"{record.levelname} {record.getMessage()}" for record in caplog.records]
        caplog.clear()
        return found

    return lines


def test_a_transaction_from_its_beginning_to_its_end(read: Read) -> None:
    producer = TransactionalProducer(TransactionCoordinatorHarness())
    read()
    producer.init()
    assert read() == [
        "DEBUG TransactionalId x is now in state EMPTY",
        "INFO Initialized transactionalId x with producerId 100 and producer epoch 0",
    ]
    producer.add("t-0")
    producer.end(commit=True)
    assert read() == [
        f"DEBUG TransactionalId x is now in state {s}" for s in ("ONGOING", "PREPARE_COMMIT", "COMPLETE_COMMIT")
    ]


def test_a_transaction_that_is_open_for_too_long(read: Read) -> None:
    harness = TransactionCoordinatorHarness()
    producer = TransactionalProducer(harness)
    producer.init(timeout=5_000)
    producer.add("t-0")
    read()
    harness.clock.advance(20_000)
    assert read()[0] == "INFO Rollback of ongoing transaction for transactionalId x due to timeout (5000 ms)"


def test_a_second_producer_fences_the_first(read: Read) -> None:
    harness = TransactionCoordinatorHarness()
    first, second = TransactionalProducer(harness), TransactionalProducer(harness)
    first.init()
    first.add("t-0")
    read()
    second.init()
    assert (
        read()[0]
        == "INFO Fencing the producer of transactionalId x (producerId 100, epoch 0), whose transaction is ongoing"
    )
    second.init()
    read()
    first.init(resume=True)
    (line,) = read()
    assert line.startswith(
        "INFO InitProducerId of transactionalId x with producerId 100 and epoch 0 is fenced by producerId 100"
    )


def test_an_id_that_was_not_used_for_long(read: Read) -> None:
    harness = TransactionCoordinatorHarness(transactional_id_expiration_ms=1_000)
    TransactionalProducer(harness).init()
    read()
    harness.clock.advance(2 * harness.config.remove_expired_interval_ms)
    assert "DEBUG Removing transactionalId x, which has expired" in read()
