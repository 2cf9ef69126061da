"""Wiring. Every node has a `MetadataNode`: its replica of the metadata log and the image made of it.
`ControllerNode` adds the controller role: decisions, scheduled tasks, handlers.

    metadata = MetadataNode(world, raft_config, directory)
    controller = ControllerNode(world, metadata, settings, configs, endpoints)     # only with the controller role
    await metadata.raft.start()                                                   # a quorum of one leads afterwards
    await metadata.introduce(...)                                                 # the broker's publisher, in its order
    routes = controller.routes()                                                  # for the controller's listeners

Committed metadata is published first, and pending responses are completed after that, so that on a combined node a topic can
be written to as soon as the response to CreateTopics is sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from ottla.controller.decisions.brokers import register_controller
from ottla.controller.decisions.configs import ConfigDecisions
from ottla.controller.decisions.control_state import ControlSettings
from ottla.controller.handlers.components import ControllerComponents
from ottla.controller.metadata.cluster import RegisteredEndpoint, listeners_of
from ottla.controller.metadata.image import MetadataDelta, MetadataImage
from ottla.controller.metadata.loader import MetadataLoader, Publisher
from ottla.controller.metadata.snapshots import (
    BYTES_BETWEEN_SNAPSHOTS_MAX,
    SNAPSHOT_INTERVAL_MS_MAX,
    SnapshotGenerator,
    SnapshotWriter,
)
from ottla.controller.periodic import ScheduledTasks
from ottla.controller.raft.batches import CommittedBatch
from ottla.controller.raft.driver import RaftNode
from ottla.controller.raft.log_state import OffsetAndEpoch
from ottla.controller.raft.raft_config import RaftConfig
from ottla.controller.raft.routes import quorum_routes
from ottla.controller.raft.snapshots import SnapshotReader, read_bootstrap
from ottla.controller.routes import controller_routes
from ottla.controller.runtime import Controller
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.features import KRAFT_VERSION, MV_CONTROLLER_REGISTRATION, supported_levels
from ottla.protocol.internal_topics.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    ZkMigrationStateRecord,
    decode_record,
)
from ottla.protocol.messages.controller_registration import ControllerRegistrationRequest
from ottla.protocol.messages.shared_structs import Feature
from ottla.protocol.primitives import new_uuid
from ottla.protocol.releases import DEFAULT, Advertised
from ottla.protocol.work import Work
from ottla.server.authorization.authorizer import AllowAll, Authorizer
from ottla.server.clock import pause
from ottla.server.handlers.api_versions import Features
from ottla.server.network.client import Channel
from ottla.server.network.peer_security import PLAINTEXT, PeerSecurity
from ottla.server.network.route import Route
from ottla.server.network.wire import ChannelClosed
from ottla.server.quotas.clients import ClientQuotas
from ottla.server.sasl.delegation_tokens import TokensByHmac
from ottla.server.world import World
from ottla.storage.checkpoint import EPOCH_FLOOR, read_offsets

log = logging.getLogger(__name__)

RETRY_MS = 100


class ControllerRegistrar:
    """A publisher that registers this controller (KIP-919) with the active one, which may be itself, whenever the metadata lacks it.

    By the registrations the active controller checks that every voter supports a feature before it raises the feature's level.
    """

    def __init__(
        self,
        world: World,
        controller: Controller,
        incarnation_id: bytes,
        endpoints: Sequence[RegisteredEndpoint],
        connect: Callable[[], Channel | None],
        features: Mapping[str, tuple[int, int]],
    ) -> None:
        """Take `connect`, which returns a channel to the active controller, or None if that is unknown."""
        self._world = world
        self._controller = controller
        self._incarnation_id = incarnation_id
        self._connect = connect
        self._running = False
        self._stopped = False
        self._request = ControllerRegistrationRequest(
            controller_id=controller.node_id,
            incarnation_id=incarnation_id,
            listeners=listeners_of(endpoints),
            features=[Feature(name, lowest, highest) for name, (lowest, highest) in features.items()],
        )

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.check()

    def check(self) -> None:
        """Register unless that is done or in progress. It is called after each change of the metadata or the leader."""
        if not self._running and not self._stopped and self._needed():
            self._running = True
            self._world.spawn(self._register(), "controller-registration")

    def stop(self) -> None:
        self._stopped = True

    def _needed(self) -> bool:
        image = self._controller.image
        if image.features.metadata_version < MV_CONTROLLER_REGISTRATION:
            return False
        known = image.cluster.controllers.get(self._controller.node_id)
        return known is None or known.incarnation_id != self._incarnation_id

    async def _register(self) -> None:
        try:
            while self._needed() and not self._stopped:
                if await self._attempt():
                    return  # the metadata will contain the registration
                await pause(self._world.clock, RETRY_MS)
        finally:
            self._running = False

    async def _attempt(self) -> bool:
        try:
            if self._controller.is_active:
                self._controller.write(lambda state: register_controller(state, self._request))
                return True
            channel = self._connect()
            if channel is None:
                return False
            response = await channel.request(self._request)
        except (KafkaError, ChannelClosed) as error:
            log.info("Could not register this controller: %s", error)
            return False
        if response.error_code != ErrorCode.NONE:
            log.info("Could not register this controller: %s", ErrorCode(response.error_code).name)
        return bool(response.error_code == ErrorCode.NONE)


LeaderWatcher = Callable[[int, int], None]

# Kafka's formatter adds these around the bootstrap records; at the start of a log they have no effect.
_BRACKETS = (BeginTransactionRecord, EndTransactionRecord, AbortTransactionRecord, ZkMigrationStateRecord)


class MetadataNode:
    """The listener of the node's raft replica: it gets everything committed, once."""

    def __init__(
        self,
        world: World,
        config: RaftConfig,
        directory: str,
        *,
        snapshot_bytes_max: int = BYTES_BETWEEN_SNAPSHOTS_MAX,
        snapshot_interval_ms_max: int = SNAPSHOT_INTERVAL_MS_MAX,
        on_failure: Callable[[BaseException], None] | None = None,
        security: PeerSecurity = PLAINTEXT,
        advertised: Advertised = DEFAULT,
    ) -> None:
        """Take the `security` of the connections to other controllers."""
        self.supported_levels = supported_levels(advertised)
        self.world = world
        self.directory = directory
        self.loader = MetadataLoader()
        self.security = security
        self.raft = RaftNode(world, config, directory, self, security=security, on_failure=on_failure)
        self.leader_watchers: list[LeaderWatcher] = []
        self.after_commit: list[Callable[[], None]] = []
        #: When the newest loaded record was appended, by its leader's clock.
        self.last_append_time_ms = -1
        self._snapshots = SnapshotGenerator(
            world, self, bytes_max=snapshot_bytes_max, interval_ms_max=snapshot_interval_ms_max
        )

    async def introduce(self, publisher: Publisher) -> None:
        """Introduce a publisher: it gets the current image as one delta from the empty image; later commits follow."""
        known = asyncio.Event()

        def introduction() -> Work[None]:
            yield from self.loader.introduce(publisher)
            known.set()

        self.raft.between_deliveries(introduction())
        await known.wait()

    def features(self) -> Features:
        """Return the features for ApiVersions: supported levels, those finalized in the metadata, and the quorum's own."""
        image = self.loader.image
        finalized = dict(image.features.levels)
        finalized[KRAFT_VERSION] = self.raft.state.voters.kraft_version
        return Features(self.supported_levels, finalized, image.offset)

    # RaftListener
    def handle_commit(self, batches: list[CommittedBatch]) -> Work[None]:
        yield from self.loader.handle_commit(batches)
        self.last_append_time_ms = batches[-1].append_time_ms
        self._snapshots.committed(len(batches), sum(batch.size_bytes for batch in batches))
        if not self.loader.in_transaction:
            self._snapshots.write_if_due(self.loader.image)
        for notify in self.after_commit:
            notify()

    def handle_snapshot(self, reader: SnapshotReader) -> Work[None]:
        yield from self.loader.handle_snapshot(reader)
        self.last_append_time_ms = reader.last_contained_log_timestamp
        self._snapshots.loaded_snapshot()
        for notify in self.after_commit:
            notify()

    def handle_leader_change(self, leader_id: int, epoch: int) -> None:
        for watcher in self.leader_watchers:
            watcher(leader_id, epoch)

    # controller.metadata.snapshots.SnapshotStore
    def create_snapshot(self, offset: int, epoch: int) -> SnapshotWriter | None:
        return self.raft.create_snapshot(OffsetAndEpoch(offset, epoch), self.last_append_time_ms)

    def snapshot_created(self, offset: int, epoch: int) -> None:
        self.raft.snapshot_created(OffsetAndEpoch(offset, epoch))


class ControllerNode:
    def __init__(
        self,
        world: World,
        metadata: MetadataNode,
        settings: ControlSettings,
        configs: ConfigDecisions,
        endpoints: Sequence[RegisteredEndpoint],
        *,
        authorizer: Authorizer | None = None,
        quotas: ClientQuotas | None = None,
        static_configs: Mapping[str, str] | None = None,
    ) -> None:
        """Take the advertised `endpoints` of this controller's listeners, and `static_configs`, the texts of the properties file."""
        self.world = world
        self.metadata = metadata
        tokens = settings.delegation_tokens
        self.controller = Controller(settings.node_id, world.clock, world.rng, metadata.raft, metadata.loader, settings)
        self.scheduled_tasks = ScheduledTasks(self.controller)
        self.components = ControllerComponents(
            world=world,
            controller=self.controller,
            scheduled_tasks=self.scheduled_tasks,
            configs=configs,
            quorum=metadata.raft,
            quotas=ClientQuotas(world.clock) if quotas is None else quotas,
            authorizer=AllowAll() if authorizer is None else authorizer,
            static_configs=static_configs or {},
            tokens=TokensByHmac(tokens.secret_key, *tokens.other_keys) if tokens.secret_key else None,
        )
        self._channel: Channel | None = None
        self.registrar = ControllerRegistrar(
            world,
            self.controller,
            new_uuid(world.rng),
            endpoints,
            self._channel_to_leader,
            metadata.supported_levels,
        )
        self._read_bootstrap()
        self.controller.epoch_floors = read_offsets(world.files, f"{metadata.directory}/{EPOCH_FLOOR}")
        metadata.leader_watchers.append(self._leader_changed)
        metadata.after_commit.append(self.controller.committed)
        metadata.loader.add_publisher(self.registrar)

    def routes(self) -> list[Route]:
        """Return the routes of a controller's listener, with the quorum's APIs."""
        return controller_routes(self.components, quorum_routes(self.metadata.raft))

    async def stop(self) -> None:
        """Stop before the metadata node does: pending requests get NOT_CONTROLLER, so that they are retried at the next active controller."""
        self.registrar.stop()
        self.controller.stop()
        if self._channel is not None:
            self._channel.close()

    def _leader_changed(self, leader_id: int, epoch: int) -> None:
        self.controller.leader_changed(leader_id, epoch)
        self.registrar.check()

    def _read_bootstrap(self) -> None:
        """Read the bootstrap records of a formatted directory. The directory need not be formatted."""
        values = read_bootstrap(self.world.files, self.metadata.directory)
        if values:
            records = [decode_record(value)[0] for value in values]
            self.controller.set_bootstrap(record for record in records if not isinstance(record, _BRACKETS))

    def _channel_to_leader(self) -> Channel | None:
        endpoint = self.metadata.raft.state.leader_endpoint
        if endpoint is None:
            return None
        channel = self._channel
        if channel is None or (channel.host, channel.port) != (endpoint.host, endpoint.port):
            if channel is not None:
                channel.close()
            channel = self._channel = Channel(
                self.world,
                endpoint.host,
                endpoint.port,
                f"controller-{self.controller.node_id}",
                self.metadata.security,
            )
        return channel
