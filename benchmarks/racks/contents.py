"""The topics of the benchmark, and the records that are in all of their partitions before anything is measured."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack

from benchmarks.racks.fleet import Fleet, wait_until
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records.builder import build_batch

RECORDS, RECORD_BYTES = 10, 1_000
#: The number of partitions in one request.
AT_ONCE = 500
IN_SYNC_SECONDS_MAX = 180
WRITTEN_AT_ONCE = 100
LEADERS_AT_ONCE = 8
TIMEOUT_MS = 30_000
PRODUCE_VERSION, CREATE_VERSION = 9, 7
ROUNDS_MAX = 20


def topic_names(count: int) -> list[str]:
    return [f"topic-{number}" for number in range(count)]


def create(fleet: Fleet, names: Sequence[str], partitions: int, replicas: int) -> None:
    """Create the topics, some at a time: all nodes replay the records of all partitions, and share the same processors."""
    size = max(1, AT_ONCE // partitions)
    for begin in range(0, len(names), size):
        new = [
            CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas)
            for name in names[begin : begin + size]
        ]
        request = CreateTopicsRequest(new, TIMEOUT_MS, False)
        for each in fleet.request(request, CREATE_VERSION, fleet.brokers[0]).topics:
            # The first attempt may have succeeded, and its response may have been lost.
            if each.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                raise RuntimeError(f"topic {each.name}: {each.error_message}")
        wait_in_sync(fleet, names[begin : begin + size], partitions)


def wait_in_sync(fleet: Fleet, names: Sequence[str], partitions: int) -> None:
    def are_all() -> bool:
        known = fleet.known(1, names)
        return len(known.partitions) == len(names) * partitions and not known.out_of_sync()

    wait_until(f"topics {names[0]} to {names[-1]} in sync", are_all, IN_SYNC_SECONDS_MAX)


def fill(fleet: Fleet) -> None:
    """Write one batch into each partition, acknowledged by all replicas in sync. Several leaders work at once, because all
    replicas wait for the disk.
    """
    batch = build_batch([(None, bytes(RECORD_BYTES), int(time.time() * 1000))] * RECORDS)
    missing = set(fleet.known(1).partitions)
    for _ in range(ROUNDS_MAX):
        waiting = list(_by_leader(fleet, missing).items())
        while waiting:
            some, waiting = waiting[:LEADERS_AT_ONCE], waiting[LEADERS_AT_ONCE:]
            missing.difference_update(_written(fleet, dict(some), batch))
        if not missing:
            return
        time.sleep(1)  # some leaders are not known everywhere yet
    raise TimeoutError(f"{len(missing)} partitions take no records")


def _by_leader(fleet: Fleet, wanted: set[tuple[str, int]]) -> dict[int, list[tuple[str, int]]]:
    found = defaultdict[int, list[tuple[str, int]]](list)
    for place, (leader, _, _) in fleet.known(1).partitions.items():
        if leader >= 0 and place in wanted:
            found[leader].append(place)
    return found


def _written(
    fleet: Fleet, by_leader: Mapping[int, Sequence[tuple[str, int]]], batch: bytes
) -> Iterator[tuple[str, int]]:
    """Yield the partitions whose leader has acknowledged the batch."""
    portions = max(map(len, by_leader.values()))
    with ExitStack() as closing:
        connections = {broker: closing.enter_context(fleet.connection(broker)) for broker in by_leader}
        for begin in range(0, portions, WRITTEN_AT_ONCE):
            asked = []
            for broker, places in by_leader.items():
                if some := places[begin : begin + WRITTEN_AT_ONCE]:
                    connections[broker].send(_request(some, batch), PRODUCE_VERSION)
                    asked.append(broker)
            for broker in asked:
                for topic in connections[broker].receive().responses:
                    yield from ((topic.name, each.index) for each in topic.partition_responses if not each.error_code)


def _request(places: Sequence[tuple[str, int]], batch: bytes) -> ProduceRequest:
    topics = defaultdict[str, list[PartitionProduceData]](list)
    for name, number in places:
        topics[name].append(PartitionProduceData(number, batch))
    data = [TopicProduceData(name=name, partition_data=each) for name, each in topics.items()]
    return ProduceRequest(None, -1, TIMEOUT_MS, data)
