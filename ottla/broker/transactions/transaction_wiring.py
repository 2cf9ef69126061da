"""The transaction coordinator in a broker: created from its components, and notified of leadership by replication."""

from __future__ import annotations

from typing import NamedTuple

from ottla.broker.cluster.channels import BrokerChannels
from ottla.broker.cluster.producer_ids import ProducerIds
from ottla.broker.configs import BrokerConfigs
from ottla.broker.coordinator.coordinator import partition_counter
from ottla.broker.coordinator.partition_log import TopicPartition
from ottla.broker.groups.group_coordinator_service import GroupCoordinatorService
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.replication.partition_log import ReplicatedPartitionLog
from ottla.broker.replication.replicas import Replicas
from ottla.broker.transactions.markers import MarkerRoutes, MarkerWriter
from ottla.broker.transactions.transaction_coordinator import TOPIC, TransactionCoordinator
from ottla.broker.transactions.transaction_shard import TransactionConfig
from ottla.broker.transactions.verify import AppendVerifier
from ottla.protocol.features import TRANSACTION_VERSION
from ottla.server.clock import TimerWheel
from ottla.server.config.settings import read
from ottla.server.world import World


class Transactions(NamedTuple):
    """The components of transactions that handlers use."""

    coordinator: TransactionCoordinator
    marker_writer: MarkerWriter
    verifier: AppendVerifier


def transactions(
    world: World,
    configs: BrokerConfigs,
    metadata: MetadataCache,
    replicas: Replicas,
    groups: GroupCoordinatorService,
    producer_ids: ProducerIds,
    channels: BrokerChannels,
    wheel: TimerWheel,
) -> Transactions:
    """Return the transaction coordinator of one broker process, with its wiring."""

    def leader_of(tp: TopicPartition) -> int | None:
        partition = metadata.partition(*tp)
        return None if partition is None else partition.leader

    def coordinator_of(transactional_id: str) -> int:
        leader, _ = metadata.leader_and_epoch(TOPIC, coordinator.partition_for(transactional_id))
        return leader

    writer = MarkerWriter(replicas, groups, world.clock, wheel, configs["request.timeout.ms"])
    routes = MarkerRoutes(configs.node_id, leader_of, writer.write, channels.request, world.spawn, world.session_clock)
    coordinator = TransactionCoordinator(
        read(TransactionConfig, configs.__getitem__),
        ReplicatedPartitionLog(replicas, world.clock),
        routes,
        producer_ids,
        partition_counter(metadata, configs, TOPIC, "transaction.state.log.num.partitions"),
        lambda: metadata.image.features.level(TRANSACTION_VERSION),
        groups.runtime.turns,
    )
    verifier = AppendVerifier(
        routes, coordinator, coordinator_of, lambda: configs["transaction.partition.verification.enable"]
    )
    return Transactions(coordinator, writer, verifier)
