"""The end of a transaction whose completion cannot be written at once."""

from __future__ import annotations

import pytest

from broker.transactions.state import State
from protocol.errors import ErrorCode, KafkaError
from tests.broker.transactions.lab import Lab, LabProducer


@pytest.mark.parametrize(
    "error",
    [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER],
    ids=["a full disk", "too few replicas", "a leader that does not know it yet"],
)
def test_a_transaction_completes_when_its_log_takes_records_again(error: ErrorCode) -> None:
    lab = Lab()
    producer = LabProducer(lab)
    producer.init()
    lab.marker_behaviour("t-0", "later")
    producer.add("t-0")
    producer.end(True)
    lab.log.refuse = KafkaError(error)
    lab.marker_behaviour("t-0", "NONE")
    lab.clock.advance(1_000)
    assert lab.shard.transactions["x"].state is State.PREPARE_COMMIT
    lab.log.refuse = None
    lab.clock.advance(1_000)
    assert lab.shard.transactions["x"].state is State.COMPLETE_COMMIT
