"""Turns of an event loop that only runs what is due, each measured in CPU time; and the metadata that is measured."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Any

from benchmarks.usage import anonymous_megabytes
from ottla.protocol.internal_topics.metadata_records import PartitionRecord, TopicRecord
from tests.controller.harness import directory

BROKERS, REPLICAS = 50, 3
MS = 1e3


class TurnTimer:
    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class TurnClock:
    """A clock that stands still; `due` runs what was asked for at once, and each call is a turn."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._timers: list[tuple[float, int, TurnTimer]] = []
        self._count = 0

    def wall_ms(self) -> int:
        return self.now_ms

    def mono_ms(self) -> int:
        return self.now_ms

    def mono_ns(self) -> int:
        return self.now_ms * 1_000_000

    def call_later(self, delay_ms: float, callback: Callable[[], object]) -> TurnTimer:
        timer = TurnTimer(callback)
        self._count += 1
        heappush(self._timers, (self.now_ms + delay_ms, self._count, timer))
        return timer

    def due(self, until_ms: int = 0) -> Iterator[None]:
        """Runs a timer at each step, those of the next `until_ms` too."""
        end_ms = self.now_ms + until_ms
        while self._timers and self._timers[0][0] <= end_ms:
            at_ms, _, timer = heappop(self._timers)
            self.now_ms = max(self.now_ms, int(at_ms))
            if timer.callback is not None:
                timer.callback()
                yield


class Figures:
    """By part: the whole CPU time in ms; after it, where it is done in turns, their number and the longest."""

    def __init__(self) -> None:
        self.found: dict[str, list[float]] = {}
        self._heap = heap_megabytes()

    def turns(self, name: str, steps: Iterator[object]) -> None:
        """Each step of the iterator is one turn; what follows the last one is a turn as well."""
        whole, count, longest, ended = 0.0, 0, 0.0, False
        while not ended:
            began = time.process_time()
            ended = next(steps, steps) is steps
            took = (time.process_time() - began) * MS
            whole, longest = whole + took, max(longest, took)
            count += not ended or took > 0.01
        self.found[name] = [whole, count, longest]

    def number(self, name: str, value: float) -> None:
        self.found[name] = [value]

    def heap(self, name: str) -> None:
        """The heap that has come since the last figure of this kind."""
        before, self._heap = self._heap, heap_megabytes()
        self.found[name] = [self._heap - before]


def heap_megabytes() -> float:
    return anonymous_megabytes([os.getpid()])


def topics(partitions: int, of_a_topic: int, *, directory_of_1: bytes = directory(1)) -> Iterator[Any]:
    directories = [directory_of_1, *map(directory, range(2, BROKERS + 1))]
    for number in range(-(-partitions // of_a_topic)):
        topic_id = (number + 1).to_bytes(16, "big")
        yield TopicRecord(name=f"topic-{number}", topic_id=topic_id)
        for index in range(of_a_topic):
            first = (number * 7 + index) % BROKERS
            replicas = [1 + (first + each) % BROKERS for each in range(REPLICAS)]
            yield PartitionRecord(
                partition_id=index, topic_id=topic_id, replicas=replicas, isr=replicas, leader=replicas[0],
                leader_epoch=0, partition_epoch=0, directories=[directories[each - 1] for each in replicas],
            )  # fmt: skip
