"""The plans of kafka-reassign-partitions: the brokers of each partition, and the log directories of its replicas."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from random import Random
from typing import NamedTuple

from ottla.cli.shims.json_files import place_of, read_object, repeated, rows_of
from ottla.cli.shims.tool import Unusable
from ottla.client.partitions import TopicPartition

#: This word in a plan lets the broker choose the directory.
ANY_DIRECTORY = "any"


class PlannedReplica(NamedTuple):
    """A partition on one broker."""

    topic: str
    partition: int
    broker: int


class MovePlan(NamedTuple):
    """The brokers of each partition, and the directories of those replicas for which the plan names one."""

    replicas: dict[TopicPartition, list[int]]
    directories: dict[PlannedReplica, str]

    def check(self) -> None:
        """Reject a plan that moves nothing, moves to no broker, or moves to one broker twice."""
        if not self.replicas:
            raise Unusable("Partition reassignment list cannot be empty")
        if not all(self.replicas.values()):
            raise Unusable("Partition replica list cannot be empty")
        for (name, index), brokers in sorted(self.replicas.items()):
            if twice := sorted({broker for broker in brokers if brokers.count(broker) > 1}):
                which = ",".join(map(str, twice))
                raise Unusable(
                    f"Partition replica lists may not contain duplicate entries: {name}-{index} contains multiple entries for {which}"
                )


def read_plan(path: str, *, once: bool = True) -> MovePlan:
    """Return the plan in a file. With `once` a partition may occur only one time.

    Raises:
        Unusable: the file has no plan.
    """
    rows = rows_of(read_object(path), "partitions", "topic", "partition", "replicas")
    if once and (twice := repeated([place_of(row) for row in rows])):
        raise Unusable(f"Partition reassignment contains duplicate topic partitions: {','.join(twice)}")
    replicas: dict[TopicPartition, list[int]] = {}
    directories: dict[PlannedReplica, str] = {}
    for row in rows:
        place, brokers = place_of(row), _numbers(row["replicas"])
        paths = row.get("log_dirs", [ANY_DIRECTORY] * len(brokers))
        if not isinstance(paths, list) or len(paths) != len(brokers):
            raise Unusable(
                f"Size of replicas list {brokers} is different from size of log dirs list {paths} for partition "
                f"{place[0]}-{place[1]}"
            )
        replicas[place] = brokers
        directories.update(
            (PlannedReplica(*place, broker), str(chosen))
            for broker, chosen in zip(brokers, paths, strict=True)
            if chosen != ANY_DIRECTORY
        )
    return MovePlan(replicas, directories)


def _numbers(value: object) -> list[int]:
    if not isinstance(value, list) or not all(isinstance(item, int) for item in value):
        raise Unusable(f"Expected a list of broker ids, received {json.dumps(value)}")
    return value


def plan_json(plan: MovePlan) -> str:
    rows = [
        {
            "topic": name,
            "partition": index,
            "replicas": brokers,
            "log_dirs": [
                plan.directories.get(PlannedReplica(name, index, broker), ANY_DIRECTORY) for broker in brokers
            ],
        }
        for (name, index), brokers in sorted(plan.replicas.items())
    ]
    return json.dumps({"version": 1, "partitions": rows}, separators=(",", ":"))


def read_topics(path: str) -> list[str]:
    names = [str(row["topic"]) for row in rows_of(read_object(path), "topics", "topic")]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise Unusable(f"List of topics to reassign contains duplicate entries: [{', '.join(twice)}]")
    return names


def read_brokers(text: str) -> list[int]:
    try:
        brokers = [int(word) for word in text.split(",")]
    except ValueError:
        raise Unusable(f'For input string: "{text}"') from None
    if twice := sorted({broker for broker in brokers if brokers.count(broker) > 1}):
        raise Unusable(f"Broker list contains duplicate entries: {twice}")
    return brokers


def proposed(
    current: Mapping[TopicPartition, Sequence[int]], racks: Mapping[int, str | None], rng: Random
) -> dict[TopicPartition, list[int]]:
    """Spread the partitions of each topic over the brokers, and the replicas of each partition over the racks.

    Raises:
        Unusable: some brokers have no rack, or there are fewer brokers than replicas.
    """
    if len({rack is None for rack in racks.values()}) > 1:
        raise Unusable(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to make replica assignment "
            "without rack information."
        )
    order = _rack_after_rack(racks)
    found: dict[TopicPartition, list[int]] = {}
    starts: dict[str, int] = {}
    for (name, index), replicas in sorted(current.items()):
        if not order:
            raise Unusable("All brokers are currently fenced, or have all their log directories cordoned.")
        if len(replicas) > len(order):
            raise Unusable(f"Replication factor: {len(replicas)} larger than available brokers: {len(order)}")
        start = starts.setdefault(name, rng.randrange(len(order))) + index
        candidates = [order[(start + step) % len(order)] for step in range(len(order))]
        chosen: list[int] = []
        used: set[str | None] = set()
        for _ in replicas:
            free = [broker for broker in candidates if broker not in chosen]
            broker = next((broker for broker in free if racks[broker] not in used), free[0])
            chosen.append(broker)
            used.add(racks[broker])
        found[name, index] = chosen
    return found


def _rack_after_rack(racks: Mapping[int, str | None]) -> list[int]:
    """Return the brokers in an order in which neighbours are in different racks, as far as possible."""
    rows: dict[str | None, list[int]] = {}
    for broker, rack in sorted(racks.items()):
        rows.setdefault(rack, []).append(broker)
    turns = max(map(len, rows.values()), default=0)
    return [row[turn] for turn in range(turns) for row in rows.values() if turn < len(row)]
