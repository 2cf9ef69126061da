"""Plans of moves in a file, in the form of kafka-reassign-partitions, and what carrying one out moves.

{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2, 3]}]}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from ottla.client.errors import ClusterError, Kind
from ottla.client.partitions import TopicPartition

#: A file that is larger is no plan: 100,000 partitions with their names take 20 MB.
FILE_BYTES_MAX = 64 * 1024 * 1024
EXAMPLE = '{"partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2, 3]}]}'


class PlannedMove(NamedTuple):
    """The move of one partition: its replicas before and after, and the bytes that new replicas have to fetch."""

    topic: str
    partition: int
    before: list[int]
    after: list[int]
    bytes: int

    @property
    def place(self) -> TopicPartition:
        return self.topic, self.partition

    @property
    def adding(self) -> list[int]:
        return [node for node in self.after if node not in self.before]

    @property
    def changes_leader(self) -> bool:
        """Return whether another replica is the preferred leader afterwards."""
        return self.before[:1] != self.after[:1]

    def row(self) -> dict[str, object]:
        """Return the fields that are shown."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "replicas": self.before,
            "new_replicas": self.after,
            "bytes": self.bytes,
        }


def moves_between(
    before: Mapping[TopicPartition, list[int]],
    after: Mapping[TopicPartition, list[int]],
    sizes: Mapping[TopicPartition, int],
) -> list[PlannedMove]:
    """Return the moves from one to the other; partitions that stay as they are have none."""
    return [
        PlannedMove(*place, before[place], nodes, sizes.get(place, 0) * len(set(nodes) - set(before[place])))
        for place, nodes in sorted(after.items())
        if nodes != before[place]
    ]


def write_moves(replicas: Mapping[TopicPartition, list[int]], indent: int | None = 1) -> bytes:
    """Return a file of these replicas; without an indent it is one line."""
    rows = [{"topic": name, "partition": index, "replicas": nodes} for (name, index), nodes in sorted(replicas.items())]
    return json.dumps({"version": 1, "partitions": rows}, indent=indent).encode() + b"\n"


def read_moves(path: str) -> dict[TopicPartition, list[int]]:
    """Return the replicas of a file.

    Raises:
        ClusterError: it cannot be read, or is no plan.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as fault:
        raise ClusterError(f"{path} cannot be read: {fault.strerror}", None, Kind.WRONG) from None
    if len(data) > FILE_BYTES_MAX:
        raise ClusterError(f"{path} is larger than {FILE_BYTES_MAX} bytes", "that is no plan", Kind.WRONG)
    return parse_moves(data, path)


def parse_moves(data: bytes, source: str) -> dict[TopicPartition, list[int]]:
    """Return the replicas of a plan that was read from `source`.

    Raises:
        ClusterError: it is no plan; the message names the place.
    """
    try:
        plan = json.loads(data)
    except (ValueError, RecursionError) as fault:
        raise _wrong(source, f"no JSON: {fault}") from None
    rows = plan.get("partitions") if isinstance(plan, dict) else None
    if not isinstance(rows, list) or not rows:
        raise _wrong(source, "there are no partitions in it")
    found: dict[TopicPartition, list[int]] = {}
    for number, row in enumerate(rows):
        where = f"{source}: partitions[{number}]"
        if not isinstance(row, dict):
            raise _wrong(where, "an object is wanted")
        name, index, nodes = row.get("topic"), row.get("partition"), row.get("replicas")
        if not isinstance(name, str) or not name:
            raise _wrong(where, "topic is no name")
        if type(index) is not int or not 0 <= index < 2**31:
            raise _wrong(where, "partition is no number from 0")
        if (
            not isinstance(nodes, list)
            or not nodes
            or any(type(node) is not int or not 0 <= node < 2**31 for node in nodes)
        ):
            raise _wrong(where, "replicas are no list of brokers")
        if len(set(nodes)) != len(nodes):
            raise _wrong(where, f"a broker is twice in {nodes}")
        if (name, index) in found:
            raise _wrong(where, f"{name}-{index} is there twice")
        found[name, index] = nodes
    return found


def _wrong(where: str, what: str) -> ClusterError:
    return ClusterError(f"{where}: {what}", EXAMPLE, Kind.WRONG)
