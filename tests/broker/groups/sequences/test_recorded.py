"""Sequences that were played against Apache Kafka 4.3.1: a node in virtual time answers each of them as that did."""

from __future__ import annotations

import pytest

from tests.broker.groups.sequences.recorded import recorded
from tests.broker.groups.sequences.sides import of_simulation
from tests.broker.groups.sequences.step import Sequence, written
from tests.sim.loop import run


@pytest.mark.parametrize("kind", ["consumer", "share", "streams"])
def test_random_sequences_are_answered_as_kafka_answered_them(kind: str) -> None:
    sequences: list[tuple[Sequence, list[str]]] = [each for each in recorded() if each[0].kind == kind]
    assert len(sequences) >= 20
    ours = run(of_simulation([(number, sequence) for number, (sequence, _) in enumerate(sequences)]))
    for (sequence, kafka), answers in zip(sequences, ours, strict=True):
        assert written(sequence, answers) == written(sequence, kafka)
