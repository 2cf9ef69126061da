"""A coordinator of ours answers a script of requests as Apache Kafka 4.3.1 did."""

from __future__ import annotations

from pathlib import Path

from tests.broker.groups.scripted import Harness
from tests.broker.groups.streams.scripted import Script

ANSWERS = Path(__file__).with_name("kafka_answers.txt")


#: The member says that it lacks a task that it was given, and gets its tasks again (docs/DIFFERENCES.md): line, Kafka's answer, ours.
DIFFERENT = (65, "a epoch=3 interval=5000", "a epoch=3 interval=5000 0_0 0_1//")


def test_streams_groups_answer_a_script_as_kafka_does() -> None:
    answers, (line, kafkas, ours) = ANSWERS.read_text().splitlines(), DIFFERENT
    assert answers[line] == kafkas
    answers[line] = ours
    assert list(Script(Harness()).answers()) == answers
