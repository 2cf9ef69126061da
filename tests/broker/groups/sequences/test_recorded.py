"""Sequences that were played against Apache Kafka 4.3.1: a node in virtual time answers each of them in the same way."""

from __future__ import annotations

import pytest

from tests.broker.groups.sequences import requests
from tests.broker.groups.sequences.recorded import recorded, recorded_requests
from tests.broker.groups.sequences.sides import PROPERTIES, of_simulation
from tests.broker.groups.sequences.step import Sequence, written
from tests.sim.loop import run

#: The responses that differ from Kafka's: file and line, and the ends of Kafka's and of Ottla's response.
DIFFERENT = {
    # The member has not reported exactly its assignment, and gets it again (docs/DIFFERENCES.md).
    **{
        ("consumer_group", line): (
            "heartbeat_interval_ms=5000",
            f"heartbeat_interval_ms=5000 assignment={{topic_partitions=[{{topic_id=t partitions=[{partitions}]}}]}}",
        )
        for line, partitions in ((37, "0,1,2,3"), (57, "0,1"), (59, "0,1"), (105, "0,1,2,3"))
    },
    **{
        ("consumer_group_configs", line): (
            f"heartbeat_interval_ms={interval}",
            f"heartbeat_interval_ms={interval} assignment={{topic_partitions=[{{topic_id=t partitions=[0,1,2,3]}}]}}",
        )
        for line, interval in ((9, 700), (43, 5000))
    },
    # The member reports that it lacks an assigned task, and gets its tasks again (docs/DIFFERENCES.md).
    ("streams_group_two_members", 43): (
        "acceptable_recovery_lag=-1",
        "acceptable_recovery_lag=-1 active_tasks=[{subtopology_id='0' partitions=[0,1]}]",
    ),
}


@pytest.mark.parametrize("kind", ["consumer", "share", "streams"])
def test_random_sequences_are_answered_as_kafka_answered_them(kind: str) -> None:
    sequences: list[tuple[Sequence, list[str]]] = [each for each in recorded() if each[0].kind == kind]
    assert len(sequences) >= 20
    ours = run(of_simulation([(number, sequence) for number, (sequence, _) in enumerate(sequences)]))
    for (sequence, kafka), answers in zip(sequences, ours, strict=True):
        assert written(sequence, answers) == written(sequence, kafka)


def test_requests_are_answered_as_kafka_answered_them() -> None:
    known = recorded_requests()
    sequences = list(enumerate(sequence for sequence, _ in known.values()))
    answered = run(of_simulation(sequences, PROPERTIES | requests.PROPERTIES))
    steps = 0
    for (path, (sequence, kafka)), answers in zip(known.items(), answered, strict=True):
        expected, ours = written(sequence, kafka), written(sequence, answers)
        for (file, line), (kafkas, own) in DIFFERENT.items():
            if file == path.stem:
                assert expected[line - 1].endswith(kafkas)
                expected[line - 1] = expected[line - 1].removesuffix(kafkas) + own
        assert ours == expected, path.name
        steps += len(answers)
    assert steps > 400
