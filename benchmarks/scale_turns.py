"""Turns of an event loop, each measured in CPU time; and the metadata that is measured."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.usage import anonymous_megabytes
from ottla.protocol.internal_topics.metadata_records import PartitionRecord, TopicRecord
from tests.controller.harness import directory
from tests.manual_clock import ManualClock

BROKERS, REPLICAS = 50, 3
MS = 1e3


def due(clock: ManualClock) -> Iterator[None]:
    """Run the timers that are due. Each step is a turn: it runs the timers that were due when it began, and none that were set meanwhile."""
    while (armed := clock.armed) and armed[0].at_ms <= clock.now_ms:
        clock.turn()
        yield


class Figures:
    """By part: the whole CPU time in ms, and for work in turns their number and the longest turn."""

    def __init__(self) -> None:
        self.found: dict[str, list[float]] = {}
        self._heap = heap_megabytes()

    def turns(self, name: str, steps: Iterator[object]) -> None:
        """Measure the steps of an iterator, each of which is one turn; the work after the last step is a turn as well."""
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
        """Measure the growth of the heap since the last figure of this kind."""
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
