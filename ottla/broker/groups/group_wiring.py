"""The group coordinator in a broker: created from its components, and notified of leadership by replication, of topics by the metadata."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from ottla.broker.cluster.broker_channels import BrokerChannels
from ottla.broker.configs import BrokerConfigs
from ottla.broker.coordinator.coordinator import partition_counter
from ottla.broker.coordinator.turns import ShardTurns
from ottla.broker.groups.group_config import GroupSettings, from_properties
from ottla.broker.groups.group_coordinator_service import TOPIC, GroupCoordinatorService
from ottla.broker.groups.group_metadata_manager import ClusterView
from ottla.broker.groups.modern.offload import RegexResolver, TargetWorker
from ottla.broker.groups.modern.topics import TopicHashes
from ottla.broker.groups.share_group_coordinator import Cluster, ShareGroupCoordinator
from ottla.broker.groups.state.group import GroupType
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.replication.partition_log import ReplicatedPartitionLog
from ottla.broker.replication.replicas import Replicas
from ottla.broker.share.end_offsets import EndOffsets
from ottla.broker.share.persister import Persister
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.primitives import new_uuid
from ottla.server.config.group import effective_group_values
from ottla.server.world import World

#: The names of a kind's group configurations, in the order of GroupSettings.
SETTINGS = {
    GroupType.CONSUMER: (
        "group.consumer.session.timeout.ms",
        "group.consumer.heartbeat.interval.ms",
        "group.consumer.assignment.interval.ms",
    ),
    GroupType.SHARE: (
        "group.share.session.timeout.ms",
        "group.share.heartbeat.interval.ms",
        "group.share.assignment.interval.ms",
    ),
    GroupType.STREAMS: (
        "group.streams.session.timeout.ms",
        "group.streams.heartbeat.interval.ms",
        "group.streams.assignment.interval.ms",
        "group.streams.initial.rebalance.delay.ms",
        "group.streams.num.standby.replicas",
    ),
}


def group_coordinator(
    world: World, configs: BrokerConfigs, metadata: MetadataCache, replicas: Replicas, expiry_ms: Callable[[], int]
) -> GroupCoordinatorService:
    """Return the group coordinator of one broker process."""

    def settings(kind: GroupType, group_id: str) -> GroupSettings:
        overrides = metadata.image.configs.for_group(group_id)
        if not overrides:
            return GroupSettings(*(configs[name] for name in SETTINGS[kind]))
        values = effective_group_values(overrides, configs.values)
        return GroupSettings(*(values[name.removeprefix("group.")] for name in SETTINGS[kind]))

    def rack_of(broker_id: int) -> str | None:
        broker = metadata.image.cluster.brokers.get(broker_id)
        return None if broker is None else broker.rack

    turns = ShardTurns(world.clock)
    groups = GroupCoordinatorService(
        from_properties(configs.setting),
        ReplicatedPartitionLog(replicas, world.clock),
        world.session_clock,
        lambda: str(UUID(bytes=new_uuid(world.rng))),
        partition_counter(metadata, configs, TOPIC, "offsets.topic.num.partitions"),
        ClusterView(
            lambda: metadata.image.topics,
            settings,
            lambda: metadata.image.offset,
            lambda: groups.topics_created_at,
            RegexResolver(world.workers, world.spawn),
            TargetWorker(world.workers, world.spawn),
            TopicHashes(rack_of, turns.loads),
        ),
        turns,
        expiry_ms,
    )
    return groups


def share_group_coordinator(
    world: World,
    configs: BrokerConfigs,
    metadata: MetadataCache,
    replicas: Replicas,
    groups: GroupCoordinatorService,
    channels: BrokerChannels,
    persister: Persister,
) -> ShareGroupCoordinator:
    """Return what the group coordinator of one broker process does for share groups."""

    def end_offset(partition: tuple[str, int]) -> int:
        replica = replicas.get(*partition)
        if replica is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return replica.local_log(-1, require_leader=True).high_watermark

    end_offsets = EndOffsets(world, configs.node_id, metadata, channels, end_offset)
    return ShareGroupCoordinator(groups, persister, Cluster(lambda: metadata.image.topics, end_offsets.find))
