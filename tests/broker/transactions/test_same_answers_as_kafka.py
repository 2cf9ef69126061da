"""The answers that Apache Kafka 4.3.1 gave to a long sequence of requests, and Ottla's: they are the same line by line, except
for the intended differences.
"""

from __future__ import annotations

from pathlib import Path

from tests.broker.conftest import Node
from tests.broker.transactions.request_recorder import record

KAFKA_ANSWERS = Path(__file__).parent / "kafka_answers.txt"

# A commit after the coordinator's own abort: Kafka after 4.3 returns an error from which clients recover (KAFKA-20785).
MEANT = {"commit a epoch 2 v5: INVALID_TXN_STATE - -1": "commit a epoch 2 v5: PRODUCER_FENCED - -1"}


def test_we_answer_as_kafka_does(node: Node) -> None:
    kafka = KAFKA_ANSWERS.read_text().splitlines()
    assert len(kafka) > 160
    assert set(MEANT) <= set(kafka)
    assert record(node.port) == [MEANT.get(line, line) for line in kafka]
