"""The input of decisions: the newest image (committed or not), values derived from it, and the settings, which are static."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import field

from ottla.controller.decisions.index import ClusterIndex, TopicIdPartition
from ottla.controller.decisions.partition_change import Election, PartitionChange
from ottla.controller.decisions.placement import UsableBroker
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.metadata.topics import (
    LOST_DIR,
    MIGRATING_DIR,
    NO_LEADER,
    UNASSIGNED_DIR,
    PartitionRegistration,
    TopicImage,
)
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.metadata_records import MetadataRecord
from ottla.protocol.releases import DEFAULT, Advertised
from ottla.protocol.slotted import frozen, mutable
from ottla.server.config.settings import setting


@frozen
class DelegationTokenSettings:
    """The settings of delegation tokens. Without a secret key there are no tokens."""

    secret_key: str = field(default="", repr=False)
    other_keys: tuple[str, ...] = field(default=(), repr=False)
    max_lifetime_ms: int = setting("delegation.token.max.lifetime.ms")
    expiry_ms: int = setting("delegation.token.expiry.time.ms")
    check_interval_ms: int = setting("delegation.token.expiry.check.interval.ms")


@frozen
class ControlSettings:
    node_id: int
    cluster_id: str
    default_replication_factor: int = setting("default.replication.factor")
    num_partitions: int = setting("num.partitions")
    min_insync_replicas: int = setting("min.insync.replicas")
    unclean_leader_election_enable: bool = setting("unclean.leader.election.enable")
    delete_topic_enable: bool = setting("delete.topic.enable")
    auto_leader_rebalance_enable: bool = setting("auto.leader.rebalance.enable")
    leader_imbalance_check_interval_ms: int = setting(
        "leader.imbalance.check.interval.seconds", lambda seconds: seconds * 1_000
    )
    unclean_leader_election_interval_ms: int = setting("unclean.leader.election.interval.ms")
    broker_session_timeout_ms: int = setting("broker.session.timeout.ms")
    metadata_max_idle_interval_ms: int = setting("metadata.max.idle.interval.ms")
    advertised: Advertised = DEFAULT
    # A broken connection suggests that the broker has failed, but it may also just reconnect.
    lost_connection_grace_ms: int = setting("ottla.lost.connection.grace.ms")
    delegation_tokens: DelegationTokenSettings = field(default_factory=DelegationTokenSettings)


MIN_INSYNC_REPLICAS = "min.insync.replicas"
UNCLEAN_LEADER_ELECTION = "unclean.leader.election.enable"


def is_directory_online(directory: bytes, registered: Container[bytes]) -> bool:
    """Return True if the directory is online (KIP-858). `registered`: the directories in the broker's registration.

    An empty registration comes from a metadata.version below 17, which has no directories: all are online
    (KAFKA-16162: with the opposite result, raising the version takes every partition of the cluster offline).
    """
    if directory == LOST_DIR:
        return False
    return directory in (UNASSIGNED_DIR, MIGRATING_DIR) or not registered or directory in registered


@mutable
class ControlState:
    image: MetadataImage
    index: ClusterIndex
    settings: ControlSettings
    #: The image after a change that is decided but not made yet: first the ELRs that it would make wrong are emptied
    #: (eligible.py).
    coming: MetadataImage | None = None

    # Configs, by Kafka's order: topic, this node's, all nodes', the properties file.
    def _topic_config(self, image: MetadataImage, topic: str, name: str, static: str) -> str:
        configs = image.configs
        for level in (configs.for_topic(topic), configs.for_broker(self.settings.node_id), configs.for_broker("")):
            value = level.get(name)
            if value is not None:
                return value
        return static

    def unclean_election(self, topic: str) -> bool:
        static = "true" if self.settings.unclean_leader_election_enable else "false"
        return self._topic_config(self.image, topic, UNCLEAN_LEADER_ELECTION, static).lower() == "true"

    def min_isr(self, topic: TopicImage) -> int:
        """Return min.insync.replicas, at most the replication factor: otherwise a default of two would block topics of one replica."""
        images = (self.image,) if self.coming is None else (self.image, self.coming)
        static = str(self.settings.min_insync_replicas)
        wanted = min(int(self._topic_config(image, topic.name, MIN_INSYNC_REPLICAS, static)) for image in images)
        first = topic.partitions.get(0)
        return wanted if first is None else min(wanted, len(first.replicas))

    @property
    def elr_enabled(self) -> bool:
        return self.image.features.elr_enabled and (self.coming is None or self.coming.features.elr_enabled)

    # Brokers
    def check_broker_epoch(self, broker_id: int, broker_epoch: int) -> None:
        broker = self.image.cluster.brokers.get(broker_id)
        if broker is None:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}")
        if broker.epoch != broker_epoch:
            raise KafkaError(
                ErrorCode.STALE_BROKER_EPOCH,
                f"Expected broker epoch {broker.epoch}, but got broker epoch {broker_epoch}",
            )

    def usable_brokers(self) -> list[UsableBroker]:
        """Return the brokers that may get new replicas, also fenced ones, except those that shut down or have all directories cordoned."""
        return [
            UsableBroker(broker_id, broker.rack, broker.fenced)
            for broker_id, broker in sorted(self.image.cluster.brokers.items())
            if not broker.in_controlled_shutdown
            and (
                not broker.directories
                or not broker.cordoned_directories
                or set(broker.directories) - set(broker.cordoned_directories)
            )
        ]

    def default_directory(self, broker_id: int) -> bytes:
        """Return the directory of a new replica if the broker has only one, else UNASSIGNED_DIR."""
        broker = self.image.cluster.brokers.get(broker_id)
        if broker is None:
            return UNASSIGNED_DIR
        if not broker.directories:
            return MIGRATING_DIR
        return broker.directories[0] if len(broker.directories) == 1 else UNASSIGNED_DIR

    def directory_online(self, broker_id: int, directory: bytes) -> bool:
        broker = self.image.cluster.brokers.get(broker_id)
        return broker is not None and is_directory_online(directory, broker.directories)

    # Partitions
    def change(
        self,
        topic: TopicImage,
        index: int,
        partition: PartitionRegistration,
        *,
        is_active: Callable[[int], bool] | None = None,
        election: Election | None = None,
    ) -> PartitionChange:
        """Return a change of the partition to be filled in. By default the election may be unclean if the topic enables that."""
        active = self.image.cluster.is_active if is_active is None else is_active
        if election is None:
            election = Election.UNCLEAN if self.unclean_election(topic.name) else Election.ONLINE
        return PartitionChange(
            partition,
            topic.id,
            index,
            may_lead=lambda broker: active(broker) and self.directory_online(broker, partition.directory(broker)),
            default_directory=self.default_directory,
            metadata_version=self.image.features.metadata_version,
            min_isr=self.min_isr(topic),
            elr_enabled=self.elr_enabled,
            election=election,
        )

    def leader_and_isr_changes(
        self,
        partitions: Iterable[TopicIdPartition],
        *,
        remove: int = NO_LEADER,
        add: int = NO_LEADER,
        unclean_shutdown: int = NO_LEADER,
    ) -> Iterator[MetadataRecord]:
        """Yield the change records for these partitions when one broker is fenced, unfenced, or had an unclean shutdown.

        `add` counts as active although it is still fenced in the image; `remove` and `unclean_shutdown` do not.
        """
        gone = {remove, unclean_shutdown}
        is_active = self.image.cluster.is_active
        for topic_id, index in partitions:
            topic = self.image.topics.by_id(topic_id)
            assert topic is not None, f"topic {topic_id.hex()} is in the index but not in the image"
            partition = topic.partitions[index]
            change = self.change(
                topic,
                index,
                partition,
                is_active=lambda broker: broker not in gone and (broker == add or is_active(broker)),
            )
            change.isr = tuple(broker for broker in partition.isr if broker not in gone)
            if unclean_shutdown != NO_LEADER:
                change.unclean_shutdown = frozenset((unclean_shutdown,))
            record = change.record()
            if record is not None:
                yield record
