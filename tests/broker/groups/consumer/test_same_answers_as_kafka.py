"""A coordinator of ours answers a script of requests as Apache Kafka 4.3.1 did."""

from __future__ import annotations

from pathlib import Path

from tests.broker.groups.consumer.scripted import Script
from tests.broker.groups.scripted import Harness

ANSWERS = Path(__file__).with_name("kafka_answers.txt")


def test_consumer_groups_answer_a_script_as_kafka_does() -> None:
    assert list(Script(Harness()).answers()) == ANSWERS.read_text().splitlines()
