"""Moves of replicas: the throttle, the sizes before a move, its start, its progress in bytes and its end.

The brokers move replicas by themselves once they are asked to. If a command is interrupted, its moves go on, and the throttle
stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ottla.client.cluster import ClusterClient, NoConnection
from ottla.client.cluster_state import describe_cluster, describe_log_dirs
from ottla.client.configs import STATIC_SOURCES, alter_configs, describe_configs, describe_topics_config
from ottla.client.errors import ClusterError, code_of
from ottla.client.failures import Kind, counted
from ottla.client.partitions import TopicPartition, by_topic
from ottla.client.topics import PREFERRED, alter_reassignments, elect_leaders, list_reassignments
from ottla.protocol.messages.list_partition_reassignments import OngoingPartitionReassignment
from ottla.protocol.messages.shared_structs import TopicNamePartitions


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


RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
DIRECTORY_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"

#: For each partition the brokers that have a replica, and those that fetch a new one.
Sides = Mapping[TopicPartition, tuple[set[int], set[int]]]


async def throttle_moves(cluster: ClusterClient, moves: Sides, bytes_per_s: int) -> None:
    """Limit what the sources send as leaders and what the new replicas fetch, on each broker of a move."""
    for name in sorted({name for name, _ in moves}):
        mine = [(index, *moves[topic, index]) for topic, index in sorted(moves) if topic == name]
        leaders = ",".join(f"{index}:{broker}" for index, sources, _ in mine for broker in sorted(sources))
        followers = ",".join(f"{index}:{broker}" for index, _, added in mine for broker in sorted(added))
        await alter_configs(cluster, "topic", name, {LEADERS: leaders, FOLLOWERS: followers})
    brokers = {broker for pair in moves.values() for side in pair for broker in side}
    await set_on_brokers(cluster, brokers, dict.fromkeys(RATES, str(bytes_per_s)))


async def set_on_brokers(cluster: ClusterClient, brokers: Iterable[int], changes: Mapping[str, str | None]) -> None:
    """Change settings of each of these brokers."""
    for broker in sorted(brokers):
        await alter_configs(cluster, "broker", str(broker), changes)


async def clear_brokers(cluster: ClusterClient, named: Iterable[int] = ()) -> list[int]:
    """Remove the rates of all brokers of the cluster and of those that are named: which brokers took part in earlier moves is
    not known. Return the brokers.
    """
    brokers = {row.broker_id for row in (await describe_cluster(cluster)).brokers} | set(named)
    await set_on_brokers(cluster, brokers, dict.fromkeys((*RATES, DIRECTORY_RATE)))
    return sorted(brokers)


async def clear_topics(cluster: ClusterClient, names: Iterable[str]) -> None:
    """Remove the lists of throttled replicas of topics."""
    for name in sorted(set(names)):
        await alter_configs(cluster, "topic", name, dict.fromkeys((LEADERS, FOLLOWERS)))


async def throttled_brokers(cluster: ClusterClient, brokers: Iterable[int]) -> dict[int, int]:
    """Return the rate of each of these brokers that has one for moves, in bytes a second.

    A broker that does not answer is left out.

    Raises:
        CommandFailed: the user may not describe the brokers.
    """
    found: dict[int, int] = {}
    for broker in sorted(brokers):
        try:
            entries = await describe_configs(cluster, "broker", str(broker), RATES)
        except NoConnection:
            continue
        rates = [int(entry.value or 0) for entry in entries if entry.config_source not in STATIC_SOURCES]
        if rates:
            found[broker] = min(rates)
    return found


async def throttled_topics(cluster: ClusterClient) -> list[str]:
    """Return the topics that have throttled replicas."""
    names = await cluster.topic_names()
    found: set[str] = set()
    for key in (LEADERS, FOLLOWERS):
        found |= {name for name, value in (await describe_topics_config(cluster, names, key)).items() if value}
    return sorted(found)


#: The time between two looks at moves that go on.
WATCH_S = 1.0
MOVES_AT_ONCE = 500

#: The bytes of each replica.
ReplicaSizes = dict[tuple[TopicPartition, int], int]


async def replicas_of_all(cluster: ClusterClient) -> dict[TopicPartition, list[int]]:
    """Return the replicas of all partitions."""
    return {
        (topic.name or "", part.partition_index): list(part.replica_nodes)
        for topic in (await cluster.metadata(None)).topics
        for part in topic.partitions
    }


async def racks_of_brokers(cluster: ClusterClient) -> dict[int, str | None]:
    """Return the racks of the brokers that can get replicas: fenced ones cannot."""
    return {row.broker_id: row.rack for row in (await describe_cluster(cluster)).brokers if not row.is_fenced}


async def replica_sizes(
    cluster: ClusterClient, brokers: Iterable[int], places: Iterable[TopicPartition] | None = None
) -> ReplicaSizes:
    """Return the bytes of the replicas on these brokers; for a broker that does not answer there are none."""
    topics = None if places is None else [TopicNamePartitions(*row) for row in by_topic(sorted(places)).items()]
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
    """Return the bytes of each partition. They are those of its largest replica, which the others have or will have."""
    found: dict[TopicPartition, int] = {}
    for (place, _), size in sizes.items():
        found[place] = max(size, found.get(place, 0))
    return found


async def start_moves(cluster: ClusterClient, moves: list[PlannedMove], throttle: int | None) -> None:
    """Ask for all moves, after setting the throttle.

    Raises:
        ClusterError: a move was rejected. Then the others are cancelled, and the throttle is taken off.
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
    """Wait until no move of these partitions goes on.

    `took` is called with the bytes that have moved so far. `totals` has the bytes of each move.
    """
    fetched: dict[TopicPartition, int] = {}
    while True:
        async with cluster.limit():
            ongoing = await list_reassignments(cluster, places)
            fetched |= await _fetched(cluster, ongoing)
        fetched |= {place: totals.get(place, 0) for place in places if place not in ongoing}
        took(sum(min(fetched.get(place, 0), totals.get(place, 0)) for place in places))
        if not ongoing:
            return
        cluster.doing = f"watching the moves of {counted(len(ongoing), 'partition')}"
        await asyncio.sleep(WATCH_S)


async def left_to_move(
    cluster: ClusterClient, ongoing: Mapping[TopicPartition, OngoingPartitionReassignment]
) -> dict[TopicPartition, tuple[int, int]]:
    """Return for each move the bytes that its new replicas have, and those that they need."""
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
    """Make the new preferred replicas the leaders, and take the throttle off."""
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


#: The lowest throttle, in bytes a second. With a lower one moves never end: the brokers take whole fetches of up to a megabyte.
THROTTLE_MIN = 1_000


async def cancel_moves(cluster: ClusterClient, places: Iterable[TopicPartition]) -> None:
    """Cancel the moves of these partitions, and take the throttles off when none is left.

    Raises:
        ClusterError: a move cannot be cancelled, or has ended by itself.
    """
    results = await alter_reassignments(cluster, dict.fromkeys(places))
    for (name, index), (code, message) in results.items():
        if code:
            raise ClusterError(f"{name}-{index}: {message or code_of(code).message} ({code_of(code).name})")
    if not await list_reassignments(cluster):
        await take_throttle_off(cluster, await throttled_topics(cluster))


def check_throttle(throttle: int | None) -> None:
    """Reject a rate that is so low that moves would never end."""
    if throttle is not None and not THROTTLE_MIN <= throttle < 2**63:
        raise ClusterError(f"a throttle of {throttle} bytes a second is not from {THROTTLE_MIN} on", None, Kind.WRONG)
