"""Wiring of a broker: its components, their dependencies, how new metadata reaches them, and the order in which they start and stop.

    start      scheduled tasks; then the lifecycle registers at the controller and is unfenced once it has caught up
    stop       controlled shutdown moves leadership away, then nothing is acknowledged any more, then the logs are closed

It shares the world, the logs and the listeners with a controller in the same process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.api.metadata import encoder_of_topics
from ottla.broker.api_row import bound
from ottla.broker.cluster.assumed_fencing import AssumedFencing, Led
from ottla.broker.cluster.channels import BrokerChannels, ControllerChannel
from ottla.broker.cluster.lifecycle import BrokerLifecycle
from ottla.broker.cluster.producer_ids import ProducerIds
from ottla.broker.cluster.topic_creation import StreamsTopics, TopicCreation
from ottla.broker.components import BrokerComponents
from ottla.broker.configs import BrokerConfigs
from ottla.broker.encoded_metadata import AllTopics
from ottla.broker.fetch.session_cache import FetchSessionCache
from ottla.broker.groups.deletion import GroupDeletion
from ottla.broker.groups.group_wiring import (
    EndOffsets,
    group_coordinator,
    persister,
    share_coordinator,
)
from ottla.broker.groups.share_group_coordinator import ShareGroupCoordinator
from ottla.broker.log_cleaner import LogCleaner
from ottla.broker.long_work import LongWork
from ottla.broker.lost_leaders import DelayedMetadata
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.replication.committed_write import CommittedWrites
from ottla.broker.replication.replicas import Replicas
from ottla.broker.routes import ROUTES
from ottla.broker.scheduled_tasks import HOLD, ClockJumps, FullDisks, ScheduledTasks
from ottla.broker.share.dead_letter_queue import DeadLetterQueue
from ottla.broker.share.leaders import ShareLeaders
from ottla.broker.tables.table_driver import TableDriver
from ottla.broker.telemetry.client_telemetry import Telemetry
from ottla.broker.tiered_topics import TieredTopics
from ottla.broker.transactions.transaction_wiring import transactions
from ottla.controller.metadata.configs import ResourceType
from ottla.controller.metadata.image import MetadataDelta, MetadataImage
from ottla.protocol.work import Work
from ottla.server.authorization.authorizer import AllowAll, Authorizer
from ottla.server.clock import TimerWheel
from ottla.server.config.remote_storage import SYSTEM
from ottla.server.network.peer_security import PLAINTEXT, PeerSecurity
from ottla.server.network.route import Route
from ottla.server.quotas.clients import ClientQuotas
from ottla.server.world import World
from ottla.storage.directories.logs import Logs

if TYPE_CHECKING:  # only a broker with remote storage imports them
    from ottla.broker.broker_tiers import BrokerTiers
    from ottla.broker.tiers.objects import TierStore

Listener = Callable[[MetadataDelta, MetadataImage], Work[None] | None]


class BrokerPublisher:
    """New metadata takes effect on a broker: roles, logs and configs, in the one order that is safe.

        0  whose metadata is it        a process that was replaced by another of the same id stops leading, and applies no more
        1  the cache                   clients see the new leaders
        2  the broker's own configs    because the logs of step 3 take their defaults from them
        3  replicas                    create, lead, follow, delete; this notifies the coordinators
        4  topics' configs             for logs that were there before; new ones had them in step 3
        5  the other listeners

    One path for log and snapshot: a snapshot is a delta too. Steps 3 to 5 are done in slices where there are many partitions.
    It is a `controller.metadata.loader.Publisher`.
    """

    def __init__(
        self,
        configs: BrokerConfigs,
        metadata: MetadataCache,
        replicas: Replicas,
        is_replaced_in: Callable[[MetadataImage], bool],
    ) -> None:
        self._own = (ResourceType.BROKER.value, str(configs.node_id))
        self._all_brokers = (ResourceType.BROKER.value, "")
        self._configs = configs
        self._metadata = metadata
        self._replicas = replicas
        self._is_replaced_in = is_replaced_in
        self._replaced = False
        self.listeners: list[Listener] = []

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> Work[None]:
        if not self._replaced and self._is_replaced_in(image):
            self._replaced = True
            self._replicas.resign_all()
        if self._replaced:
            return
        self._metadata.image = image
        changed = {} if delta.configs is None else delta.configs.changed_resources
        broker_configs_changed = self._own in changed or self._all_brokers in changed
        if broker_configs_changed:
            self._configs.update(image.configs)
        yield from self._replicas.apply(delta, image)
        if broker_configs_changed:
            yield from self._replicas.update_all_configs()
        else:
            yield from self._replicas.update_configs(name for kind, name in changed if kind == ResourceType.TOPIC)
        for listener in self.listeners:
            if (work := listener(delta, image)) is not None:
                yield from work


#: Kafka gives each attempt the socket timeout of controllers, 30 s, and makes three; `ottla dev` kills after 30 s in all.
CONTROLLED_SHUTDOWN_TIMEOUT_MS = 10_000


class BrokerNode:
    """A broker: its components and their life cycle."""

    def __init__(
        self,
        world: World,
        configs: BrokerConfigs,
        cluster_id: str,
        logs: Logs,
        wheel: TimerWheel,
        controller: ControllerChannel,
        lifecycle: BrokerLifecycle,
        unadvertised_listeners: frozenset[str],
        quotas: ClientQuotas,
        authorizer: Authorizer | None = None,
        security: PeerSecurity = PLAINTEXT,
        check_stores: Callable[[Mapping[str, str]], str | None] = lambda configs: None,
        table_worker: Callable[[], object] = object,
        open_tier_store: Callable[[], TierStore] | None = None,
    ) -> None:
        self.world, self.configs, self.logs = world, configs, logs
        self.lifecycle, self.controller = lifecycle, controller
        metadata = self.metadata = MetadataCache(configs.node_id, cluster_id)
        self.metadata.unadvertised = unadvertised_listeners
        self.replicas = Replicas(world, configs, logs, metadata, controller, lambda: lifecycle.broker_epoch, security)
        self.clock_jumps = ClockJumps(world.session_clock, configs[HOLD])
        self.groups = group_coordinator(world, configs, self.metadata, self.replicas, self.clock_jumps.expiry_ms)
        self.channels = BrokerChannels(world, configs, self.metadata, security)
        self.assumed_fencing = AssumedFencing(world, configs, self.metadata, lifecycle, security, self._led)
        producer_ids = ProducerIds(world, configs.node_id, controller, lifecycle)
        self.transactions = transactions(
            world, configs, self.metadata, self.replicas, self.groups, producer_ids, self.channels, wheel
        )
        topic_creation = TopicCreation(world, configs, self.metadata, controller, wheel)
        self.share_coordinator = share_coordinator(world, configs, metadata, self.replicas, self.groups.runtime.turns)
        self.tables = TableDriver(world, configs, metadata, self.replicas, table_worker)
        self.replicas.listeners += [self.groups, self.transactions.coordinator, self.share_coordinator, self.tables]
        share_persister = persister(world, configs, metadata, self.share_coordinator, self.channels, topic_creation)
        work, self._share_locks = LongWork(world), TimerWheel(world.session_clock)
        self._writes = CommittedWrites(world, self.metadata, self.replicas, self.channels, wheel)
        self._dead_letters = DeadLetterQueue(world, configs, self.metadata, controller, self._writes)
        self.share_leaders = ShareLeaders(
            world, configs, metadata, self.replicas, share_persister, self._share_locks, work, self._dead_letters
        )
        self.components = BrokerComponents(
            world=world,
            configs=configs,
            node_id=configs.node_id,
            replicas=self.replicas,
            metadata=self.metadata,
            controller=controller,
            topic_creation=topic_creation,
            streams_topics=StreamsTopics(world, controller),
            producer_ids=producer_ids,
            groups=self.groups,
            transactions=self.transactions,
            share_coordinator=self.share_coordinator,
            share_leaders=self.share_leaders,
            share_groups=ShareGroupCoordinator(
                self.groups,
                share_persister,
                lambda: metadata.image.topics,
                EndOffsets(world, metadata, self.replicas, self.channels).find,
            ),
            group_deletion=GroupDeletion(self.groups, share_persister),
            fetch_sessions=FetchSessionCache.of(configs, world.rng),
            wheel=wheel,
            fetch_max_bytes=configs["fetch.max.bytes"],
            delayed_metadata=DelayedMetadata(world.clock, wheel),
            long_work=work,
            all_topics=AllTopics(self.metadata, world.clock, lambda view: encoder_of_topics(self.components, view)),
            quotas=quotas,
            telemetry=Telemetry(world.clock, configs["ottla.client.telemetry.always.advertised"]),
            authorizer=AllowAll() if authorizer is None else authorizer,
            check_stores=check_stores,
        )
        self.tiered_topics = TieredTopics(configs)
        self.tiers = self._tiers(open_tier_store)
        self.routes: list[Route] = bound(ROUTES, self.components)
        self.publisher = BrokerPublisher(configs, self.metadata, self.replicas, lifecycle.is_replaced_in)
        self.publisher.listeners += [
            self.groups.on_metadata_update, self.share_coordinator.on_metadata_update, self.components.delayed_metadata.on_metadata_update,
            topic_creation.on_metadata_update, self.channels.on_metadata_update, self.components.telemetry.on_metadata_update,
            self.tables.on_metadata_update, self.tiered_topics.on_metadata_update,
        ]  # fmt: skip
        self._scheduled_tasks = ScheduledTasks(
            world, configs, logs, self.replicas, self.clock_jumps, self._check_directories
        )
        self._log_cleaner = LogCleaner(world, configs, logs, self.clock_jumps)
        self._offline: set[str] = set()

    def _tiers(self, open_store: Callable[[], TierStore] | None) -> BrokerTiers | None:
        """Return the components that copy, delete and read remote segments. Return None, and import none of them, if remote
        storage is off.
        """
        if open_store is None or not self.configs[SYSTEM]:
            return None
        from ottla.broker.broker_tiers import BrokerTiers

        tiers = BrokerTiers(
            self.world, self.configs, self.metadata, self.replicas, self.tiered_topics, self.channels, self.controller,
            self._writes, open_store,
        )  # fmt: skip
        self.components.tiers = tiers.fetches
        reads = tiers.fetches.reads
        self.share_leaders.remote_reads = self._dead_letters.remote_reads = self.tables.remote_reads = reads
        return tiers

    def _led(self) -> Iterator[Led]:
        """Return the partitions that this broker leads, and that another one could lead."""
        return (Led(p.topic, p.index, p.leader_epoch) for p in self.replicas if p.is_leader and len(p.isr.members) > 1)

    def _check_directories(self) -> None:
        """Take partitions of failed directories offline. Disk failures are detected on worker threads; this check runs on the event loop."""
        for directory in self.logs.open.offline_directories:
            if directory.path not in self._offline:
                self._offline.add(directory.path)
                self.replicas.directory_failed(directory)
                # A directory that could not be read at the start has no id that the controller knows.
                if directory.meta is not None:
                    self.lifecycle.directory_failed(directory.directory_id)

    @property
    def full_disks(self) -> FullDisks:
        return self._scheduled_tasks.full_disks

    @property
    def hidden_apis(self) -> frozenset[int]:
        """The APIs that ApiVersions leaves out now."""
        return self.components.telemetry.hidden_apis

    # -- Life --------------------------------------------------------------------------------------------------------

    async def start(self, introduce_publisher: Callable[[], Awaitable[None]]) -> None:
        """Return once the broker is unfenced: a client can produce now.

        `introduce_publisher` introduces the publisher to the current metadata and all changes. It is called once the metadata has
        this broker's own registration: older metadata may still name it leader of records that were lost in a crash.
        """
        self.publisher.listeners.append(partial(self.components.fetch_sessions.rejoin, self.replicas))
        await self._scheduled_tasks.start()
        await self._log_cleaner.start()
        await self.tables.start()
        if self.tiers is not None:
            await self.tiers.start()
        self.lifecycle.start()
        await self.lifecycle.caught_up
        await introduce_publisher()
        self.replicas.set_aside_strays()
        self.lifecycle.ready_to_unfence()
        await self.lifecycle.unfenced
        self.assumed_fencing.start()

    async def stop(self) -> None:
        """Hand leadership over and end all acknowledgements; the logs stay open."""
        if self.configs["controlled.shutdown.enable"]:
            await self.lifecycle.controlled_shutdown(CONTROLLED_SHUTDOWN_TIMEOUT_MS)
        self.lifecycle.stop()
        await self.tables.stop()
        if self.tiers is not None:
            await self.tiers.stop()
        await self._log_cleaner.stop()
        await self._scheduled_tasks.stop()
        self.transactions.coordinator.close()
        self.groups.close()
        self.share_leaders.close()
        self._share_locks.close()
        self.share_coordinator.close()
        self.channels.close()
        self.replicas.resign_all()
