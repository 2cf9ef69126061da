"""Administration of a node: the admin listener, and every source of metrics of the node."""

from __future__ import annotations

import platform

from ottla import __version__
from ottla.broker.broker_node import BrokerNode
from ottla.broker.coordinator.partitions import hashes
from ottla.broker.metrics.coordinator import coordinator_metrics, group_metrics, transaction_metrics
from ottla.broker.metrics.partitions import partition_metrics
from ottla.broker.metrics.replicas import IsrChangeCounts
from ottla.broker.metrics.share import share_metrics
from ottla.broker.metrics.traffic import Traffic
from ottla.broker.metrics.unflushed import UnflushedAges
from ottla.controller.controller_node import ControllerNode, MetadataNode
from ottla.controller.metrics import ControllerMetrics, ControllerWorkMetrics, RaftMetrics
from ottla.node.checks import NodeChecks
from ottla.server.admin import AdminServer, read_address
from ottla.server.config.errors import ConfigError
from ottla.server.config.node_config import NodeConfig
from ottla.server.kept import kept_metrics
from ottla.server.loop_metrics import LoopMetrics
from ottla.server.metrics import Family, Registry, gauge
from ottla.server.world import World

ADMIN_LISTENER = "ottla.admin.listener"
METRICS_PORT = "ottla.metrics.port"
PARTITIONS_MAX = "ottla.metrics.partitions.max"


def admin_servers(world: World, config: NodeConfig, metrics: Registry, checks: NodeChecks) -> list[AdminServer]:
    """Return a server for each of the two properties that is set: they say where the same pages are served."""
    addresses = []
    if text := config.own[ADMIN_LISTENER]:
        addresses.append(_address(text))
    if (metrics_port := config.own[METRICS_PORT]) is not None:
        addresses.append(("127.0.0.1", metrics_port))
    if addresses:
        metrics.add(LoopMetrics(world.clock, config.is_controller))
    return [AdminServer(world, host, port, metrics, checks.live, checks.ready) for host, port in addresses]


def _address(text: str) -> tuple[str, int]:
    try:
        return read_address(text)
    except ValueError as error:
        message = f"Invalid value {text} for configuration {ADMIN_LISTENER}: {error}"
        raise ConfigError(ADMIN_LISTENER, text, str(error), f"{ADMIN_LISTENER}=0.0.0.0:9644", message=message) from None


def build_info(release: str) -> Family:
    """What runs here; `release` is the Apache Kafka that it advertises."""
    labels = {"version": __version__, "kafka": release, "python": platform.python_version()}
    return gauge("ottla_build_info", "1; the labels say what runs here", 1, **labels)


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
    registry.add(lambda: partition_metrics(broker.replicas, broker.configs.setting(PARTITIONS_MAX)))
    registry.add(lambda: group_metrics(broker.groups, broker.replicas))
    registry.add(broker.components.telemetry.metrics)
    registry.add(lambda: coordinator_metrics(broker.groups))
    registry.add(lambda: transaction_metrics(broker.transactions.coordinator))
    registry.add(lambda: kept_metrics([hashes, broker.components.share_leaders.group_settings.kept]))
    registry.add(lambda: share_metrics(broker.components.share_leaders, broker.components.share.coordinator))
