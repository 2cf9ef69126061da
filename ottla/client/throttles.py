"""Throttles of moves: settings of brokers and topics while partitions move (KIP-73)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.client.cluster import ClusterClient, NoConnection
from ottla.client.configs import STATIC_SOURCES, alter_configs, describe_configs, describe_topics_config
from ottla.client.health import describe_cluster
from ottla.client.leaders import TopicPartition

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
DIRECTORY_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"

#: For each partition the brokers that have it and those that fetch it.
Sides = Mapping[TopicPartition, tuple[set[int], set[int]]]


async def throttle_moves(cluster: ClusterClient, moves: Sides, bytes_per_s: int) -> None:
    """Limit what the sources send as leaders and what the new replicas fetch, on each broker that takes part."""
    for name in sorted({name for name, _ in moves}):
        mine = [(index, *moves[topic, index]) for topic, index in sorted(moves) if topic == name]
        leaders = ",".join(f"{index}:{broker}" for index, sources, _ in mine for broker in sorted(sources))
        followers = ",".join(f"{index}:{broker}" for index, _, added in mine for broker in sorted(added))
        await alter_configs(cluster, "topic", name, {LEADERS: leaders, FOLLOWERS: followers})
    brokers = {broker for pair in moves.values() for side in pair for broker in side}
    await set_on_brokers(cluster, brokers, dict.fromkeys(RATES, str(bytes_per_s)))


async def set_on_brokers(cluster: ClusterClient, brokers: Iterable[int], changes: Mapping[str, str | None]) -> None:
    """Change settings of each of the brokers."""
    for broker in sorted(brokers):
        await alter_configs(cluster, "broker", str(broker), changes)


async def clear_brokers(cluster: ClusterClient, named: Iterable[int] = ()) -> list[int]:
    """Remove the rates of all brokers, and of those that are named: who took part in earlier moves is not known. Return them."""
    brokers = {row.broker_id for row in (await describe_cluster(cluster)).brokers} | set(named)
    await set_on_brokers(cluster, brokers, dict.fromkeys((*RATES, DIRECTORY_RATE)))
    return sorted(brokers)


async def clear_topics(cluster: ClusterClient, names: Iterable[str]) -> None:
    """Remove the lists of throttled replicas of topics."""
    for name in sorted(set(names)):
        await alter_configs(cluster, "topic", name, dict.fromkeys((LEADERS, FOLLOWERS)))


async def throttled_brokers(cluster: ClusterClient, brokers: Iterable[int]) -> dict[int, int]:
    """Return the rate, in bytes a second, of each of these brokers that has one for moves; one that does not answer is left out.

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
