"""Random sequences of requests of consumer, share and streams groups, sent to Apache Kafka and to Ottla.

The sequences, and those with recorded answers, are in tests/broker/groups/sequences.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from random import Random

from tests.broker.groups.sequences.compare import Comparison, Difference
from tests.broker.groups.sequences.generators import GENERATORS
from tests.broker.groups.sequences.sides import BIDIRECTIONAL, POLICIES, POLICY, PROPERTIES
from tests.broker.groups.sequences.step import Sequence
from tools import apache_kafka

BASE_PORT = 32170
SEQUENCES = 2_000
#: The number of sequences for one broker, before a fresh one takes its place. Topics and groups stay on the broker: each
#: sequence keeps two or three files open (a broker shuts down at its limit of file descriptors) and some 100 KB of the JVM's
#: heap of 1 GB.
PER_BROKER = 1_000
#: Sequences whose answers differ by a row of docs/DIFFERENCES.md.
LEFT_OUT = {
    "consumer": {1201, 1466},  # the uniform assignor: the member that gets the extra partition is another one
    "mixed upgrade": {90},  # a classic member joins after the last of the others has left
    "mixed disabled": {15, 57, 114, 115, 132, 139, 170},  # JoinGroup comes to an empty consumer group
}
#: Sequences with classic members for each other value of group.consumer.migration.policy.
PER_POLICY = 200
#: The number of differences that are made as short as possible. This takes a minute for each.
SHRUNK_MAX = 5


def sequences(kind: str, count: int, first: int = 0, policy: str = BIDIRECTIONAL) -> list[Sequence]:
    known = LEFT_OUT.get(kind if policy == BIDIRECTIONAL else f"{kind} {policy}", ())
    seeds = (seed for seed in range(first, first + count) if seed not in known)
    return [GENERATORS[kind](Random(f"{kind} {seed}")) for seed in seeds]


def compared(kind: str, show: Callable[[Difference], None], count: int = SEQUENCES) -> Iterator[int]:
    """Compare sequences, and yield how many of each part differ."""
    parts = [(first, min(PER_BROKER, count - first), BIDIRECTIONAL) for first in range(0, count, PER_BROKER)]
    if kind == "mixed":
        parts += [(0, min(PER_POLICY, count), policy) for policy in POLICIES if policy != BIDIRECTIONAL]
    for first, some, policy in parts:
        properties = PROPERTIES | {POLICY: policy}
        with apache_kafka.ApacheKafka(BASE_PORT, properties=properties):
            comparison = Comparison(BASE_PORT, itertools.count(1).__next__, properties)
            found = comparison.differing(sequences(kind, some, first, policy))
            for difference in found[:SHRUNK_MAX]:
                show(comparison.shrunk(difference))
        yield len(found)
