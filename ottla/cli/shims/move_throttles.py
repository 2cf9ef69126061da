"""The throttles of kafka-reassign-partitions: settings of brokers and topics for the time of a move (KIP-73)."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping

from ottla.cli.client.cluster import ClusterClient
from ottla.cli.client.configs import alter_configs
from ottla.cli.client.health import describe_cluster
from ottla.cli.client.leaders import TopicPartition
from ottla.cli.shims.move_plans import Plan
from ottla.protocol.messages.list_partition_reassignments import OngoingPartitionReassignment

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
DIRECTORY_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
RUN_VERIFY = (
    "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is removed."
)


async def begin(
    cluster: ClusterClient,
    options: argparse.Namespace,
    plan: Plan,
    current: Mapping[TopicPartition, list[int]],
    ongoing: Mapping[TopicPartition, OngoingPartitionReassignment],
) -> None:
    """Set the throttles that --throttle and --replica-alter-log-dirs-throttle ask for."""
    if options.throttle is None and options.replica_alter_log_dirs_throttle is None:
        return
    print(RUN_VERIFY)
    if options.throttle is not None:
        moves = {
            place: (set(row.replicas) - set(row.adding_replicas), set(row.adding_replicas))
            for place, row in ongoing.items()
        }
        for place, brokers in plan.replicas.items():
            sources = moves[place][0] if place in moves else set(current[place])
            moves[place] = (sources, set(brokers) - sources)
        await _throttle_topics(cluster, moves)
        brokers_of_moves = {broker for pair in moves.values() for side in pair for broker in side}
        await _set(cluster, brokers_of_moves, dict.fromkeys(RATES, str(options.throttle)))
        print(f"The inter-broker throttle limit was set to {options.throttle} B/s")
    if options.replica_alter_log_dirs_throttle is not None:
        rate = options.replica_alter_log_dirs_throttle
        await _set(cluster, {replica.broker for replica in plan.directories}, {DIRECTORY_RATE: str(rate)})
        print(f"The replica-alter-dir throttle limit was set to {rate} B/s")


async def _throttle_topics(cluster: ClusterClient, moves: Mapping[TopicPartition, tuple[set[int], set[int]]]) -> None:
    """Throttle what the sources send as leaders, and what the new replicas fetch."""
    for name in sorted({name for name, _ in moves}):
        mine = [(index, *moves[topic, index]) for topic, index in sorted(moves) if topic == name]
        leaders = ",".join(f"{index}:{broker}" for index, sources, _ in mine for broker in sorted(sources))
        followers = ",".join(f"{index}:{broker}" for index, _, added in mine for broker in sorted(added))
        await alter_configs(cluster, "topic", name, {LEADERS: leaders, FOLLOWERS: followers})


async def _set(cluster: ClusterClient, brokers: Iterable[int], changes: Mapping[str, str | None]) -> None:
    for broker in sorted(brokers):
        await alter_configs(cluster, "broker", str(broker), changes)


async def clear(cluster: ClusterClient, plan: Plan) -> None:
    """Remove the throttles of all brokers and of the plan's topics: who took part in earlier moves is not known."""
    brokers = {row.broker_id for row in (await describe_cluster(cluster)).brokers}
    brokers |= {broker for replicas in plan.replicas.values() for broker in replicas}
    shown = ",".join(map(str, sorted(brokers)))
    print(f"Clearing broker-level throttles on broker{'' if len(brokers) == 1 else 's'} {shown}")
    await _set(cluster, brokers, dict.fromkeys((*RATES, DIRECTORY_RATE)))
    names = sorted({name for name, _ in plan.replicas})
    print(f"Clearing topic-level throttles on topic{'' if len(names) == 1 else 's'} {','.join(names)}")
    for name in names:
        await alter_configs(cluster, "topic", name, dict.fromkeys((LEADERS, FOLLOWERS)))
