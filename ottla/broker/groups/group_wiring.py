"""The group and share coordinators and the persister in a broker: created from its components, and notified of leadership by replication,
of topics by the metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ottla.broker.cluster.channels import BrokerChannels
from ottla.broker.cluster.topic_creation import TopicCreation
from ottla.broker.configs import BrokerConfigs
from ottla.broker.coordinator.coordinator import partition_counter
from ottla.broker.coordinator.turns import ShardTurns
from ottla.broker.groups.group import GroupType
from ottla.broker.groups.group_config import GroupSettings, from_properties
from ottla.broker.groups.group_coordinator_service import TOPIC, GroupCoordinatorService
from ottla.broker.groups.group_metadata_manager import ClusterView
from ottla.broker.groups.modern.offload import RegexResolver, TargetWorker
from ottla.broker.groups.modern.topics import TopicHashes
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.replication.partition_log import ReplicatedPartitionLog
from ottla.broker.replication.replicas import Replicas
from ottla.broker.share.coordinator.share_coordinator import ShareCoordinator
from ottla.broker.share.coordinator.share_shard import ShareCoordinatorConfig
from ottla.broker.share.share_state import NoPersister, Persister, SharePartitionKey
from ottla.broker.share.state_persister import StatePersister
from ottla.controller.metadata.topic_names import SHARE_GROUP_STATE_TOPIC
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.primitives import new_uuid
from ottla.protocol.slotted import frozen
from ottla.server.config.resource_configs import effective_group_values
from ottla.server.config.settings import read
from ottla.server.network.context import Reply
from ottla.server.world import World
from ottla.storage.log.retention import delete_records

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

    def new_member() -> str:
        text = new_uuid(world.rng).hex()
        return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))

    turns = ShardTurns(world.clock)
    groups = GroupCoordinatorService(
        from_properties(configs.__getitem__),
        ReplicatedPartitionLog(replicas, world.clock),
        world.session_clock,
        new_member,
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


#: Values of ListOffsets: the end of the log, and a consumer as the replica that asks.
LATEST = CONSUMER = -1

Partition = tuple[str, int]
Offsets = dict[Partition, int | KafkaError]


@frozen
class EndOffsets:
    """The ends of partitions' logs as their leaders have them, here or at other brokers: the lag of share groups is counted from these."""

    world: World
    metadata: MetadataCache
    replicas: Replicas
    channels: BrokerChannels

    def find(self, partitions: Iterable[Partition]) -> Reply[Offsets]:
        found: Offsets = {}
        remote: dict[int, list[Partition]] = {}
        for partition in partitions:
            leader, _ = self.metadata.leader_and_epoch(*partition)
            if leader != self.metadata.node_id:
                remote.setdefault(leader, []).append(partition)
                continue
            try:
                found[partition] = self._local(partition)
            except KafkaError as error:
                found[partition] = error
        reply: Reply[Offsets] = Reply()
        if remote:
            self.world.spawn(self._ask_all(remote, found, reply), "end offsets")
        else:
            reply.complete(found)
        return reply

    def _local(self, partition: Partition) -> int:
        replica = self.replicas.get(*partition)
        if replica is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return replica.local_log(-1, require_leader=True).high_watermark

    async def _ask_all(self, remote: dict[int, list[Partition]], found: Offsets, reply: Reply[Offsets]) -> None:
        for leader, partitions in remote.items():
            try:
                found.update(_offsets(await self.channels.request(leader, _request(partitions))))
            except KafkaError as error:
                found.update(dict.fromkeys(partitions, error))
        reply.complete(found)


def _request(partitions: list[Partition]) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for name, index in partitions:
        topics.setdefault(name, []).append(ListOffsetsPartition(partition_index=index, timestamp=LATEST))
    return ListOffsetsRequest(
        replica_id=CONSUMER, topics=[ListOffsetsTopic(name=name, partitions=rows) for name, rows in topics.items()]
    )


def _offsets(response: Any) -> Offsets:
    return {
        (topic.name, row.partition_index): KafkaError(ErrorCode(row.error_code)) if row.error_code else row.offset
        for topic in response.topics
        for row in topic.partitions
    }


#: The persister tries again by itself.
CREATE_WAIT_MS = 10_000
DEFAULT_PERSISTER = "org.apache.kafka.server.share.persister.DefaultStatePersister"


def share_coordinator(
    world: World, configs: BrokerConfigs, metadata: MetadataCache, replicas: Replicas, turns: ShardTurns
) -> ShareCoordinator:
    """Return the share coordinator of one broker process."""

    def prune(partition: int, offset: int) -> None:
        replica = replicas.get(SHARE_GROUP_STATE_TOPIC, partition)
        log = None if replica is None else replica.local_log(-1, require_leader=True)
        if log is not None and offset > log.log_start_offset:
            delete_records(log, offset)

    return ShareCoordinator(
        read(ShareCoordinatorConfig, configs.__getitem__),
        ReplicatedPartitionLog(replicas, world.clock),
        world.session_clock,
        partition_counter(metadata, configs, SHARE_GROUP_STATE_TOPIC, "share.coordinator.state.topic.num.partitions"),
        lambda: metadata.image.topics,
        prune,
        turns,
    )


def persister(
    world: World,
    configs: BrokerConfigs,
    metadata: MetadataCache,
    coordinator: ShareCoordinator,
    channels: BrokerChannels,
    topic_creation: TopicCreation,
) -> Persister:
    """Return the persister of one broker process."""
    if configs["group.share.persister.class.name"] != DEFAULT_PERSISTER:
        return NoPersister(world.clock)

    def coordinator_of(key: SharePartitionKey) -> int | None:
        if SHARE_GROUP_STATE_TOPIC not in metadata.image.topics:
            return None
        return metadata.leader_and_epoch(SHARE_GROUP_STATE_TOPIC, coordinator.partition_for(key.coordinator_key))[0]

    def send(to: int, request: object) -> Reply[Any]:
        reply: Reply[Any] = Reply()
        if to == configs.node_id:
            reply.follow(coordinator.respond(request))
        else:
            world.spawn(_ask(channels, to, request, reply), f"share state of {to}")
        return reply

    def create_topic() -> None:
        topic_creation.create([SHARE_GROUP_STATE_TOPIC], CREATE_WAIT_MS, lambda: None)

    return StatePersister(world.clock, coordinator_of, send, create_topic)


async def _ask(channels: BrokerChannels, to: int, request: object, reply: Reply[Any]) -> None:
    try:
        response = await channels.request(to, request)
    except KafkaError as error:
        response = error
    reply.complete(response)
