"""Administration of a node: the admin listener, the checks and stories that it answers, and every source of metrics of the node."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

from ottla import __version__
from ottla.broker.broker_node import BrokerNode
from ottla.broker.cluster.broker_state import BrokerState
from ottla.broker.coordinator.coordinator import hashes
from ottla.broker.metrics.coordinator import coordinator_metrics, group_metrics, share_metrics, transaction_metrics
from ottla.broker.metrics.replicas import IsrChangeCounts, Traffic, UnflushedAges, partition_metrics
from ottla.broker.replication.partition import Partition
from ottla.broker.tables.table_report import table_metrics, table_states
from ottla.controller.controller_node import ControllerNode, MetadataNode
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.metadata.topics import NO_LEADER
from ottla.controller.metrics import ControllerMetrics, ControllerWorkMetrics, RaftMetrics
from ottla.node.python_build import python_build
from ottla.node.story_page import NodeStories, StoryPage
from ottla.node.tables import StatePage
from ottla.protocol.replica_sets import original_replicas
from ottla.server.admin import AdminServer, Check, read_address
from ottla.server.client_bounds import kept_metrics
from ottla.server.config.key import ConfigError
from ottla.server.config.node_config import NodeConfig
from ottla.server.loop_watch import LoopMetrics
from ottla.server.metrics import Family, Registry, gauge
from ottla.server.world import World
from ottla.storage.directories.logs import Logs

ADMIN_LISTENER = "ottla.admin.listener"
METRICS_PORT = "ottla.metrics.port"
PARTITIONS_MAX = "ottla.metrics.partitions.max"
#: The property of the longest time for which replicas that are not in sync keep a node from being ready.
IN_SYNC_TIMEOUT = "ottla.ready.in.sync.timeout.ms"


class InSyncOnce:
    """Remembers when a broker's replicas have all been in sync once since its start: afterwards a follower that lags is no matter of readiness.

    Before that, stopping the next node may take partitions below min.insync.replicas. An orchestrator that updates node by node
    (a StatefulSet) goes on as soon as the node before is ready. A broker is unfenced, and so can be used, seconds before its
    followers have fetched what was written while it was down. With replication factor 3 and min.insync.replicas 2 producers
    were then answered NOT_ENOUGH_REPLICAS until the fetchers had caught up.
    """

    def __init__(self, timeout_ms: int) -> None:
        """After `timeout_ms` no replica is missed any more: a replica that never catches up, because its leader's disk fails,
        must not stop an update for good.
        """
        self._timeout_ms = timeout_ms
        self._is_done = False
        self._since_ms = -1

    def missing(self, node_id: int, partitions: Iterable[Partition], image: MetadataImage, now_ms: int) -> int:
        """Return the number of replicas that are not in sync with a leader; 0 for good once it was 0, or the time is over.

        Partitions without a leader do not count: there is nothing to catch up with. Replicas that a reassignment is adding are not missed either,
        and those of a failed log directory come back by another way.
        """
        if self._is_done:
            return 0
        if self._since_ms < 0:
            self._since_ms = now_ms
        count = sum(_is_behind(node_id, each, image) for each in partitions)
        self._is_done = not count or now_ms - self._since_ms >= self._timeout_ms
        return 0 if self._is_done else count


def _is_behind(node_id: int, local: Partition, image: MetadataImage) -> bool:
    topic = image.topics.by_id(local.topic_id)
    partition = None if topic is None else topic.partitions.get(local.index)
    return (
        partition is not None
        and local.log is not None
        and partition.leader != NO_LEADER
        and node_id in original_replicas(partition.replicas, partition.adding_replicas)
        and node_id not in partition.isr
    )


class NodeChecks:
    """The admin listener's answers about a node. The node sets here the parts that it has started so far."""

    def __init__(self, world: World, config: NodeConfig) -> None:
        self._world, self._config = world, config
        self._in_sync = InSyncOnce(config[IN_SYNC_TIMEOUT])
        self._logs: Logs | None = None
        self._metadata: MetadataNode | None = None
        self._broker: BrokerNode | None = None

    def logs_are_made(self, logs: Logs) -> None:
        self._logs = logs

    def metadata_runs(self, metadata: MetadataNode) -> None:
        """The metadata log is open, and its replica runs."""
        self._metadata = metadata

    def broker_is_made(self, broker: BrokerNode) -> None:
        self._broker = broker

    def stories(self) -> NodeStories | None:
        """Return the stories of the broker; None until there is one, and on a controller."""
        broker = self._broker
        if broker is None:
            return None
        transactional_ids = broker.transactions.coordinator.stories
        return NodeStories(broker.groups.stories, transactional_ids, broker.replicas.stories, broker.tables.stories)

    def tables(self, topic: str | None) -> Iterator[dict[str, Any]]:
        """Yield the state of each topic's table that the broker works on, or of one topic's."""
        if self._broker is not None:
            clock = self._world.clock
            yield from table_states(self._broker.tables, topic, clock.wall_ms(), clock.mono_ms())

    def tiers(self, topic: str | None) -> Iterator[dict[str, Any]]:
        """Yield the state of each partition with remote storage that the broker leads, or of those of one topic."""
        if self._broker is not None:
            tiers = self._broker.tiers
            yield from self._broker.tiered_topics.states(topic) if tiers is None else tiers.states(topic)

    def live(self) -> Iterator[Check]:
        """Liveness, which fails if a restart could help: a response proves that the event loop runs; the required disks must work."""
        yield Check("event loop", True)
        if self._metadata is not None:
            failure = self._metadata.raft.failure
            yield Check("metadata log", failure is None, "" if failure is None else str(failure))
        if self._logs is not None:
            usable = [directory.path for directory in self._logs.directories if directory.online]
            yield Check("log directories", bool(usable), f"{len(usable)} of {len(self._logs.directories)} usable")

    def ready(self) -> Iterator[Check]:
        """Readiness: the checks that must pass before clients are routed to this node."""
        yield from self.live()
        if self._metadata is None:
            yield Check("start", False, "the metadata log is not open yet")
            return
        raft = self._metadata.raft
        where = f"node {raft.state.leader_id} leads" if raft.state.leader_id >= 0 else "no leader is known"
        yield Check("quorum", raft.is_in_touch, where if raft.is_in_touch else f"{where}, and it does not answer")
        yield Check("metadata disk space", raft.shortage is None, raft.shortage or "")
        if not self._config.is_broker:
            return
        broker = self._broker_check(self._metadata)
        yield broker
        if broker.passed and self._broker is not None:
            image, now_ms = self._metadata.loader.image, self._world.clock.mono_ms()
            missing = self._in_sync.missing(self._config.node_id, self._broker.replicas, image, now_ms)
            full = self._broker.full_disks.full
            yield Check("disk space", not full, "; ".join(full.values()))
            yield Check("replicas", not missing, f"{missing} not in sync since the start" if missing else "")

    def _broker_check(self, metadata: MetadataNode) -> Check:
        state = self._broker.lifecycle.state if self._broker is not None else BrokerState.NOT_RUNNING
        if state is not BrokerState.RUNNING:
            return Check("broker", False, state.name)
        if self._broker is not None and self._broker.assumed_fencing.is_assumed:
            return Check("broker", False, "assumes that it was fenced: the log says why")
        # The image may be outdated if the quorum cannot be reached, which another check reports.
        registered = metadata.loader.image.cluster.brokers.get(self._config.node_id)
        if registered is None or registered.fenced:
            return Check("broker", False, "fenced: the controller gives it no partition to lead")
        return Check("broker", True, state.name)


def admin_servers(world: World, config: NodeConfig, metrics: Registry, checks: NodeChecks) -> list[AdminServer]:
    """Return a server for each of the two properties that is set: they say where the same pages are served."""
    addresses = []
    if text := config[ADMIN_LISTENER]:
        try:
            addresses.append(read_address(text))
        except ValueError as error:
            raise ConfigError(ADMIN_LISTENER, text, str(error), f"{ADMIN_LISTENER}=0.0.0.0:9644") from None
    if (metrics_port := config[METRICS_PORT]) is not None:
        addresses.append(("127.0.0.1", metrics_port))
    if addresses:
        metrics.add(LoopMetrics(world.clock, config.is_controller))
    servers = []
    for host, port in addresses:
        is_authorized = bool(config["authorizer.class.name"])
        story = StoryPage(config.node_id, config.own, is_authorized, host, checks.stories)
        pages = {"/story": story.answer}
        for path, states in (("/tables", checks.tables), ("/tiers", checks.tiers)):
            pages[path] = StatePage(path, config.node_id, config.own, is_authorized, host, states).answer
        servers.append(AdminServer(world, host, port, metrics, checks.live, checks.ready, pages))
    return servers


def build_info(release: str) -> Family:
    """Yield the version that runs here; `release` is the Apache Kafka that it advertises."""
    python = {"python": ".".join(map(str, sys.version_info[:3])), "python_build": python_build().value}
    return gauge(
        "ottla_build_info", "1; the labels say what runs here", 1, version=__version__, kafka=release, **python
    )


def add_metadata_sources(
    registry: Registry, world: World, metadata: MetadataNode, controller: ControllerNode | None
) -> None:
    registry.add(RaftMetrics(metadata.raft, world.clock))
    if controller is not None:
        source = ControllerMetrics(controller.controller)
        metadata.loader.add_publisher(source)
        registry.add(source)
        registry.add(ControllerWorkMetrics(controller.controller, metadata))


def add_broker_sources(registry: Registry, world: World, broker: BrokerNode) -> None:
    changes = IsrChangeCounts(broker.configs.node_id)
    broker.publisher.listeners.append(changes.on_metadata_update)
    registry.add(changes)
    registry.add(Traffic(broker.replicas, world.clock))
    registry.add(broker.full_disks.metrics)
    registry.add(broker.clock_jumps.metrics)
    registry.add(UnflushedAges(world.clock, broker.logs.open))
    registry.add(lambda: partition_metrics(broker.replicas, broker.configs[PARTITIONS_MAX]))
    registry.add(lambda: group_metrics(broker.groups, broker.replicas))
    registry.add(broker.components.telemetry.metrics)
    registry.add(lambda: table_metrics(broker.tables, world.clock.mono_ms()))
    registry.add(broker.tiered_topics.metrics if broker.tiers is None else broker.tiers.metrics)
    registry.add(lambda: coordinator_metrics(broker.groups))
    registry.add(lambda: transaction_metrics(broker.transactions.coordinator))
    registry.add(lambda: kept_metrics([hashes, broker.components.share_leaders.group_settings.kept]))
    registry.add(lambda: share_metrics(broker.components.share_leaders, broker.components.share_coordinator))
