"""What the metadata of many partitions costs, part by part, in CPU time: `python -m benchmarks.scale [partitions ...]`.

Each part is measured at several sizes with 50 brokers and three replicas, in a process of its own, and prolonged to a million
partitions by a straight line through the two largest sizes. Nothing here is a network or a disk: it is what the event loops of
the active controller and of the brokers have to do. docs/SCALE.md has a run.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from benchmarks.usage import anonymous_megabytes
from ottla.controller.decisions.brokers import fence_records, unfence_records
from ottla.controller.decisions.index import ClusterIndex
from ottla.controller.decisions.unsettled import PARTITIONS_PER_TURN, left_by_broker, settle
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.encoding import encode_metadata
from ottla.process import GC_THRESHOLDS
from ottla.protocol.internal_topics.metadata_records import PartitionRecord, TopicRecord, decode_record
from ottla.protocol.work import do_now
from tests.controller.harness import DecisionHarness, directory

SIZES = (10_000, 50_000, 200_000)
PROLONGED = 1_000_000
BROKERS, REPLICAS, PARTITIONS_OF_A_TOPIC = 50, 3, 100
RECORDS_A_BATCH = 500
MS = 1e3


def topics(partitions: int) -> Iterator[Any]:
    for number in range(partitions // PARTITIONS_OF_A_TOPIC):
        topic_id = (number + 1).to_bytes(16, "big")
        yield TopicRecord(name=f"topic-{number}", topic_id=topic_id)
        for index in range(PARTITIONS_OF_A_TOPIC):
            first = (number * 7 + index) % BROKERS
            replicas = [1 + (first + each) % BROKERS for each in range(REPLICAS)]
            yield PartitionRecord(
                partition_id=index, topic_id=topic_id, replicas=replicas, isr=replicas, leader=replicas[0],
                leader_epoch=0, partition_epoch=0, directories=[directory(each) for each in replicas],
            )  # fmt: skip


class Parts:
    """The figures of one size: CPU milliseconds, and those of the longest of several turns."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.found: dict[str, float] = {}

    def whole(self, name: str, call: Callable[[], Any]) -> Any:
        began = time.process_time()
        result = call()
        self.found[name] = (time.process_time() - began) * MS
        return result

    def turns(self, name: str, calls: Iterator[Any]) -> None:
        """Each step of the iterator is one turn of the loop."""
        whole = longest = 0.0
        while True:
            began = time.process_time()
            ended = next(calls, calls) is calls
            took = (time.process_time() - began) * MS
            whole, longest = whole + took, max(longest, took)
            if ended:
                break
        self.found[name] = whole
        self.found[f"{name}: longest turn"] = longest

    def load(self, cluster: DecisionHarness) -> None:
        """A snapshot of the topics, from records to bytes and from bytes to the image."""
        version = cluster.image.features.metadata_version
        records = list(topics(self.partitions))
        batches = [records[at : at + RECORDS_A_BATCH] for at in range(0, len(records), RECORDS_A_BATCH)]
        encoded = self.whole("snapshot: encode", lambda: [encode_metadata(batch, version) for batch in batches])
        self.found["snapshot: MB"] = sum(len(value) for batch in encoded for value in batch) / 1e6
        delta = MetadataDelta(cluster.image)
        self.whole(
            "snapshot: decode and replay",
            lambda: [delta.replay_all(decode_record(value)[0] for value in batch) for batch in encoded],
        )
        cluster.state.image = self.whole("snapshot: new image", lambda: delta.apply(1, 1))

    def measure(self) -> None:
        heap = anonymous_megabytes([os.getpid()])
        cluster = DecisionHarness(BROKERS)
        self.load(cluster)
        gc.collect()
        self.found["image: heap MB"] = anonymous_megabytes([os.getpid()]) - heap
        cluster.state.index = self.whole(
            "election: index of the active controller", lambda: do_now(ClusterIndex.building(cluster.image))
        )
        cluster.replay([])
        self.turns("fence one broker", self.settling(cluster, 1, lambda: fence_records(cluster.state, 1)))
        self.turns("unfence it", self.settling(cluster, 1, lambda: unfence_records(cluster.state, 1, cluster.epoch(1))))
        for broker_id in range(1, BROKERS + 1):
            for _ in self.settling(cluster, broker_id, partial(fence_records, cluster.state, broker_id)):
                pass
        self.turns(
            "unfence one after all were down",
            self.settling(cluster, 2, lambda: unfence_records(cluster.state, 2, cluster.epoch(2))),
        )

    def settling(self, cluster: DecisionHarness, broker_id: int, decide: Callable[[], list[Any]]) -> Iterator[None]:
        cluster.replay(decide())
        yield
        partitions = left_by_broker(cluster.state, broker_id)
        while partitions:
            cluster.decide(settle(cluster.state, partitions))
            del partitions[:PARTITIONS_PER_TURN]
            yield


def line(name: str, by_size: list[tuple[int, float]]) -> str:
    (small, before), (large, after) = by_size[-2:]
    is_bounded = "longest turn" in name
    prolonged = "" if is_bounded else f"{after + (after - before) / (large - small) * (PROLONGED - large):,.0f}"
    return f"| {name} | {' | '.join(f'{value:,.1f}' for _, value in by_size)} | {prolonged} |"


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        gc.set_threshold(*GC_THRESHOLDS)
        parts = Parts(int(sys.argv[2]))
        parts.measure()
        print(json.dumps(parts.found))
        return
    sizes = [int(word) for word in sys.argv[1:]] or SIZES
    found = []
    for size in sizes:
        command = [sys.executable, "-m", "benchmarks.scale", "--one", str(size)]
        found.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    print(f"| CPU ms (unless MB) | {' | '.join(f'{size:,}' for size in sizes)} | {PROLONGED:,} (prolonged) |")
    print(f"| --- |{' --- |' * (len(sizes) + 1)}")
    for name in found[0]:
        print(line(name, [(size, each[name]) for size, each in zip(sizes, found, strict=True)]))


if __name__ == "__main__":
    main()
