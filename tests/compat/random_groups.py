"""Random sequences of requests of consumer, share and streams groups, against Apache Kafka and against us.

The sequences, and the ones whose answers are recorded, are in tests/broker/groups/sequences.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from random import Random

from tests.broker.groups.sequences.compare import Comparison, Difference
from tests.broker.groups.sequences.generators import GENERATORS
from tests.broker.groups.sequences.sides import PROPERTIES
from tests.broker.groups.sequences.step import Sequence
from tools import apache_kafka

BASE_PORT = 32170
SEQUENCES = 2_000
#: Sequences that one broker answers before a fresh one takes its place. Their topics and groups stay on it: each sequence keeps two or
#: three files open (a broker shuts down at its limit of file descriptors) and some 100 KB of the JVM's heap of 1 GB.
PER_BROKER = 1_000
#: Sequences whose answers differ by a row of docs/DIFFERENCES.md.
LEFT_OUT = {
    "consumer": {1201, 1466},  # the uniform assignor: which member gets the extra partition
}
#: Differences that are made as short as possible, which takes a minute each.
SHRUNK_MAX = 5


def sequences(kind: str, count: int, first: int = 0) -> list[Sequence]:
    seeds = (seed for seed in range(first, first + count) if seed not in LEFT_OUT.get(kind, ()))
    return [GENERATORS[kind](Random(f"{kind} {seed}")) for seed in seeds]


def compared(kind: str, show: Callable[[Difference], None], count: int = SEQUENCES) -> Iterator[int]:
    """How many of each part differ."""
    for first in range(0, count, PER_BROKER):
        with apache_kafka.ApacheKafka(BASE_PORT, properties=PROPERTIES):
            comparison = Comparison(BASE_PORT, itertools.count(1).__next__)
            found = comparison.differing(sequences(kind, min(PER_BROKER, count - first), first))
            for difference in found[:SHRUNK_MAX]:
                show(comparison.shrunk(difference))
        yield len(found)
