"""Administration of a node: the admin listener with its checks, and every source of metrics of the node."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.broker.cluster.broker_state import BrokerState
from ottla.broker.coordinator.partitions import hashes
from ottla.broker.metrics.coordinator import coordinator_metrics, group_metrics, transaction_metrics
from ottla.broker.metrics.partitions import partition_metrics
from ottla.broker.metrics.replicas import IsrChangeCounts
from ottla.broker.metrics.share import share_metrics
from ottla.broker.metrics.traffic import Traffic
from ottla.broker.node import BrokerNode
from ottla.controller.metrics import ControllerMetrics, ControllerWorkMetrics, RaftMetrics
from ottla.controller.node import ControllerNode, MetadataNode
from ottla.node.in_sync import InSyncOnce
from ottla.node.state import NodeState
from ottla.server.admin import AdminServer, Check, read_address
from ottla.server.config.errors import ConfigError
from ottla.server.kept import kept_metrics
from ottla.server.loop_metrics import LoopMetrics
from ottla.server.metrics import Registry
from ottla.server.world import World

ADMIN_LISTENER = "ottla.admin.listener"
METRICS_PORT = "ottla.metrics.port"


def admin_servers(node: NodeState) -> list[AdminServer]:
    """Return a server for each of the two properties that is set: they say where the same pages are served."""
    addresses = []
    if text := node.config.own[ADMIN_LISTENER]:
        addresses.append(_address(text))
    if (metrics_port := node.config.own[METRICS_PORT]) is not None:
        addresses.append(("127.0.0.1", metrics_port))
    if addresses:
        node.metrics.add(LoopMetrics(node.world.clock, node.config.is_controller))
    in_sync = InSyncOnce()
    return [
        AdminServer(node.world, host, port, node.metrics, lambda: live(node), lambda: ready(node, in_sync))
        for host, port in addresses
    ]


def _address(text: str) -> tuple[str, int]:
    try:
        return read_address(text)
    except ValueError as error:
        message = f"Invalid value {text} for configuration {ADMIN_LISTENER}: {error}"
        raise ConfigError(ADMIN_LISTENER, text, str(error), f"{ADMIN_LISTENER}=0.0.0.0:9644", message=message) from None


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
    registry.add(lambda: partition_metrics(broker.replicas))
    registry.add(lambda: group_metrics(broker.groups, broker.replicas))
    registry.add(broker.components.telemetry.metrics)
    registry.add(lambda: coordinator_metrics(broker.groups))
    registry.add(lambda: transaction_metrics(broker.transactions.coordinator))
    registry.add(lambda: kept_metrics([hashes, broker.components.share_leaders.group_settings.kept]))
    registry.add(lambda: share_metrics(broker.components.share_leaders, broker.components.share.coordinator))


def live(node: NodeState) -> Iterator[Check]:
    """Liveness, which fails if a restart could help: a response proves that the event loop runs; the required disks must work."""
    yield Check("event loop", True)
    if node.started_metadata:
        failure = node.metadata.raft.failure
        yield Check("metadata log", failure is None, "" if failure is None else str(failure))
    if node.logs is not None:
        usable = [directory.path for directory in node.logs.directories if directory.online]
        yield Check("log directories", bool(usable), f"{len(usable)} of {len(node.logs.directories)} usable")


def ready(node: NodeState, in_sync: InSyncOnce) -> Iterator[Check]:
    """Readiness: the checks that must pass before clients are routed to this node."""
    yield from live(node)
    if not node.started_metadata:
        yield Check("start", False, "the metadata log is not open yet")
        return
    raft = node.metadata.raft
    where = f"node {raft.leader_id} leads" if raft.leader_id >= 0 else "no leader is known"
    yield Check("quorum", raft.is_in_touch, where if raft.is_in_touch else f"{where}, and it does not answer")
    if not node.config.is_broker:
        return
    broker = _broker_check(node)
    yield broker
    if broker.passed and node.broker is not None:
        image, now_ms = node.metadata.loader.image, node.world.clock.mono_ms()
        missing = in_sync.missing(node.config.node_id, node.broker.replicas, image, now_ms)
        full = node.broker.full_disks.full
        yield Check("disk space", not full, "; ".join(full.values()))
        yield Check("replicas", not missing, f"{missing} not in sync since the start" if missing else "")


def _broker_check(node: NodeState) -> Check:
    state = node.broker.lifecycle.state if node.broker is not None else BrokerState.NOT_RUNNING
    if state is not BrokerState.RUNNING:
        return Check("broker", False, state.name)
    if node.broker is not None and node.broker.assumed_fencing.is_assumed:
        return Check("broker", False, "assumes that it was fenced: it reaches neither the controller nor most brokers")
    # The image may be outdated if the quorum cannot be reached, which another check reports.
    registered = node.metadata.loader.image.cluster.brokers.get(node.config.node_id)
    if registered is None or registered.fenced:
        return Check("broker", False, "fenced: the controller gives it no partition to lead")
    return Check("broker", True, state.name)
