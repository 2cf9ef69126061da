"""The throttles of kafka-reassign-partitions: settings of brokers and topics during a move (KIP-73)."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from ottla.cli.shims.move_plans import MovePlan
from ottla.client.cluster import ClusterClient
from ottla.client.moves import DIRECTORY_RATE, clear_brokers, clear_topics, set_on_brokers, throttle_moves
from ottla.client.partitions import TopicPartition
from ottla.protocol.messages.list_partition_reassignments import OngoingPartitionReassignment

RUN_VERIFY = (
    "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is removed."
)


async def begin(
    cluster: ClusterClient,
    options: argparse.Namespace,
    plan: MovePlan,
    current: Mapping[TopicPartition, list[int]],
    ongoing: Mapping[TopicPartition, OngoingPartitionReassignment],
) -> None:
    """Set the throttles of --throttle and --replica-alter-log-dirs-throttle."""
    for name in ("throttle", "replica_alter_log_dirs_throttle"):
        if (getattr(options, name) or 0) < 0:
            setattr(options, name, None)  # a negative rate means no throttle, as in Kafka's tool
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
        await throttle_moves(cluster, moves, options.throttle)
        print(f"The inter-broker throttle limit was set to {options.throttle} B/s")
    if options.replica_alter_log_dirs_throttle is not None:
        rate = options.replica_alter_log_dirs_throttle
        await set_on_brokers(cluster, {replica.broker for replica in plan.directories}, {DIRECTORY_RATE: str(rate)})
        print(f"The replica-alter-dir throttle limit was set to {rate} B/s")


async def clear(cluster: ClusterClient, plan: MovePlan) -> None:
    """Remove the throttles of all brokers and of the plan's topics."""
    brokers = await clear_brokers(cluster, {broker for replicas in plan.replicas.values() for broker in replicas})
    shown = ",".join(map(str, brokers))
    print(f"Clearing broker-level throttles on broker{'' if len(brokers) == 1 else 's'} {shown}")
    names = sorted({name for name, _ in plan.replicas})
    print(f"Clearing topic-level throttles on topic{'' if len(names) == 1 else 's'} {','.join(names)}")
    await clear_topics(cluster, names)
