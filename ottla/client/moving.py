"""Carries out moves of partitions: sizes before, throttle, start, progress in bytes, leaders and throttle at the end.

The brokers move by themselves once they are asked to. A command that is interrupted leaves moves that go on and, if it set one,
the throttle; it says so, and `ottla reassign` has the verbs for the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from ottla.client.brokers import describe_log_dirs
from ottla.client.cluster import ClusterClient, NoConnection
from ottla.client.cluster_error import ClusterError, code_of
from ottla.client.health import describe_cluster
from ottla.client.leaders import TopicPartition
from ottla.client.move_file import PlannedMove
from ottla.client.reassignments import PREFERRED, alter_reassignments, elect_leaders, list_reassignments
from ottla.client.throttles import clear_brokers, clear_topics, throttle_moves
from ottla.protocol.messages.list_partition_reassignments import OngoingPartitionReassignment
from ottla.protocol.messages.shared_structs import TopicNamePartitions

#: Between two looks at moves that go on.
WATCH_S = 1.0
MOVES_AT_ONCE = 500

#: Bytes of each replica.
ReplicaSizes = dict[tuple[TopicPartition, int], int]


async def replicas_of_all(cluster: ClusterClient) -> dict[TopicPartition, list[int]]:
    """Return the replicas of all partitions."""
    return {
        (topic.name or "", part.partition_index): list(part.replica_nodes)
        for topic in (await cluster.metadata(None)).topics
        for part in topic.partitions
    }


async def racks_of_brokers(cluster: ClusterClient) -> dict[int, str | None]:
    """Return the racks of the brokers that take part: fenced ones get no replicas."""
    return {row.broker_id: row.rack for row in (await describe_cluster(cluster)).brokers if not row.is_fenced}


async def replica_sizes(
    cluster: ClusterClient, brokers: Iterable[int], places: Iterable[TopicPartition] | None = None
) -> ReplicaSizes:
    """Return the bytes of the replicas on these brokers; a broker that does not answer has none."""
    topics: list[TopicNamePartitions] | None = None
    if places is not None:
        rows: dict[str, TopicNamePartitions] = {}
        for name, index in sorted(places):
            rows.setdefault(name, TopicNamePartitions(name, [])).partitions.append(index)
        topics = list(rows.values())
    found: ReplicaSizes = {}
    for broker in sorted(set(brokers)):
        try:
            directories = await describe_log_dirs(cluster, broker, topics)
        except NoConnection:
            continue
        for directory in directories:
            for topic in directory.topics:
                for part in topic.partitions:
                    if not part.is_future_key:
                        found[(topic.name, part.partition_index), broker] = part.partition_size
    return found


def partition_sizes(sizes: ReplicaSizes) -> dict[TopicPartition, int]:
    """Return the bytes of each partition: those of its largest replica, which the others have or will have."""
    found: dict[TopicPartition, int] = {}
    for (place, _), size in sizes.items():
        found[place] = max(size, found.get(place, 0))
    return found


async def start_moves(cluster: ClusterClient, moves: list[PlannedMove], throttle: int | None) -> None:
    """Ask for all moves, after setting the throttle.

    Raises:
        ClusterError: a move was refused; none of them goes on then, and the throttle is taken off.
    """
    if throttle is not None:
        async with cluster.limit():
            await throttle_moves(
                cluster, {move.place: (set(move.before), set(move.adding)) for move in moves}, throttle
            )
    begun: list[TopicPartition] = []
    try:
        for first in range(0, len(moves), MOVES_AT_ONCE):
            part = {move.place: move.after for move in moves[first : first + MOVES_AT_ONCE]}
            async with cluster.limit():
                results = await alter_reassignments(cluster, part)
            begun += [place for place, (code, _) in results.items() if not code]
            refused = [
                f"{name}-{index}: {text or code_of(code).message} ({code_of(code).name})"
                for (name, index), (code, text) in results.items()
                if code
            ]
            if refused:
                raise ClusterError("; ".join(refused[:3]), "nothing moves: what had begun was cancelled")
    except ClusterError:
        async with cluster.limit():
            if begun:
                await alter_reassignments(cluster, dict.fromkeys(begun))
            if throttle is not None:
                await take_throttle_off(cluster, {move.topic for move in moves})
        raise


async def watch_moves(
    cluster: ClusterClient,
    places: list[TopicPartition],
    totals: Mapping[TopicPartition, int],
    took: Callable[[int], None],
) -> None:
    """Wait until these partitions move no more; `took` gets the bytes that have moved by then. `totals`: those of each move."""
    fetched: dict[TopicPartition, int] = {}
    while True:
        async with cluster.limit():
            ongoing = await list_reassignments(cluster, places)
            fetched |= await _fetched(cluster, ongoing)
        fetched |= {place: totals.get(place, 0) for place in places if place not in ongoing}
        took(sum(min(fetched.get(place, 0), totals.get(place, 0)) for place in places))
        if not ongoing:
            return
        cluster.doing = f"watching the moves of {len(ongoing)} partitions"
        await asyncio.sleep(WATCH_S)


async def left_to_move(
    cluster: ClusterClient, ongoing: Mapping[TopicPartition, OngoingPartitionReassignment]
) -> dict[TopicPartition, tuple[int, int]]:
    """Return of each move the bytes that new replicas have, and those that they need."""
    brokers = {node for row in ongoing.values() for node in row.replicas}
    sizes = await replica_sizes(cluster, brokers, ongoing)
    whole = partition_sizes(sizes)
    return {
        place: (
            sum(sizes.get((place, node), 0) for node in row.adding_replicas),
            whole.get(place, 0) * len(row.adding_replicas),
        )
        for place, row in ongoing.items()
    }


async def finish_moves(cluster: ClusterClient, moves: list[PlannedMove], throttled: bool) -> None:
    """Let the new preferred leaders lead, and take the throttle off."""
    led_by_another = [move.place for move in moves if move.changes_leader]
    async with cluster.limit():
        if led_by_another:
            await elect_leaders(cluster, led_by_another, PREFERRED)
        if throttled:
            await take_throttle_off(cluster, {move.topic for move in moves})


async def take_throttle_off(cluster: ClusterClient, topics: Iterable[str]) -> None:
    """Remove the throttles of these topics and of all brokers."""
    await clear_topics(cluster, topics)
    await clear_brokers(cluster)


async def _fetched(
    cluster: ClusterClient, ongoing: Mapping[TopicPartition, OngoingPartitionReassignment]
) -> dict[TopicPartition, int]:
    """Return the bytes that the new replicas of each move have by now."""
    adding = {node for row in ongoing.values() for node in row.adding_replicas}
    sizes = await replica_sizes(cluster, adding, ongoing)
    return {place: sum(sizes.get((place, node), 0) for node in row.adding_replicas) for place, row in ongoing.items()}
