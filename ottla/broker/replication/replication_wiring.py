"""Wires replication in a broker: the fetchers of a follower, the ISR changes of a leader."""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.cluster.controller_channel import ControllerChannel
from ottla.broker.configs import BrokerConfigs
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.replication.fetch_requests import FetcherSettings, LeaderAddress
from ottla.broker.replication.replica_fetchers import ReplicaFetchers
from ottla.broker.replication.replicas import Replicas
from ottla.broker.replication.to_controller.alter_partition import AlterPartitionSender
from ottla.broker.replication.to_controller.directory_assignments import DirectoryAssignments
from ottla.server.network.peer_security import PeerSecurity
from ottla.server.world import World
from ottla.storage.directories.logs import Logs


def replicas(
    world: World,
    configs: BrokerConfigs,
    logs: Logs,
    metadata: MetadataCache,
    controller: ControllerChannel,
    broker_epoch: Callable[[], int],
    security: PeerSecurity,
) -> Replicas:
    """Return the replica manager of one broker process."""
    listener = configs.node.inter_broker_listener

    def locate(leader_id: int) -> LeaderAddress | None:
        broker = metadata.image.cluster.brokers.get(leader_id)
        endpoint = None if broker is None else broker.endpoint(listener)
        return None if endpoint is None else LeaderAddress(endpoint.host, endpoint.port)

    settings = FetcherSettings(
        node_id=configs.node_id,
        min_bytes=configs["replica.fetch.min.bytes"],
        wait_ms_max=configs["replica.fetch.wait.max.ms"],
        partition_bytes_max=configs["replica.fetch.max.bytes"],
        response_bytes_max=configs["replica.fetch.response.max.bytes"],
        backoff_ms=configs["replica.fetch.backoff.ms"],
        timeout_ms=configs["replica.socket.timeout.ms"],
        security=security,
    )
    return Replicas(
        configs,
        logs,
        world,
        ReplicaFetchers(world, settings, locate, broker_epoch),
        AlterPartitionSender(world, configs.node_id, controller, broker_epoch, lambda: metadata.image.cluster),
        DirectoryAssignments(world, configs.node_id, controller, broker_epoch, lambda: metadata.image),
    )
