"""Plans of moves: they are made for brokers, or read from a file in the form of kafka-reassign-partitions.

Also what a plan would move.

{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2, 3]}]}
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from ottla.client.balance import plan_balance
from ottla.client.cluster import ClusterClient
from ottla.client.errors import ClusterError
from ottla.client.failures import Kind, counted
from ottla.client.moves import PlannedMove, partition_sizes, racks_of_brokers, replica_sizes, replicas_of_all
from ottla.client.partitions import TopicPartition

#: A larger file is no plan: 100,000 partitions with their names take 20 MB.
FILE_BYTES_MAX = 64 * 1024 * 1024
EXAMPLE = '{"partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2, 3]}]}'


def moves_between(
    before: Mapping[TopicPartition, list[int]],
    after: Mapping[TopicPartition, list[int]],
    sizes: Mapping[TopicPartition, int],
) -> list[PlannedMove]:
    """Return the moves that lead from `before` to `after`. Partitions that stay as they are have none."""
    return [
        PlannedMove(*place, before[place], nodes, sizes.get(place, 0) * len(set(nodes) - set(before[place])))
        for place, nodes in sorted(after.items())
        if nodes != before[place]
    ]


def write_moves(replicas: Mapping[TopicPartition, list[int]], indent: int | None = 1) -> bytes:
    """Return the text of a file with these replicas. Without an indent it is one line."""
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


def read_brokers(option: str, text: str) -> list[int]:
    """Return the brokers of a list such as 1,2,3, in its order.

    Raises:
        ClusterError: the text is no such list, or names a broker twice: a partition has one replica at most on each.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and part.isascii() and len(part) < 11 for part in parts):
        raise ClusterError(f"{option} {text!r} is no list of brokers", f"for example {option} 1,2,3", Kind.WRONG)
    brokers = [int(part) for part in parts]
    if twice := next((broker for broker in brokers if brokers.count(broker) > 1), None):
        raise ClusterError(f"{option} {text!r} names broker {twice} twice", None, Kind.WRONG)
    return brokers


async def plan_moves(
    cluster: ClusterClient, places: Iterable[TopicPartition] | None, brokers: Iterable[int] | None
) -> list[PlannedMove]:
    """Plan to have partitions (None: all) on some brokers only (None: all that take part), evenly and over their racks.

    Raises:
        ClusterError: a broker takes no part, or a partition has more replicas than there would be brokers.
    """
    racks = await racks_of_brokers(cluster)
    wanted = sorted(racks if brokers is None else brokers)
    before = await replicas_of_all(cluster)
    moved = list(before if places is None else places)
    _check_present(moved, before, wanted, racks)
    sizes = partition_sizes(await replica_sizes(cluster, racks))
    balance = plan_balance({place: before[place] for place in moved}, sizes, {node: racks[node] for node in wanted})
    refuse_stuck(balance.stuck)
    return moves_between(before, balance.replicas, sizes)


async def moves_to(cluster: ClusterClient, target: Mapping[TopicPartition, list[int]]) -> list[PlannedMove]:
    """Return the moves of a plan, from the replicas as they are now.

    Raises:
        ClusterError: it names a partition or a broker that is not there.
    """
    before = await replicas_of_all(cluster)
    racks = await racks_of_brokers(cluster)
    _check_present(target, before, {node for nodes in target.values() for node in nodes}, racks)
    nodes = {node for place in target for node in before[place]}
    return moves_between(before, target, partition_sizes(await replica_sizes(cluster, nodes, target)))


def _check_present(
    places: Iterable[TopicPartition],
    known: Mapping[TopicPartition, object],
    brokers: Iterable[int],
    racks: Mapping[int, object],
) -> None:
    if unknown := sorted(set(places) - known.keys()):
        name, index = unknown[0]
        raise ClusterError(f"there is no partition {name}-{index}", kind=Kind.NO_SUCH_PARTITION)
    if gone := sorted(set(brokers) - racks.keys()):
        raise ClusterError(f"broker {gone[0]} takes no part", kind=Kind.NO_SUCH_BROKER)


def refuse_stuck(stuck: list[TopicPartition]) -> None:
    """Reject a plan with partitions for which there are too few brokers."""
    if stuck:
        name, index = stuck[0]
        raise ClusterError(
            f"there would be fewer brokers than replicas of {counted(len(stuck), 'partition')}, such as {name}-{index}",
            kind=Kind.TOO_FEW_BROKERS,
        )
