"""All partitions of this node, by name and by id. They take the roles that the metadata image gives them.

`apply(delta, image)` is the only way in: created topics get logs, changed partitions a new role, deleted topics lose
their logs. Listeners (the coordinators) are notified of every start and end of leadership, after it took effect. A snapshot
takes the same path, because it is a delta too. Elsewhere: the election of leaders (the controller), the fetching from
leaders (replication/fetcher.py), and the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from ottla.broker.cluster.channels import ControllerChannel
from ottla.broker.configs import BrokerConfigs
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.replication.disk_work import GroupFlush, LogRemoval, LogStartWrites
from ottla.broker.replication.fetch_requests import FetcherSettings
from ottla.broker.replication.log_moves import LogMoves
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.replica_fetchers import ReplicaFetchers
from ottla.broker.replication.state_changes import DIRECTORY, story
from ottla.broker.replication.throttle import Throttle, is_throttled
from ottla.broker.replication.to_controller import AlterPartitionSender, DirectoryAssignments
from ottla.broker.replication.wakeups import Wakeups
from ottla.controller.metadata.cluster import RegisteredEndpoint
from ottla.controller.metadata.image import EMPTY, MetadataDelta, MetadataImage
from ottla.controller.metadata.loader import new_turn
from ottla.controller.metadata.topics import PartitionRegistration, TopicDelta
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.schema import ZERO_UUID
from ottla.protocol.work import Turn, Work
from ottla.server.client_bounds import PRODUCER_IDS, Bound
from ottla.server.network.peer_security import PeerSecurity
from ottla.server.quotas.rate import Windows
from ottla.server.story import Stories
from ottla.server.world import World
from ottla.storage.directories.log_dirs import LogDir
from ottla.storage.directories.logs import Logs
from ottla.storage.errors import DamagedPartition, LogDirectoryOffline, StorageFailure
from ottla.storage.log.log import Log

log = logging.getLogger(__name__)

#: An entry in the stories of the directory's partitions; the log has one line for all of them.
DIRECTORY_FAILED = "Offline: the log directory %s has failed"

#: Units of a turn's worth (`controller.metadata.loader`), as measured: a partition that is not here, one that changes
#: its role, one whose log is made (its directory and its files, by a slow file system), one whose configs are set.
LOOK_UNITS = 1
CHANGE_UNITS = 50
CREATE_UNITS = 1_000
CONFIG_UNITS = 20


class LeadershipListener(Protocol):
    def on_leader(self, partition: Partition) -> None:
        """Notify the listener that this node now leads the partition, in a new leader epoch."""

    def on_resigned(self, partition: Partition) -> None:
        """Notify the listener that this node has stopped leading the partition."""


class Replicas:
    """The partitions of this node, and the roles that the metadata image gives them."""

    def __init__(
        self,
        world: World,
        configs: BrokerConfigs,
        logs: Logs,
        metadata: MetadataCache,
        controller: ControllerChannel,
        broker_epoch: Callable[[], int],
        security: PeerSecurity,
    ) -> None:
        node_id = configs.node_id
        settings = FetcherSettings(
            node_id=node_id,
            min_bytes=configs["replica.fetch.min.bytes"],
            wait_ms_max=configs["replica.fetch.wait.max.ms"],
            partition_bytes_max=configs["replica.fetch.max.bytes"],
            response_bytes_max=configs["replica.fetch.response.max.bytes"],
            backoff_ms=configs["replica.fetch.backoff.ms"],
            timeout_ms=configs["replica.socket.timeout.ms"],
            security=security,
        )
        listener = configs.node.inter_broker_listener

        def locate(leader_id: int) -> RegisteredEndpoint | None:
            broker = metadata.image.cluster.brokers.get(leader_id)
            return None if broker is None else broker.endpoint(listener)

        self.node_id = node_id
        self.logs = logs
        self.image: MetadataImage = EMPTY
        #: topic -> index -> partition; the same inner dicts under the topic id, so that both ways cost two lookups.
        self.by_name: dict[str, dict[int, Partition]] = {}
        self.by_id: dict[bytes, dict[int, Partition]] = {}
        self.listeners: list[LeadershipListener] = []
        self.fetchers = ReplicaFetchers(world, settings, locate, broker_epoch)
        self.isr_proposals = AlterPartitionSender(
            world, node_id, controller, broker_epoch, lambda: metadata.image.cluster
        )
        self.assignments = DirectoryAssignments(world, node_id, controller, broker_epoch, lambda: metadata.image)
        self.producer_ids = Bound(PRODUCER_IDS, configs[PRODUCER_IDS])
        self._configs = configs
        self._clock = world.clock
        self.wakeups = Wakeups(world.clock)
        self.stories: Stories[tuple[str, int]] = Stories("partition", world.clock.wall_ms)
        windows = Windows(
            configs["replication.quota.window.num"], configs["replication.quota.window.size.seconds"] * 1_000
        )
        self._leader_throttle = Throttle(world.clock, windows)
        self._follower_throttle = Throttle(world.clock, windows)
        self._group_flush = GroupFlush(world)
        self.log_removal = LogRemoval(world, logs)
        self.log_start_writes = LogStartWrites(world, logs)
        self.moves = LogMoves(world, configs, logs, self.log_removal, self.assignments, lambda: self.image)
        self._resigned = False

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self.by_name.values():
            yield from partitions.values()

    # -- Looking up --------------------------------------------------------------------------------------------------

    def lookup(self, topic: str, topic_id: bytes, index: int) -> Partition:
        """Return the replica on this node, by id if the request has one; otherwise the error for the client."""
        partitions = self.by_name.get(topic) if topic_id == ZERO_UUID else self.by_id.get(topic_id)
        if partitions is not None:
            partition = partitions.get(index)
            if partition is not None:
                return partition
        raise self._not_here(topic, topic_id, index)

    def find(self, topic: str, topic_id: bytes, index: int) -> Partition | None:
        try:
            return self.lookup(topic, topic_id, index)
        except KafkaError:
            return None

    def get(self, topic: str, index: int) -> Partition | None:
        partitions = self.by_name.get(topic)
        return None if partitions is None else partitions.get(index)

    def _not_here(self, topic: str, topic_id: bytes, index: int) -> KafkaError:
        if topic_id != ZERO_UUID:
            image = self.image.topics.by_id(topic_id)
            if image is None:
                return KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        else:
            image = self.image.topics.by_name(topic)
        if image is None or index not in image.partitions:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # -- Metadata ----------------------------------------------------------------------------------------------------

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> Work[None]:
        """Apply the delta in slices. Until its turn a partition is unchanged, as on a broker whose metadata is a little older."""
        self.image = image
        turn = new_turn()
        for topic_id, topic in delta.deleted_topics.items():
            yield from self._delete(topic.name, topic_id, turn)
        for topic_delta in delta.changed_topics.values():
            yield from self._change(topic_delta, image, turn)
        self.log_removal.rename()

    def _change(self, topic: TopicDelta, image: MetadataImage, turn: Turn) -> Work[None]:
        for index, registration in topic.partition_changes.items():
            units = LOOK_UNITS
            if self._resigned:
                return
            if self.node_id in registration.replicas:
                units = self._assign(topic.name, topic.id, index, registration, image)
            elif (partition := self.by_id.get(topic.id, {}).get(index)) is not None:
                # Moved away by a reassignment.
                self._remove(partition, delete_log=True)
                units = CHANGE_UNITS
            if turn.spend(units):
                self.log_removal.rename()
                yield None

    def _assign(
        self, topic: str, topic_id: bytes, index: int, registration: PartitionRegistration, image: MetadataImage
    ) -> int:
        """Apply one partition's registration; return how many units of a turn it took."""
        partition = self.by_id.get(topic_id, {}).get(index)
        if partition is None:
            partition = Partition(
                self.node_id,
                topic,
                index,
                topic_id,
                self.wakeups,
                self._group_flush,
                self._configs["replica.lag.time.max.ms"],
                self.stories,
                self.isr_proposals,
            )
            partitions = self.by_id.setdefault(topic_id, {})
            self.by_name[topic] = partitions
            partitions[index] = partition
            self._set_throttles(partition)
        if partition.offline:
            return LOOK_UNITS
        units = CREATE_UNITS if partition.log is None and self.logs.open.get(topic_id, index) is None else CHANGE_UNITS
        try:
            local_log = partition.log or self._open_log(topic, topic_id, index, registration, image)
        except StorageFailure as failure:
            story(partition, DIRECTORY, log).error("no log for %s: %s", partition, failure)
            partition.go_offline()
            if isinstance(failure, DamagedPartition):
                self.assignments.report_damage(topic_id, index, registration, image)
            return units
        registered = registration.directory(self.node_id)
        if not self.moves.expects(partition, registered):
            self.assignments.report(topic_id, index, self.logs.open.directory_of(local_log), registered)
        was_leader, epoch = partition.is_leader, partition.leader_epoch
        partition.adding_replicas = registration.adding_replicas
        partition.removing_replicas = registration.removing_replicas
        if registration.leader == self.node_id:
            self.fetchers.unfollow(partition)
            local_log.producers.bound = self.producer_ids
            partition.become_leader(
                local_log, registration.leader_epoch, registration.partition_epoch, registration.replicas,
                registration.isr, self._clock.mono_ms(),
            )  # fmt: skip
            if not was_leader or epoch != registration.leader_epoch:
                self._notify_leader(partition)
        else:
            partition.become_follower(
                local_log, registration.leader, registration.leader_epoch, registration.partition_epoch,
                registration.replicas, registration.isr,
            )  # fmt: skip
            if was_leader:
                self._notify_resigned(partition)
            self.fetchers.follow(partition)
        self.moves.resume(partition)
        return units

    def _open_log(
        self, topic: str, topic_id: bytes, index: int, registration: PartitionRegistration, image: MetadataImage
    ) -> Log:
        config = self._configs.for_topic(image.configs, topic)
        local_log = self.logs.open.get(topic_id, index)
        if local_log is None:
            return self.logs.create(
                topic,
                index,
                topic_id,
                config,
                now_ms=self._clock.wall_ms(),
                directory_id=registration.directory(self.node_id),
            )
        if self.logs.futures.may_be_elsewhere(registration.directory(self.node_id)):
            raise LogDirectoryOffline(local_log.directory, "a newer log may be in the directory that is offline")
        local_log.update_config(config)
        return local_log

    def _delete(self, topic: str, topic_id: bytes, turn: Turn) -> Work[None]:
        for partition in list(self.by_id.get(topic_id, {}).values()):
            if self._resigned:
                return
            self._remove(partition, delete_log=True)
            if turn.spend(CHANGE_UNITS):
                self.log_removal.rename()
                yield None
        self.by_id.pop(topic_id, None)
        partitions = self.by_name.get(topic)
        if partitions is not None and not partitions:
            del self.by_name[topic]

    def _remove(self, partition: Partition, *, delete_log: bool) -> None:
        was_leader = partition.is_leader
        self.fetchers.unfollow(partition)
        self.moves.cancel(partition)
        self.by_id[partition.topic_id].pop(partition.index, None)
        partition.resign()
        if was_leader:
            self._notify_resigned(partition)
        local_log, partition.log = partition.log, None
        partition.fail_waiting(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if delete_log and local_log is not None and not partition.offline:
            self.logs.delete(partition.topic_id, partition.index, self._clock.wall_ms())

    def update_configs(self, topics: Iterable[str]) -> Work[None]:
        """Apply changed configs of these topics, or of the broker's defaults below them."""
        turn = new_turn()
        for topic in topics:
            for partition in list(self.by_name.get(topic, {}).values()):
                self._update_config(partition)
                if turn.spend(CONFIG_UNITS):
                    yield None
            if turn.spend(LOOK_UNITS):
                yield None

    def _update_config(self, partition: Partition) -> None:
        config = self._configs.for_topic(self.image.configs, partition.topic)
        if partition.log is not None:
            partition.log.update_config(config)
            partition.update_config()
            partition.advance_high_watermark()
        self._set_throttles(partition)

    def _set_throttles(self, partition: Partition) -> None:
        configs = self.image.configs.for_topic(partition.topic)
        where = (partition.index, self.node_id)
        leads = configs.get("leader.replication.throttled.replicas", "")
        partition.leader_throttle = self._leader_throttle if is_throttled(leads, *where) else None
        follows = configs.get("follower.replication.throttled.replicas", "")
        was_throttled = partition.follower_throttle is not None
        partition.follower_throttle = self._follower_throttle if is_throttled(follows, *where) else None
        if was_throttled and not partition.is_leader and not partition.offline:
            self.fetchers.follow(partition)  # a fetcher may be paused by the former limit

    def update_all_configs(self) -> Work[None]:
        self._leader_throttle.bytes_per_second = self._configs["leader.replication.throttled.rate"]
        self._follower_throttle.bytes_per_second = self._configs["follower.replication.throttled.rate"]
        return self.update_configs(list(self.by_name))

    def resign_all(self) -> None:
        """The node is stopping: appends are refused, and pending requests get NOT_LEADER_OR_FOLLOWER. No metadata gives it a role."""
        self._resigned = True
        self.fetchers.close()
        self.isr_proposals.close()
        self.moves.close()
        self.assignments.close()
        for partition in self:
            partition.resign()
            partition.fail_waiting(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def set_aside_strays(self) -> None:
        """Set aside stray replicas, which the metadata does not (or no longer) assign to this node (KAFKA-15359).

        It runs at the start only, once the image has caught up: later deletions come as deltas. A node that was stopped
        meanwhile, or replaced, may not have the image.
        """
        if self._resigned:
            return
        for local_log in (*self.logs.open, *self.logs.open.futures()):
            partition = self.image.topics.partition(local_log.topic_id, local_log.partition)
            if partition is None or self.node_id not in partition.replicas:
                log.warning("%s-%d has no replica here: set aside", local_log.topic, local_log.partition)
                self.logs.set_aside(local_log)

    # -- Failures ----------------------------------------------------------------------------------------------------

    def directory_failed(self, directory: LogDir) -> None:
        """Take the partitions of the failed directory offline, for good: the node never retries it."""
        self.moves.directory_failed(directory)
        failed = {id(failed_log) for failed_log in self.logs.open.in_directory(directory)}
        for partition in list(self):
            if id(partition.log) in failed and not partition.offline:
                was_leader = partition.is_leader
                self.fetchers.unfollow(partition)
                partition.stories.add(
                    (partition.topic, partition.index), DIRECTORY_FAILED, (directory.path,), DIRECTORY
                )
                partition.go_offline()
                if was_leader:
                    self._notify_resigned(partition)

    def shrink_isrs(self) -> None:
        now_ms = self._clock.mono_ms()
        for partition in self:
            if partition.leader_log is not None and partition.followers:
                partition.isr.maybe_shrink(partition.leader_log, now_ms)

    # -- Leadership --------------------------------------------------------------------------------------------------

    def _notify_leader(self, partition: Partition) -> None:
        for listener in self.listeners:
            listener.on_leader(partition)

    def _notify_resigned(self, partition: Partition) -> None:
        for listener in self.listeners:
            listener.on_resigned(partition)
