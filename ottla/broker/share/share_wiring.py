"""Share groups in a broker: the share coordinator and the persister, created from the broker's components."""

from __future__ import annotations

from typing import Any, NamedTuple

from ottla.broker.cluster.broker_channels import BrokerChannels
from ottla.broker.cluster.topic_creation import TopicCreation
from ottla.broker.configs import BrokerConfigs
from ottla.broker.coordinator.coordinator import partition_counter
from ottla.broker.coordinator.turns import ShardTurns
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.replication.partition_log import ReplicatedPartitionLog
from ottla.broker.replication.replicas import Replicas
from ottla.broker.share.coordinator.share_coordinator import TOPIC, ShareCoordinator
from ottla.broker.share.coordinator.share_shard import ShareCoordinatorConfig
from ottla.broker.share.persister import NoPersister, Persister
from ottla.broker.share.share_state import SharePartitionKey
from ottla.broker.share.state_persister import StatePersister
from ottla.protocol.errors import KafkaError
from ottla.server.config.settings import read
from ottla.server.network.reply import Reply
from ottla.server.world import World

#: The persister tries again by itself.
CREATE_WAIT_MS = 10_000
DEFAULT_PERSISTER = "org.apache.kafka.server.share.persister.DefaultStatePersister"


class ShareGroups(NamedTuple):
    """The components of share groups that handlers use."""

    coordinator: ShareCoordinator
    persister: Persister


def share_coordinator(
    world: World, configs: BrokerConfigs, metadata: MetadataCache, replicas: Replicas, turns: ShardTurns
) -> ShareCoordinator:
    """Return the share coordinator of one broker process."""

    def prune(partition: int, offset: int) -> None:
        replica = replicas.get(TOPIC, partition)
        log = None if replica is None else replica.local_log(-1, require_leader=True)
        if log is not None and offset > log.log_start_offset:
            log.delete_records(offset)

    return ShareCoordinator(
        read(ShareCoordinatorConfig, configs.setting),
        ReplicatedPartitionLog(replicas, world.clock),
        world.session_clock,
        partition_counter(metadata, configs, TOPIC, "share.coordinator.state.topic.num.partitions"),
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
        if TOPIC not in metadata.image.topics:
            return None
        return metadata.leader_and_epoch(TOPIC, coordinator.partition_for(key.coordinator_key))[0]

    def send(to: int, request: object) -> Reply[Any]:
        reply: Reply[Any] = Reply()
        if to == configs.node_id:
            reply.follow(coordinator.respond(request))
        else:
            world.spawn(_ask(channels, to, request, reply), f"share state of {to}")
        return reply

    def create_topic() -> None:
        topic_creation.create([TOPIC], CREATE_WAIT_MS, lambda: None)

    return StatePersister(world.clock, coordinator_of, send, create_topic)


async def _ask(channels: BrokerChannels, to: int, request: object, reply: Reply[Any]) -> None:
    try:
        response = await channels.request(to, request)
    except KafkaError as error:
        response = error
    reply.complete(response)
