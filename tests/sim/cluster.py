"""A cluster of the real node code: each node is `ottla.node.node.Node` on a simulated host, in turns of its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ottla.controller.metadata.image import MetadataImage
from ottla.node.node import FAILED_TO_START, Node
from ottla.storage.errors import StorageFailure
from tests.histories import Violation
from tests.sim.disk import Killed, is_full
from tests.sim.formatting import format_node
from tests.sim.loop import LANE, OUTSIDE, Lane
from tests.sim.network import SimHub
from tests.sim.world import SimHost

if TYPE_CHECKING:
    from ottla.broker.replication.partition import Partition

BROKER_PORT, CONTROLLER_PORT = 9092, 9093
CLUSTER_ID = "c2ltdWxhdGVkLWNsdXN0ZQ"
STOP_SECONDS_MAX = 45
#: The supervisor starts a process again that ended by itself, or because of its disk.
SUPERVISOR_SECONDS = (0.5, 3.0)
SHARE_DELIVERY_LIMIT = 4


class SimNode:
    """One host, and the processes that run on it one after the other."""

    def __init__(self, number: int, host: SimHost, properties: Mapping[str, str]) -> None:
        self.number, self.host, self.properties = number, host, dict(properties)
        self.life = 0
        self.disks = 1  # the log directories that it has had: with an empty one it starts over
        self.server: Node | None = None
        self.is_serving = self.is_leaving = False
        self.failure: BaseException | None = None

    def __repr__(self) -> str:
        return f"node {self.number}"

    @property
    def is_broker(self) -> bool:
        return "broker" in self.properties["process.roles"]

    @property
    def is_controller(self) -> bool:
        return "controller" in self.properties["process.roles"]

    @property
    def metadata_directory(self) -> str:
        return self.properties["log.dirs"].split(",")[0]

    @property
    def is_up(self) -> bool:
        """Return whether there is a process, and it has not been killed in the middle of a call."""
        return self.server is not None and not self.host.disk.killed

    @property
    def has_failed(self) -> bool:
        """Return whether its process has ended, or has lost its disk and will not get it back."""
        server = self.server
        if server is None:
            return False
        if self.host.disk.killed or self.failure is not None or server.failed.done():
            return True
        return server.logs is not None and len(server.logs.open.offline_directories) == len(server.logs.directories)

    @property
    def has_lost_directory(self) -> bool:
        """The node goes on without the directory, until the disk is repaired and the node started again."""
        return (
            self.server is not None and self.server.logs is not None and bool(self.server.logs.open.offline_directories)
        )

    @property
    def end_of_full_disk(self) -> BaseException | None:
        """Return why the node, or one of its directories, has stopped for lack of space."""
        if self.server is None or self.server.logs is None:
            return None
        failures = [directory.failure for directory in self.server.logs.directories]
        if self.server.failed.done():
            failures.append(self.server.failed.result())
        return next(filter(is_full, failures), None)

    def partitions(self) -> Iterator[Partition]:
        if self.server is not None and self.server.broker is not None:
            yield from self.server.broker.replicas

    def boot(self) -> None:
        world = self.host.boot()
        self.life += 1
        self.is_serving = self.is_leaving = False
        self.failure = None
        context = self.host.lane.context
        self.server = context.run(Node, world, self.properties)
        context.run(world.spawn, self._live(self.server), "start")

    async def _live(self, server: Node) -> None:
        try:
            await server.start()
            self.is_serving = True
        except FAILED_TO_START as failure:
            self.failure = failure

    async def live_unmounted(self, rng: random.Random) -> None:
        """Live without mounted disks for a while, after a crash. Invariant 19 judges a voter that starts all the same: it has forgotten what it
        acknowledged.
        """
        mounted, self.host.disk = self.host.disk, self.host.empty_disk(rng)
        self.boot()
        self.is_leaving = True  # no supervisor and no other fault takes it for a failed node, or for a running one
        await asyncio.sleep(rng.uniform(0.5, 6))
        await self.crash(power=False)
        self.host.disk = mounted

    async def crash(self, power: bool) -> None:
        self.server, self.is_serving = None, False
        await self.host.crash(power)

    async def stop(self) -> None:
        """Send SIGTERM, and kill the process after the sender's time limit."""
        assert self.server is not None
        self.is_leaving, self.is_serving = True, False
        tasks = self.host.tasks
        assert tasks is not None
        stopping = self.host.lane.context.run(tasks.spawn, self._leave(self.server), "stop")
        await asyncio.wait([stopping], timeout=STOP_SECONDS_MAX)
        await self.crash(power=False)

    async def _leave(self, server: Node) -> None:
        # With a full or broken disk, the next start finds an unclean stop.
        with contextlib.suppress(StorageFailure, Killed):
            await server.stop()


class Unexpected(logging.Handler):
    """Failures that a node logs without stopping: for a living process each is a bug of ours."""

    def __init__(self, cluster: SimCluster) -> None:
        super().__init__(logging.ERROR)
        self._cluster = cluster
        self.seen: list[tuple[str, BaseException]] = []

    def emit(self, record: logging.LogRecord) -> None:
        failure = record.exc_info[1] if record.exc_info else None
        if failure is not None:
            self.add(LANE.get(OUTSIDE), record.getMessage(), failure)

    def add(self, lane: Lane, text: str, failure: BaseException) -> None:
        if isinstance(failure, StorageFailure | Killed | ConnectionError | Violation):
            return
        node = self._cluster.by_host.get(lane.name)
        if node is None or (node.is_up and node.host.lane is lane):
            self.seen.append((f"{lane.name}: {text}", failure))


class SimCluster:
    """All nodes, the network between them, and the supervisor of the processes."""

    def __init__(self, rng: random.Random, roles: Mapping[int, str], settings: Mapping[str, str]) -> None:
        self.rng = rng
        self.hub = SimHub(random.Random(rng.getrandbits(64)))
        self.nodes = [
            SimNode(number, SimHost(f"n{number}", self.hub, random.Random(rng.getrandbits(64))), properties)
            for number, properties in ((number, properties_of(number, roles, settings)) for number in roles)
        ]
        self.by_number = {node.number: node for node in self.nodes}
        self.by_host = {node.host.name: node for node in self.nodes}
        self.unexpected = Unexpected(self)
        self._quorum_epoch = -1

    @property
    def brokers(self) -> list[SimNode]:
        return [node for node in self.nodes if node.is_broker]

    @property
    def active_controller(self) -> SimNode | None:
        """Return the leader of the newest epoch that has existed, if it lives: others only think that they lead."""
        active = None
        for node in self.nodes:
            if node.is_up and node.server is not None and node.server.started_metadata:
                raft = node.server.metadata.raft
                epoch = raft.state.epoch
                if epoch > self._quorum_epoch:
                    self._quorum_epoch, active = epoch, None
                if raft.is_leader and epoch == self._quorum_epoch:
                    active = node
        return active

    @property
    def decided_image(self) -> MetadataImage | None:
        """Return the metadata by which the active controller decides, or None while its published metadata is older.

        A controller that was just elected has to replay some records first (seed 74), and committed records are published in
        turns (seeds 663 and 748).
        """
        active = self.active_controller
        if active is None or active.server is None or active.server.controller is None:
            return None
        metadata = active.server.metadata
        if not active.server.controller.controller.is_active:
            return None
        if metadata.loader.last_offset + 1 < metadata.raft.state.high_watermark:
            return None
        return metadata.loader.image

    def start(self) -> None:
        """Format each node once, as an operator does (a voter of several does not do it itself), and boot them."""
        for node in self.nodes:
            format_node(node.host.disk, node.properties, node.number)
            node.boot()

    async def all_serve(self, seconds: float) -> bool:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while not all(node.is_serving for node in self.nodes):
            if loop.time() > end:
                return False
            await asyncio.sleep(0.05)
        return True


def properties_of(number: int, roles: Mapping[int, str], settings: Mapping[str, str]) -> dict[str, str]:
    """Return Kafka's properties of one node.

    Internal topics have few partitions, so that the run's time is spent on the tested parts.
    """
    listeners = {
        "broker": f"PLAINTEXT://n{number}:{BROKER_PORT}",
        "controller": f"CONTROLLER://n{number}:{CONTROLLER_PORT}",
    }
    voters = [n for n, role in roles.items() if "controller" in role]
    return {
        "process.roles": roles[number],
        "node.id": str(number),
        "listeners": ",".join(listeners[role] for role in roles[number].split(",")),
        **({"advertised.listeners": listeners["broker"]} if "broker" in roles[number] else {}),
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ",".join(f"{n}@n{n}:{CONTROLLER_PORT}" for n in voters),
        "cluster.id": CLUSTER_ID,
        "log.dirs": "/data",
        "default.replication.factor": "3",
        "min.insync.replicas": "2",
        "offsets.topic.num.partitions": "2",
        "offsets.topic.replication.factor": "3",
        "transaction.state.log.num.partitions": "2",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
        "group.initial.rebalance.delay.ms": "0",
        # A member whose last request is lost leaves with its session, which begins again at each coordinator. The default of 45
        # s is all the time that a healed cluster has (seed 108).
        "group.consumer.min.session.timeout.ms": "10000",
        "group.consumer.session.timeout.ms": "10000",
        "group.share.min.session.timeout.ms": "10000",
        "group.share.session.timeout.ms": "10000",
        "group.streams.min.session.timeout.ms": "10000",
        "group.streams.session.timeout.ms": "10000",
        "group.streams.num.standby.replicas": "1",
        # Locks time out, snapshots are written and old logs are deleted within the time of a run.
        "group.share.min.record.lock.duration.ms": "1000",
        "group.share.record.lock.duration.ms": "2500",
        "group.share.delivery.count.limit": str(SHARE_DELIVERY_LIMIT),
        "group.share.initialize.retry.interval.ms": "5000",
        "share.coordinator.state.topic.num.partitions": "2",
        "share.coordinator.snapshot.update.records.per.snapshot": "10",
        "share.coordinator.state.topic.prune.interval.ms": "6000",
        "share.coordinator.cold.partition.snapshot.interval.ms": "8000",
        "auto.create.topics.enable": "false",
        **settings,
    }
