"""One node: the composition root. Everything that runs is made here, started in order, and stopped in the opposite one.

1  log directories      formatted if empty, locked, checked
2  the metadata log     this node's replica; with the controller role also the decisions, on the controllers' listeners
3  the logs             opened, recovered after a crash
4  the broker           binds its ports, registers, applies all metadata from then on, is unfenced, accepts
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial

from ottla.broker.broker_node import BrokerNode
from ottla.broker.cluster.channels import ControllerAddress, ControllerChannel
from ottla.broker.cluster.lifecycle import BrokerIdentity, BrokerLifecycle, RegistrationRejected
from ottla.broker.configs import BrokerConfigs
from ottla.broker.metrics.replicas import broker_metrics
from ottla.controller.controller_node import ControllerNode, MetadataNode
from ottla.controller.decisions.configs import ConfigDecisions
from ottla.controller.metadata.cluster import RegisteredEndpoint
from ottla.controller.metadata.loader import AclPublisher, QuotaPublisher
from ottla.controller.raft.agreement import QuorumDisagreement
from ottla.node.admin import NodeChecks, add_broker_sources, add_metadata_sources, admin_servers, build_info
from ottla.node.formatting import prepare
from ottla.node.load_and_close import close_logs, load_logs
from ottla.node.security import NodeSecurity, NodeUsers, logins_of
from ottla.node.settings import authorizer, client_quotas, control_settings, detoured, raft_config, registered
from ottla.node.tables import open_tier_store, table_worker
from ottla.protocol.api import ApiKey
from ottla.protocol.releases import BROKER, CONTROLLER
from ottla.server.authorization.authorizer import StandardAuthorizer
from ottla.server.client_bounds import kept_metrics
from ottla.server.clock import TimerWheel
from ottla.server.config.key import ConfigError
from ottla.server.config.listeners import Endpoint
from ottla.server.config.node_config import NodeConfig, log_ignored
from ottla.server.handlers.api_versions import ApiVersionsHandler
from ottla.server.handlers.sasl import sasl_authenticate, sasl_handshake
from ottla.server.metrics import Registry
from ottla.server.network.dispatch import Dispatcher
from ottla.server.network.frames import ReceiveBuffer
from ottla.server.network.limited_dispatch import dispatcher as dispatcher_of
from ottla.server.network.limits import ConnectionLimits
from ottla.server.network.listener import ClientGate, Listener
from ottla.server.network.network_metrics import listener_metrics, memory_metrics, request_metrics
from ottla.server.network.pauses import RequestBytes
from ottla.server.network.route import Route, RouteTable
from ottla.server.quotas.clients import quota_metrics
from ottla.server.quotas.rate import ConnectionQuotas
from ottla.server.world import World
from ottla.storage.directories.log_dirs import LogDir, open_log_dirs
from ottla.storage.directories.logs import Logs
from ottla.storage.errors import CorruptFile, InconsistentLogDirectory, LogDirectoryLocked, StorageFailure

log = logging.getLogger("ottla.node")

FAILED_TO_START = (
    ConfigError,
    InconsistentLogDirectory,
    LogDirectoryLocked,
    StorageFailure,
    CorruptFile,
    RegistrationRejected,
    QuorumDisagreement,
    OSError,
)


class Node:
    """A node: broker, controller, or both."""

    def __init__(self, world: World, properties: Mapping[str, str], where: Mapping[str, str] | None = None) -> None:
        """Take in `where` the origin of each property, for messages."""
        config = self.config = NodeConfig(properties, where)
        self.world = detoured(world, config)
        log_ignored(self.config)
        self.metrics = Registry()
        self.checks = NodeChecks(self.world, self.config)
        self.logs: Logs | None = None
        self._metadata: MetadataNode | None = None
        #: True once the metadata log is open and its replica runs.
        self.started_metadata = False
        self.controller: ControllerNode | None = None
        self.broker: BrokerNode | None = None
        self.name = f"[KafkaRaftServer nodeId={self.config.node_id}]"
        self.authorizer = authorizer(self.config)
        self.quotas = client_quotas(self.config, self.world)
        self._security = NodeSecurity(self.world, self.config)
        self.cluster_id = ""
        self.wheel = TimerWheel(self.world.clock)
        self.listeners: list[Listener] = []
        self.limits = ConnectionLimits(
            quotas=ConnectionQuotas(self.quotas.connection_rate, self.quotas.windows), room=self.world.network.room
        )
        for endpoint in self.config.endpoints:
            self.limits.of(endpoint.name)
        self.config.watch(lambda config, changed: self._update_limits())
        self._update_limits()
        self.metrics.add(lambda: [build_info(config.advertised.release.name)])
        self.metrics.add(self._security.metrics)
        self.metrics.add(lambda: listener_metrics(self.listeners))
        self._inbox = ReceiveBuffer(requests=RequestBytes(self.config["queued.max.request.bytes"]))
        self.metrics.add(lambda: memory_metrics(self._inbox.requests))
        if isinstance(self.authorizer, StandardAuthorizer):
            decisions = self.authorizer.decisions
            self.metrics.add(lambda: kept_metrics([decisions]))
        self.metrics.add(lambda: quota_metrics(self.quotas, self.world.clock.mono_ms()))
        self._request_metrics: list[Route] = []
        self._users = NodeUsers(self.world, self.config, lambda: self.metadata.loader.image)
        self._channels: list[ControllerChannel] = []
        self._lifecycle: BrokerLifecycle | None = None
        #: Done when the node cannot go on: with the reason.
        self.failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self._admin = admin_servers(self.world, self.config, self.metrics, self.checks)
        self._stopping = False

    @property
    def metadata(self) -> MetadataNode:
        assert self._metadata is not None, "a node has no metadata before its start"
        return self._metadata

    def _update_limits(self) -> None:
        config = self.config
        self.limits.update(config.values, config.set_names, config.of_listener)

    # -- Starting ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the node. It serves clients when this returns."""
        config, files = self.config, self.world.files
        directories = list(dict.fromkeys([config.metadata_log_directory, *config.log_directories]))
        self.cluster_id = prepare(files, config, self.world.rng, self.world.clock.wall_ms())
        opened = {d.path: d for d in open_log_dirs(files, directories, self.cluster_id, config.node_id)}
        self.logs = Logs(files, [opened[path] for path in config.log_directories], self.world.rng)
        self.checks.logs_are_made(self.logs)
        try:
            for server in self._admin:
                # First, so that a node that recovers its logs for minutes says that it is alive and not ready.
                await server.start()
            await self._start_metadata(opened[config.metadata_log_directory])
            if config.is_broker:
                await self._start_broker(self.logs)
        except (Exception, asyncio.CancelledError):
            # GeneratorExit is not caught: the loop has dropped this coroutine, and nothing can be awaited.
            await self.stop()
            raise
        log.info("%s Kafka Server started", self.name)
        # The line of a broker with ZooKeeper: testcontainers wait for it unless they are configured for KRaft.
        log.info("[KafkaServer id=%d] started", config.node_id)

    async def _start_metadata(self, directory: LogDir) -> None:
        config = self.config
        if directory.failure is not None:
            raise directory.failure
        self._metadata = MetadataNode(
            self.world,
            raft_config(config, self.cluster_id, directory.directory_id),
            directory.path,
            snapshot_bytes_max=config["metadata.log.max.record.bytes.between.snapshots"],
            snapshot_interval_ms_max=config["metadata.log.max.snapshot.interval.ms"],
            on_failure=self.fail,
            security=self._security.to_controllers,
            advertised=config.advertised,
        )
        self.metadata.loader.add_publisher(QuotaPublisher(self.quotas))
        if config.is_controller and isinstance(self.authorizer, StandardAuthorizer):
            raft, loader = self.metadata.raft, self.metadata.loader
            loader.add_publisher(
                AclPublisher(self.authorizer, lambda: loader.image.offset + 1 >= raft.state.high_watermark)
            )
        if config.is_controller:
            self.controller = ControllerNode(
                self.world,
                self.metadata,
                control_settings(config, self.cluster_id),
                ConfigDecisions(config.node_id, config.values, config.static, config.advertised.release),
                [registered(endpoint, endpoint.port) for endpoint in config.controller_endpoints],
                authorizer=self.authorizer,
                quotas=self.quotas,
                static_configs=config.static,
            )
            await self.metadata.raft.open()
            listeners, _ = await self._bind(config.controller_endpoints, self.controller.routes())
            early = [listener for listener in listeners if listener.name in config.early_start_listeners]
            await self._accept(early)
            await self.metadata.raft.begin()
            await self._accept([listener for listener in listeners if listener not in early])
        else:
            await self.metadata.raft.start()
        add_metadata_sources(self.metrics, self.world, self.metadata, self.controller)
        self.started_metadata = True
        self.checks.metadata_runs(self.metadata)

    async def _start_broker(self, logs: Logs) -> None:
        config, clock = self.config, self.world.clock
        configs = BrokerConfigs(config)
        began_ms = clock.mono_ms()
        image = self.metadata.loader.image
        config_for = partial(configs.for_opening, image.configs)
        # This runs on a worker, because the quorum must not miss its turns while logs are recovered.
        await self.world.workers.run(load_logs, logs, config_for, clock, clock.wall_ms())
        if len(logs.open):
            log.info("Loaded %d logs in %d ms", len(logs.open), clock.mono_ms() - began_ms)
        # Heartbeats have a connection of their own for two reasons. They must not wait behind a forwarded request. When one
        # times out its connection is closed, and a forwarded CreateTopics that was in flight there would be sent again and
        # answered TOPIC_ALREADY_EXISTS.
        heartbeats, channel = (
            ControllerChannel(self.world, config.node_id, self._active_controller, self._security.to_controllers)
            for _ in range(2)
        )
        self._channels += [heartbeats, channel]
        self.metadata.leader_watchers += [each.leader_changed for each in self._channels]
        # Filled when the listeners have their ports; the lifecycle reads it when it registers.
        endpoints: list[RegisteredEndpoint] = []
        lifecycle = self._lifecycle = BrokerLifecycle(
            self.world,
            self._identity(logs, endpoints),
            heartbeats,
            lambda: self.metadata.loader.last_offset,
            heartbeat_interval_ms=config["broker.heartbeat.interval.ms"],
            session_timeout_ms=config["broker.session.timeout.ms"],
            registration_timeout_ms=config["initial.broker.registration.timeout.ms"],
        )
        lifecycle.on_rejected = self.fail
        self._cordon(logs, lifecycle)
        config.watch(lambda config, changed: self._cordon(logs, lifecycle))
        broker = self.broker = BrokerNode(
            self.world,
            configs,
            self.cluster_id,
            logs,
            self.wheel,
            channel,
            lifecycle,
            frozenset(e.name for e in config.broker_endpoints if e.advertised_host is None),
            self.quotas,
            self.authorizer,
            self._security.to_brokers,
            self._security.check_stores,
            table_worker,
            partial(open_tier_store, config),
        )
        self.checks.broker_is_made(broker)
        if isinstance(self.authorizer, StandardAuthorizer) and not config.is_controller:
            lifecycle.caught_up.add_done_callback(self._authorize_clients)
        self.metrics.add(lambda: broker_metrics(broker.components))
        listeners, dispatcher = await self._bind(config.broker_endpoints, broker.routes)
        endpoints.extend(registered(listener.endpoint, listener.port) for listener in listeners)
        self.metadata.loader.add_publisher(lifecycle)
        add_broker_sources(self.metrics, self.world, broker)
        gate = ClientGate(self.world, dispatcher, listeners)
        broker.assumed_fencing.on_change = lambda is_assumed: gate.close() if is_assumed else gate.open()
        await broker.start(lambda: self.metadata.introduce(broker.publisher))
        # Listeners accept only now: a Metadata response without a live broker makes librdkafka wait for its next refresh, in five minutes.
        await self._accept(listeners)
        log.info("[BrokerLifecycleManager id=%d] Transitioning from RECOVERY to RUNNING", config.node_id)

    def _identity(self, logs: Logs, endpoints: Sequence[RegisteredEndpoint]) -> BrokerIdentity:
        release = self.config.advertised.release
        return BrokerIdentity(
            self.config.node_id,
            self.cluster_id,
            endpoints,
            [d.directory_id for d in logs.directories if d.online],
            rack=self.config["broker.rack"],
            previous_broker_epoch=logs.previous_broker_epoch,
            features=self.metadata.supported_levels,
            emulates=None if release.is_newest else release.name,
        )

    def _cordon(self, logs: Logs, lifecycle: BrokerLifecycle) -> None:
        """Set the directories that get no new replicas (KIP-1066): the next heartbeat names them to the controller."""
        for directory in logs.directories:
            directory.cordoned = self.config.is_cordoned(directory.path)
        lifecycle.cordon([d.directory_id for d in logs.directories if d.online and d.cordoned])

    def _authorize_clients(self, caught_up: asyncio.Future[None]) -> None:
        """Let the authorizer of a node without the controller role decide: the broker has caught up, and has all entries."""
        if not caught_up.cancelled() and caught_up.exception() is None:
            assert isinstance(self.authorizer, StandardAuthorizer)
            self.metadata.loader.add_publisher(AclPublisher(self.authorizer, lambda: True))

    def _active_controller(self) -> ControllerAddress | None:
        endpoint = self.metadata.raft.state.leader_endpoint
        if endpoint is None:
            return None
        return ControllerAddress(self.metadata.raft.state.leader_id, endpoint.host, endpoint.port)

    async def _bind(self, endpoints: tuple[Endpoint, ...], routes: list[Route]) -> tuple[list[Listener], Dispatcher]:
        """Bind all endpoints of one role, with one table of routes. They do not accept connections yet."""
        api_versions = ApiVersionsHandler(self.metadata.features, self.config.advertised)
        table = RouteTable(
            [
                *routes,
                Route(ApiKey.API_VERSIONS, api_versions),
                Route(ApiKey.SASL_HANDSHAKE, sasl_handshake),
                Route(ApiKey.SASL_AUTHENTICATE, sasl_authenticate),
            ],
            self.config.advertised,
            BROKER if self.broker is not None and endpoints == self.config.broker_endpoints else CONTROLLER,
        )
        api_versions.set_routes(table)
        broker = self.broker
        if broker is not None:
            api_versions.controller_versions = lambda: broker.controller.versions
            api_versions.hidden_apis = lambda: broker.hidden_apis
        if not self._request_metrics:
            # With two tables the metrics are those of the broker's routes, because both have APIs of the same names.
            self.metrics.add(lambda: request_metrics(self._request_metrics))
        self._request_metrics = table.rows
        dispatcher = dispatcher_of(table, self.world.clock, self.world.spawn, self.quotas)
        made = []
        for endpoint in endpoints:
            listener = Listener(
                self.world,
                endpoint,
                dispatcher,
                self.limits,
                self._inbox,
                self.wheel,
                tls=self._security.of_listeners.get(endpoint.name),
                inter_broker=endpoint.name == self.config.inter_broker_listener,
                logins=logins_of(self.world, self.config, self._users, endpoint, dispatcher, self.wheel),
            )
            await listener.bind()
            self.listeners.append(listener)
            made.append(listener)
        return made, dispatcher

    async def _accept(self, listeners: list[Listener]) -> None:
        """Open listeners, those of early.start.listeners first; the others wait until the authorizer has its entries (KIP-801)."""
        early = self.config.early_start_listeners
        for listener in sorted(listeners, key=lambda each: each.name not in early):
            if listener.name not in early and not self.authorizer.loaded.is_set():
                log.info("Listener %s opens once the access control entries are loaded", listener.name)
                await self.authorizer.loaded.wait()
            await listener.accept()

    def fail(self, failure: BaseException) -> None:
        if not self.failed.done():
            self.failed.set_result(failure)

    # -- Stopping ----------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Stop in this order: leadership, clients, the quorum, logs.

        The quorum stops before the logs: closing 500 logs takes a second or two, and the cluster has no metadata while an
        active controller is silent and the others have not noticed it.
        """
        if self._stopping:
            return  # a start that is cut short by a stop ends here too
        self._stopping = True
        log.info("%s shutting down", self.name)
        if self.broker is not None:
            await self.broker.stop()
        for listener in self.listeners:
            if listener.endpoint in self.config.broker_endpoints:
                await listener.stop()
        for channel in self._channels:
            channel.close()
        failure: Exception | None = None
        try:
            await self._leave_quorum()
        except Exception as caught:  # a metadata log that cannot be closed must not cost the others their clean stop
            failure = caught
        if self.logs is not None:
            epoch = self._lifecycle.broker_epoch if self._lifecycle is not None else -1
            await close_logs(self.world, self.logs, epoch)
        for listener in self.listeners:
            listener.abort()
        self.wheel.close()
        self._security.stop()
        for server in self._admin:
            await server.stop()
        if failure is not None:
            raise failure
        log.info("%s shut down completed", self.name)

    async def _leave_quorum(self) -> None:
        if self.controller is not None:
            await self.controller.stop()
        if self._metadata is not None:
            await self._metadata.raft.stop()
        for listener in self.listeners:
            if listener.endpoint in self.config.controller_endpoints:
                await listener.stop()
                listener.abort()
