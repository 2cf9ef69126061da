"""Plays sequences on two sides, and shrinks those that are answered differently."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from tests.broker.groups.sequences.sides import PROPERTIES, of_broker, of_simulation
from tests.broker.groups.sequences.step import Sequence
from tests.sim.loop import run

Numbered: TypeAlias = list[tuple[int, Sequence]]
#: The number of sequences in one call of the broker.
AT_ONCE = 250
SHRUNK_ROUNDS_MAX = 12
TIMES = 3


class Difference(NamedTuple):
    sequence: Sequence
    kafka: list[str]
    ours: list[str]

    @property
    def is_real(self) -> bool:
        return self.kafka != self.ours

    @property
    def first(self) -> int:
        pairs = itertools.zip_longest(self.kafka, self.ours)
        return next(index for index, (kafka, ours) in enumerate(pairs) if kafka != ours)

    def cut(self) -> Difference:
        """Return a difference with the lines up to the first one that differs."""
        end = self.first + 1
        return Difference(self.sequence.of(self.sequence.steps[:end]), self.kafka[:end], self.ours[:end])

    def lines(self) -> Iterator[str]:
        yield self.sequence.head
        for step, kafka, ours in zip(self.sequence.steps, self.kafka, self.ours, strict=False):
            yield str(step)
            if kafka == ours:
                yield f"    {kafka}"
            else:
                yield f"  Kafka: {kafka}"
                yield f"  ours:  {ours}"


class Comparison:
    """A comparison of two brokers: `next_number` returns numbers that no group or topic of the broker has in its name; the
    broker was started with `properties`.
    """

    def __init__(self, port: int, next_number: Callable[[], int], properties: Mapping[str, str] = PROPERTIES) -> None:
        self.port, self.next_number, self.properties = port, next_number, properties

    def compared(self, sequences: list[Sequence]) -> list[Difference]:
        found = []
        for first in range(0, len(sequences), AT_ONCE):
            some = sequences[first : first + AT_ONCE]
            numbered = [(self.next_number(), sequence) for sequence in some]
            kafka = asyncio.run(of_broker(self.port, numbered))
            logging.disable(logging.WARNING)  # warnings of the node in the simulator
            ours = run(of_simulation(numbered, self.properties))
            logging.disable(logging.NOTSET)
            found += map(Difference, some, kafka, ours)
        return found

    def agreed(self, sequences: list[Sequence]) -> list[Difference]:
        """Return the sequences without the steps to which the two sides give different answers."""
        return [each for each in self.compared(sequences) if not each.is_real]

    def differing(self, sequences: list[Sequence]) -> list[Difference]:
        """Return the differences that appear each time: the broker runs in real time, where something may come late once."""
        found: list[Difference] = []
        for _ in range(TIMES):
            found = [each for each in self.compared(sequences) if each.is_real]
            sequences = [each.sequence for each in found]
        return found

    def shrunk(self, difference: Difference) -> Difference:
        """Return the sequence without the steps that the difference does not need to appear."""
        steps = difference.sequence.steps[: difference.first + 1]
        for _ in range(SHRUNK_ROUNDS_MAX):
            shorter = [difference.sequence.of(steps[:at] + steps[at + size :]) for at, size in _pieces(len(steps) - 1)]
            found = self.differing(shorter)
            if not found:
                break
            difference = min(found, key=lambda each: each.first)
            steps = difference.sequence.steps[: difference.first + 1]
        return self.compared([difference.sequence.of(steps)])[0]


def _pieces(count: int) -> Iterator[tuple[int, int]]:
    size = count // 2
    while size:
        yield from ((at, size) for at in range(0, count, size))
        size //= 2
