"""Wiring of a broker: its components, their dependencies, and the order in which they start and stop.

    start      scheduled tasks; then the lifecycle registers at the controller and is unfenced once it has caught up
    stop       controlled shutdown moves leadership away, then nothing is acknowledged any more, then the logs are closed

It shares the world, the logs and the listeners with a controller in the same process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping

from ottla.broker.all_topics import AllTopics
from ottla.broker.api.metadata import encoder_of_topics
from ottla.broker.api_row import bound
from ottla.broker.clock_jumps import HOLD, ClockJumps
from ottla.broker.cluster.assumed_fencing import AssumedFencing, Led
from ottla.broker.cluster.broker_channels import BrokerChannels
from ottla.broker.cluster.controller_channel import ControllerChannel
from ottla.broker.cluster.lifecycle import BrokerLifecycle
from ottla.broker.cluster.producer_ids import ProducerIds
from ottla.broker.cluster.streams_topics import StreamsTopics
from ottla.broker.cluster.topic_creation import TopicCreation
from ottla.broker.components import BrokerComponents
from ottla.broker.configs import BrokerConfigs
from ottla.broker.coordinator.coordinator import CoordinatorLeadership
from ottla.broker.fetch.session_cache import FetchSessionCache, Rejoining
from ottla.broker.full_disks import FullDisks
from ottla.broker.groups.deletion import GroupDeletion
from ottla.broker.groups.group_wiring import group_coordinator, share_group_coordinator
from ottla.broker.log_cleaner import LogCleaner
from ottla.broker.long_work import LongWork
from ottla.broker.lost_leaders import DelayedMetadata
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.publisher import BrokerPublisher
from ottla.broker.replication.replication_wiring import replicas
from ottla.broker.routes import ROUTES
from ottla.broker.scheduled_tasks import ScheduledTasks
from ottla.broker.share.dead_letter_queue import DeadLetterQueue
from ottla.broker.share.leaders import ShareLeaders
from ottla.broker.share.share_wiring import ShareGroups, persister, share_coordinator
from ottla.broker.telemetry.client_telemetry import Telemetry
from ottla.broker.transactions.transaction_wiring import transactions
from ottla.controller.metadata.topic_names import GROUP_METADATA_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.server.authorization.authorizer import AllowAll, Authorizer
from ottla.server.network.peer_security import PLAINTEXT, PeerSecurity
from ottla.server.network.route import Route
from ottla.server.quotas.clients import ClientQuotas
from ottla.server.timer_wheel import TimerWheel
from ottla.server.world import World
from ottla.storage.directories.logs import Logs

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
    ) -> None:
        self.world, self.configs, self.logs = world, configs, logs
        self.lifecycle, self.controller = lifecycle, controller
        metadata = self.metadata = MetadataCache(configs.node_id, cluster_id)
        self.metadata.unadvertised = unadvertised_listeners
        self.replicas = replicas(
            world, configs, logs, self.metadata, controller, lambda: lifecycle.broker_epoch, security
        )
        self.clock_jumps = ClockJumps(world.session_clock, configs.setting(HOLD))
        self.groups = group_coordinator(world, configs, self.metadata, self.replicas, self.clock_jumps.expiry_ms)
        self.replicas.listeners.append(CoordinatorLeadership(GROUP_METADATA_TOPIC, self.groups))
        self.channels = BrokerChannels(world, configs, self.metadata, security)
        self.assumed_fencing = AssumedFencing(world, configs, self.metadata, lifecycle, security, self._led)
        producer_ids = ProducerIds(world, configs.node_id, controller, lifecycle)
        self.transactions = transactions(
            world, configs, self.metadata, self.replicas, self.groups, producer_ids, self.channels, wheel
        )
        self.replicas.listeners.append(CoordinatorLeadership(TRANSACTION_STATE_TOPIC, self.transactions.coordinator))
        topic_creation = TopicCreation(world, configs, self.metadata, controller, wheel)
        self.share_coordinator = share_coordinator(world, configs, metadata, self.replicas, self.groups.runtime.turns)
        self.replicas.listeners.append(CoordinatorLeadership(SHARE_GROUP_STATE_TOPIC, self.share_coordinator))
        share_persister = persister(world, configs, metadata, self.share_coordinator, self.channels, topic_creation)
        work = LongWork(world)
        self._share_locks = TimerWheel(world.session_clock)
        self.share_leaders = ShareLeaders(
            world, configs, self.metadata, self.replicas, share_persister, self._share_locks, work,
            DeadLetterQueue(world, configs, self.metadata, self.replicas, self.channels, controller, wheel),
        )  # fmt: skip
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
            share=ShareGroups(self.share_coordinator, share_persister),
            share_leaders=self.share_leaders,
            share_groups=share_group_coordinator(
                world, configs, self.metadata, self.replicas, self.groups, self.channels, share_persister
            ),
            group_deletion=GroupDeletion(self.groups, share_persister),
            fetch_sessions=FetchSessionCache.of(configs, world.rng),
            wheel=wheel,
            fetch_max_bytes=configs["fetch.max.bytes"],
            delayed_metadata=DelayedMetadata(world.clock, wheel),
            long_work=work,
            all_topics=AllTopics(self.metadata, world.clock, lambda view: encoder_of_topics(self.components, view)),
            quotas=quotas,
            telemetry=Telemetry(world.clock, configs.setting("ottla.client.telemetry.always.advertised")),
            authorizer=AllowAll() if authorizer is None else authorizer,
            check_stores=check_stores,
        )
        self.routes: list[Route] = bound(ROUTES, self.components)
        self.publisher = BrokerPublisher(configs, self.metadata, self.replicas, lifecycle.is_replaced_in)
        self.publisher.listeners += [
            self.groups.on_metadata_update, self.share_coordinator.on_metadata_update, self.components.delayed_metadata.on_metadata_update,
            topic_creation.on_metadata_update, self.channels.on_metadata_update, self.components.telemetry.on_metadata_update,
        ]  # fmt: skip
        self._scheduled_tasks = ScheduledTasks(
            world, configs, logs, self.replicas, self.clock_jumps, self._check_directories
        )
        self._log_cleaner = LogCleaner(world, configs, logs, self.clock_jumps)
        self._offline: set[str] = set()

    def _led(self) -> Iterator[Led]:
        """The partitions that this broker leads, and another one could."""
        return (Led(p.topic, p.index, p.leader_epoch) for p in self.replicas if p.is_leader and len(p.isr) > 1)

    def _check_directories(self) -> None:
        """Takes partitions of failed directories offline. Disk failures are detected on worker threads; this check runs on the event loop."""
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
        """Returns once the broker is unfenced: a client can produce now.

        `introduce_publisher` introduces the publisher to the current metadata and all changes. It is called once the metadata has
        this broker's own registration: older metadata may still name it leader of records that were lost in a crash.
        """
        self.publisher.listeners.append(Rejoining(self.replicas, self.components.fetch_sessions).on_metadata_update)
        await self._scheduled_tasks.start()
        await self._log_cleaner.start()
        self.lifecycle.start()
        await self.lifecycle.caught_up
        await introduce_publisher()
        self.replicas.set_aside_strays()
        self.lifecycle.ready_to_unfence()
        await self.lifecycle.unfenced
        self.assumed_fencing.start()

    async def stop(self) -> None:
        """Hands leadership over and ends all acknowledgements; the logs stay open."""
        if self.configs["controlled.shutdown.enable"]:
            await self.lifecycle.controlled_shutdown(CONTROLLED_SHUTDOWN_TIMEOUT_MS)
        self.lifecycle.stop()
        await self._log_cleaner.stop()
        await self._scheduled_tasks.stop()
        self.transactions.coordinator.close()
        self.groups.close()
        self.share_leaders.close()
        self._share_locks.close()
        self.share_coordinator.close()
        self.channels.close()
        self.replicas.resign_all()
