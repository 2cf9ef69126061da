"""The end of a transaction whose completion cannot be written at once, or not by this coordinator."""

from __future__ import annotations

import pytest

from ottla.broker.transactions.markers import RETRY_MS
from ottla.broker.transactions.transaction import Transaction, TransactionRecordCodec, TransactionState
from ottla.broker.transactions.transaction_coordinator import TransactionCoordinator
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.builder import build_batch
from tests.broker.transactions.harness import HERE, TP, TransactionalProducer, TransactionCoordinatorHarness, parse


@pytest.mark.parametrize(
    "error",
    [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER],
    ids=["a full disk", "too few replicas", "a leader that does not know it yet"],
)
def test_a_transaction_completes_when_its_log_takes_records_again(error: ErrorCode) -> None:
    harness = TransactionCoordinatorHarness()
    producer = TransactionalProducer(harness)
    producer.init()
    harness.marker_behaviour("t-0", "later")
    producer.add("t-0")
    producer.end(True)
    harness.log.refuse = KafkaError(error)
    harness.marker_behaviour("t-0", "NONE")
    harness.clock.advance(1_000)
    assert harness.shard.transactions["x"].state is TransactionState.PREPARE_COMMIT
    harness.log.refuse = None
    harness.clock.advance(1_000)
    assert harness.shard.transactions["x"].state is TransactionState.COMPLETE_COMMIT


@pytest.mark.parametrize("leader", [HERE, 2], ids=["written here", "sent to another broker"])
def test_a_marker_that_fails_for_an_internal_error_is_sent_again(leader: int, caplog: pytest.LogCaptureFixture) -> None:
    harness = TransactionCoordinatorHarness()
    harness.leaders[parse("t-0")] = leader
    producer = TransactionalProducer(harness)
    producer.init()
    producer.add("t-0", "u-0")
    harness.marker_behaviour("t-0", "a mistake")
    assert producer.end(True).error_code == ErrorCode.NONE
    for _ in range(3):
        harness.clock.advance(RETRY_MS)
        assert harness.shard.transactions["x"].state is TransactionState.PREPARE_COMMIT
    errors = [entry.getMessage() for entry in caplog.records if entry.levelname == "ERROR"]
    assert len(errors) == 4
    assert all(line.startswith("x: no marker was written to [('t', 0)") for line in errors)
    harness.marker_behaviour("t-0", "NONE")
    harness.clock.advance(RETRY_MS)
    assert harness.shard.transactions["x"].state is TransactionState.COMPLETE_COMMIT


def test_an_id_whose_record_cannot_be_read_is_refused_and_the_others_are_served() -> None:
    harness = TransactionCoordinatorHarness()
    producer, other = TransactionalProducer(harness), TransactionalProducer(harness, "y")
    producer.init()
    other.init()
    transaction = harness.shard.transactions["x"]
    key, _ = TransactionRecordCodec(lambda: 2).encode(*transaction.record())
    harness.log.append(TP, build_batch([(key, b"\0\x63of a newer version", 0)]))
    harness.restart()
    for answer in (producer.init(), producer.end(True)):
        assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert producer.add("t-0") == ErrorCode.UNKNOWN_SERVER_ERROR
    assert other.add("t-0") == ErrorCode.NONE


def test_one_prepared_transaction_that_cannot_be_completed_does_not_hold_up_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    harness = TransactionCoordinatorHarness()
    harness.marker_behaviour("t-0", "later")
    for name in ("x", "y"):
        producer = TransactionalProducer(harness, name)
        producer.init()
        producer.add("t-0")
        producer.end(True)
    harness.takes.clear()
    complete = TransactionCoordinator.complete

    def complete_others(self: TransactionCoordinator, transaction: Transaction) -> None:
        if transaction.transactional_id == "x":
            raise RuntimeError("a mistake")
        complete(self, transaction)

    monkeypatch.setattr(TransactionCoordinator, "complete", complete_others)
    harness.restart()
    assert harness.shard.transactions["y"].state is TransactionState.COMPLETE_COMMIT
    assert [entry.levelname for entry in caplog.records if entry.levelname == "ERROR"] == ["ERROR"]
