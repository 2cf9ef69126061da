"""The answers that Apache Kafka 4.3.1 gave to a long sequence of requests, and ours: line by line the same."""

from __future__ import annotations

from pathlib import Path

from tests.broker.groups.request_recorder import InProcess, record

KAFKA_ANSWERS = Path(__file__).parent / "kafka_answers.txt"


def test_we_answer_as_kafka_does() -> None:
    ours = record(InProcess(), "group1700000000").splitlines()
    kafka = KAFKA_ANSWERS.read_text().splitlines()
    assert len(kafka) > 280
    assert ours == kafka
