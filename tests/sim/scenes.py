"""Scenes: sequences of faults that random faults seldom produce. Every other seed begins with one scene, which it repeats.

A scene is a few faults in the order that would reveal a certain mistake. The nodes, the times and the accompanying events are
random. All faults are within the fault model (docs/dev/SIMULATOR.md). A scene ends when every broker is in every ISR again. If that,
or a step, takes too long, the remaining faults are healed and the next round begins. Meanwhile the clients and the administrator
act as in any seed, and after `SCENE_SHARE` of the time the random faults of `faults.py` follow.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from ottla.broker.replication.follower_session import Wait
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.metadata.topics import PartitionRegistration
from ottla.controller.raft.leader import Leader
from ottla.controller.raft.roles import Role
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.storage.errors import StorageFailure
from tests.sim.clients.admin import Admin
from tests.sim.cluster import SimCluster, SimNode
from tests.sim.faults import Faults
from tests.sim.history import History, TopicPartition
from tests.sim.invariants import Invariants
from tests.sim.network import SimTransport
from tests.sim.plan import TWO_DIRECTORIES, UNSTABLE_FEATURES, Plan
from tests.sim.world import HangingDisk

SCENE_SHARE = 0.75
STEP_SECONDS_MAX, WHOLE_SECONDS_MAX = 12.0, 20.0
#: The interval of checks of the invariants if a violation would be visible for moments only.
CLOSE_SECONDS = 0.004
#: The pause between sends, short so that no scene waits for producers.
PRODUCER_PAUSE_SECONDS = 0.25

BROKERS = {1: "broker", 2: "broker", 3: "broker"}
ONE_CONTROLLER = {**BROKERS, 4: "controller"}
THREE_CONTROLLERS = {**ONE_CONTROLLER, 5: "controller", 6: "controller"}
FOUR_BROKERS = {**BROKERS, 4: "broker", 5: "controller"}


class NotReached(Exception):
    """A step took too long because of another event, which is no failure of the test."""


class NoController(NotReached):
    pass


@dataclass(frozen=True)
class Scene:
    play: Callable[[Scenes], Awaitable[None]]
    roles: tuple[Mapping[int, str], ...] = (ONE_CONTROLLER, THREE_CONTROLLERS)
    #: The session timeout: short, or long enough for slow links.
    session_ms: int = 3000
    settings: Mapping[str, str] = field(default_factory=dict)
    small_slices: bool = False
    #: Of the segments of the clients' topics; 0: by chance.
    segment_bytes: int = 0

    @property
    def name(self) -> str:
        return self.play.__name__


def scene_of(seed: int) -> Scene | None:
    if seed % 2:
        return SCENES[seed // 2 % len(SCENES)]
    return SAME_LEADER_AGAIN if seed % 40 in (14, 36) else None


def staged(plan: Plan, seed: int) -> Plan:
    """Returns the plan with the settings of the seed's scene. There is no flush, because most scenes lose unsynced bytes."""
    scene = scene_of(seed)
    if scene is None:
        return plan
    chance = random.Random(f"scene {seed}")
    lost = (
        "log.flush.interval.messages",
        "min.insync.replicas",
        "transaction.state.log.min.isr",
        "log.dirs",
        UNSTABLE_FEATURES,
    )
    settings = {name: value for name, value in plan.settings.items() if name not in lost}
    settings |= {
        "broker.session.timeout.ms": str(scene.session_ms),
        "broker.heartbeat.interval.ms": str(min(500, scene.session_ms // 4)),
        "replica.lag.time.max.ms": chance.choice(("1000", "2500")),
        **scene.settings,
    }
    slices = scene.small_slices or plan.small_slices
    roles = chance.choice(scene.roles)
    # A quorum of one formats its empty directories by itself: without its disk it is another cluster.
    has_other_voters = sum("controller" in role for role in roles.values()) > 1
    return replace(
        plan,
        roles=roles,
        settings=settings,
        min_isr=2,
        metadata_version=None,
        first_voters=(),
        small_slices=slices,
        moves=False,
        dead_letters=False,
        unmounts=plan.unmounts and has_other_voters,
    )


class Scenes:
    """The scenes, and the steps that they consist of."""

    def __init__(
        self,
        cluster: SimCluster,
        rng: random.Random,
        history: History,
        faults: Faults,
        admin: Admin,
        invariants: Invariants,
        partitions: list[TopicPartition],
        elect: Callable[[], Awaitable[None]],
    ) -> None:
        self.cluster, self.rng, self.history, self.faults = cluster, rng, history, faults
        self.admin, self.invariants, self.partitions, self.elect = admin, invariants, partitions, elect
        self.hub = cluster.hub

    async def run(self, scene: Scene, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end:
            try:
                await self._until(self._all_whole, WHOLE_SECONDS_MAX)
                await asyncio.sleep(self.rng.uniform(0, 1.5))
                self.history.note(f"SCENE {scene.name}")
                name = f"scene {scene.name}"
                self.faults.struck[name] = self.faults.struck.get(name, 0) + 1
                await scene.play(self)
            except NotReached as step:
                self.history.note(f"not reached: {step}")
            self.hub.heal()
            for node in self.cluster.nodes:
                if node.has_failed:
                    await node.crash(power=False)
                if node.server is None:
                    node.boot()

    # -- Steps -------------------------------------------------------------------------------------------------------

    @property
    def image(self) -> MetadataImage:
        active = self.cluster.active_controller
        if active is None or active.server is None or not active.server.started_metadata:
            raise NoController
        return active.server.metadata.loader.image

    def _all_whole(self) -> bool:
        return all(self.faults.is_whole(node) for node in self.cluster.brokers)

    async def _until(self, is_so: Callable[[], bool], seconds: float = STEP_SECONDS_MAX, every: float = 0.05) -> None:
        end = asyncio.get_running_loop().time() + seconds
        while not self._holds(is_so):
            if asyncio.get_running_loop().time() > end:
                raise NotReached(f"not within {seconds} s")
            await asyncio.sleep(every)
            if every <= CLOSE_SECONDS:
                self.invariants.check()

    @staticmethod
    def _holds(is_so: Callable[[], bool]) -> bool:
        try:
            return is_so()
        except NoController:
            return False

    async def _look(self, is_over: Callable[[], bool], seconds: float) -> None:
        """Check the invariants at short intervals until the scene ends."""
        try:
            await self._until(is_over, seconds, CLOSE_SECONDS)
        except NotReached:
            return

    async def _some(self, most: float, least: float = 0.0) -> None:
        await asyncio.sleep(self.rng.uniform(least, most))

    def _shuffled(self) -> list[SimNode]:
        return self.rng.sample(self.cluster.brokers, len(self.cluster.brokers))

    def _is_in_an_isr(self, node: SimNode) -> bool:
        return any(node.number in r.isr for r in self._rows())

    def _rows(self) -> list[PartitionRegistration]:
        return [r for topic in self.image.topics for r in topic.partitions.values()]

    async def _out(self, node: SimNode) -> None:
        await self._until(lambda: not self._is_in_an_isr(node))

    async def _kill(self, *nodes: SimNode) -> None:
        for node in nodes:
            await node.crash(power=False)

    async def _power(self, node: SimNode) -> None:
        """Cut the power of one node. It must be in every ISR again before another node may lose unsynced bytes."""
        self.faults.lossy = node
        await node.crash(power=True)

    def _boot(self, *nodes: SimNode) -> None:
        for node in nodes:
            if node.server is None:
                node.boot()

    @property
    def _controllers(self) -> list[SimNode]:
        return [node for node in self.cluster.nodes if node.is_controller]

    def _slow(self, source: SimNode, targets: list[SimNode], ms: float, *, both: bool = False) -> None:
        for target in targets:
            self.hub.slow_down(source.host.name, target.host.name, ms)
            if both:
                self.hub.slow_down(target.host.name, source.host.name, ms)

    def _mend(self, one: SimNode, *others: SimNode) -> None:
        """Remove the delays of links. Messages in flight keep their delay."""
        for other in others:
            self.hub.mend(one.host.name, other.host.name)
            self.hub.mend(other.host.name, one.host.name)

    # -- Scenes ------------------------------------------------------------------------------------------------------

    async def one_in_sync(self) -> None:
        """KIP-966: a broker loses power with one other in sync, and committed records that it had not synced are lost there. It
        must be neither in sync nor eligible before it has caught up."""
        _, losing, third = self._shuffled()
        await self._kill(third)
        await self._out(third)
        await self._some(3, 0.5)
        await self._power(losing)
        await self._some(0.5)
        self._boot(losing)
        await self._look(lambda: self.faults.is_whole(losing), 7)
        self._boot(third)

    async def late_request(self) -> None:
        """A leader's AlterPartition arrives after the broker that it adds to the ISR has lost its power, or after another change
        of the partition (KIP-497, KIP-903)."""
        leader, joining, _ = self._shuffled()
        pair = [leader.host.name], [joining.host.name]
        self.hub.partition(*pair)
        led = [p for p in leader.partitions() if p.leader_log is not None and len(p.replicas) > 1]
        await self._until(lambda: any(joining.number not in p.isr.members for p in led))
        await self._some(1)
        self._slow(leader, self._controllers, self.rng.uniform(2500, 6000))
        self._mend(leader, joining)

        def joins() -> bool:
            return any(p.isr.proposed is not None and joining.number in p.isr.proposed for p in led)

        await self._until(joins, every=CLOSE_SECONDS)
        self.hub.partition(*pair)
        if self.rng.random() < 0.5:
            # The request stays in flight; the leader gets the other change in time.
            self._mend(leader, *self._controllers)
            proposed = {p.topic: p for p in led if p.isr.proposed is not None}
            await asyncio.gather(*(self._reassign((p.topic, p.index), p.replicas[::-1]) for p in proposed.values()))
        else:
            await self._power(joining)
            await self._some(0.2)
            self._boot(joining)
        await self._look(lambda: False, 7)

    async def _reassign(self, partition: TopicPartition, replicas: tuple[int, ...] | list[int] | None) -> None:
        """Moves it to `replicas`; None cancels that."""
        row = ReassignablePartition(partition_index=partition[1], replicas=None if replicas is None else list(replicas))
        topic = ReassignableTopic(name=partition[0], partitions=[row])
        await self.admin.spawn(
            self.admin.send(AlterPartitionReassignmentsRequest(timeout_ms=5000, topics=[topic])), "reassigns"
        )

    async def late_metadata(self) -> None:
        """A leader gets the response to AlterPartition before the metadata of the change, and bases its next proposal on the
        response. That metadata arrives while the response to the second proposal is on its way (KIP-497)."""
        leader, joining, _ = self._shuffled()
        if leader.server is None:
            return
        led = [p for p in leader.partitions() if p.leader_log is not None]
        controllers = {controller.host.name for controller in self._controllers}
        _, forwarding = leader.server._channels

        def proposes(connection: SimTransport) -> bool:
            return forwarding._channel is not None and connection.get_protocol() is forwarding._channel._protocol

        self.hub.partition([leader.host.name], [joining.host.name])
        connections = [t for t in self.hub.connections_of(leader.host.name) if t.peer_host in controllers]
        try:
            late_ms = self.rng.uniform(500, 2500)
            self.hub.slow_connections([t for t in connections if not proposes(t)], late_ms)
            await self._until(lambda: any(joining.number not in p.isr.members for p in led), every=CLOSE_SECONDS)
            where = next((p.topic, p.index) for p in led if joining.number not in p.isr.members)
            responses = [
                t.peer for t in self.hub.connections_of(leader.host.name) if proposes(t) and t.peer is not None
            ]
            for connection in responses:
                connection.slow_seconds = 6.0
            connections += responses
            self._mend(leader, joining)
            await self._until(lambda: joining.number in self._row(where).isr, every=CLOSE_SECONDS)
            self.hub.partition([leader.host.name], [joining.host.name])
            await self._look(lambda: False, 6)
        finally:
            self.hub.slow_connections(connections, 0)

    async def directory_removed(self) -> None:
        """A directory is removed from log.dirs between two clean stops: the other directories' clean-shutdown marks agree, but its replica is empty."""
        having = [node for node in self._shuffled() if "," in node.properties["log.dirs"]]
        if not having:
            await self.one_in_sync()
            return
        last = having[0]
        others = [node for node in self._shuffled() if node is not last]
        for node in (*others, last):
            await node.stop()
            await self._until(partial(self._has_left, node))
            await self._some(0.5)
        self._lose_directory(last)
        self._boot(last)
        await self._look(lambda: False, self.rng.uniform(2, 4))
        self._boot(*others)
        await self._look(self._all_whole, 8)

    def _has_left(self, node: SimNode) -> bool:
        """Returns True if the broker leads no partition, and is in no ISR with other brokers."""
        return not any(r.leader == node.number or (node.number in r.isr and len(r.isr) > 1) for r in self._rows())

    def _lose_directory(self, node: SimNode) -> None:
        kept, lost = node.properties["log.dirs"].split(",")
        node.host.disk.remove_tree(lost)
        node.host.disk.sync_dir(lost.rpartition("/")[0] or "/")
        node.properties["log.dirs"] = kept

    async def directory_fails(self) -> None:
        """KIP-966: the replicas of a failed directory are not eligible, although their broker stops cleanly afterwards."""
        having = [node for node in self._shuffled() if "," in node.properties["log.dirs"]]
        if not having:
            await self.one_in_sync()
            return
        losing = having[0]
        leader, third = (node for node in self._shuffled() if node is not losing)
        await self._kill(third)
        await self._out(third)
        await self._some(1.5, 0.3)
        server = losing.server
        if server is None or server.logs is None or len(server.logs.directories) < 2:
            raise NotReached("two directories")
        failing = server.logs.directories[-1]
        self.faults.lossy = losing
        server.logs.open.directory_failed(failing, StorageFailure(failing.path, OSError(5, "EIO")))
        await self._some(2, 0.5)
        await self._kill(leader)
        await self._until(partial(self._has_left, leader))
        await losing.stop()
        self._lose_directory(losing)
        self._boot(losing)
        await self._look(lambda: False, self.rng.uniform(2, 4))
        self._boot(leader)
        await self._look(lambda: self.faults.is_whole(losing), 6)
        self._boot(third)

    async def last_known_leader(self) -> None:
        """All brokers crash, and the one that was fenced last restarts with an empty disk. The others have all records."""
        await self._kill(*self.cluster.brokers)
        await self._until(lambda: all(r.leader < 0 for r in self._rows()))
        last = {number for r in self._rows() for number in (*r.isr, *r.last_known_elr)}
        if not last:
            raise NotReached("a last known leader")
        losing = self.cluster.by_number[self.rng.choice(sorted(last))]
        for path in losing.properties["log.dirs"].split(","):
            losing.host.disk.remove_tree(path)
            losing.host.disk.sync_dir(path.rpartition("/")[0] or "/")
        losing.disks += 1
        others = [node for node in self._shuffled() if node is not losing]
        self._boot(*others)
        await self._until(lambda: all(node.is_serving for node in others))
        await self._some(1)
        self._boot(losing)
        await self._until(lambda: losing.is_serving)
        await self._some(2)
        await self.elect()
        await self._look(self._all_whole, 6)

    async def all_die(self) -> None:
        """All nodes crash, the controllers too, so that no broker was fenced. Each registration takes several batches and turns, and
        the brokers read one batch at a time."""
        if self.rng.random() < 0.5:
            await self.admin.spawn(self.admin.create("more", self.rng.randint(2, 6), {}, 3), "creates")
            await self._some(1, 0.3)
        delay_ms = self.rng.uniform(5, 40)
        for broker in self.cluster.brokers:
            self._slow(broker, self._controllers, delay_ms, both=True)
        await self._kill(*self.cluster.nodes)
        await self._some(0.5)
        self._boot(*self.cluster.nodes)
        await self._look(lambda: all(node.is_serving for node in self.cluster.nodes), 8)

    async def smaller_reassignment(self) -> None:
        """A reassignment to fewer replicas, none of which is in sync, must wait for them."""
        leader, kept, late, other = self._shuffled()
        where = self.rng.choice(self.partitions)
        await self._reassign(where, [leader.number, kept.number, late.number])
        await self._until(lambda: set(self._row(where).isr) == {leader.number, kept.number, late.number})
        # It is cut off from the other brokers only, so the controller considers it a live replica.
        self.hub.partition([late.host.name], [node.host.name for node in self.cluster.brokers if node is not late])
        await self._until(lambda: late.number not in self._row(where).isr)
        await self._some(1.5, 0.3)
        await self._reassign(where, [late.number, other.number])
        await self._look(lambda: False, self.rng.uniform(0.5, 2))
        self.hub.heal()
        await self._look(lambda: not self._row(where).reassigning, 6)
        await self._reassign(where, [leader.number, kept.number, late.number])
        await self._look(lambda: len(self._row(where).isr) == 3, 6)

    def _row(self, where: TopicPartition) -> PartitionRegistration:
        topic = self.image.topics.by_name(where[0])
        if topic is None:
            raise NotReached(f"{where} is not there")
        return topic.partitions[where[1]]

    async def same_leader_again(self) -> None:
        """A deposed leader truncates, and its disk does one job at a time, when the scene lets it. Its new leader gets another epoch while
        the first truncation waits: a second one waits behind it. Whatever fetches beside the second decides on a third, and the job of
        that one ends after the partition has been fetched again, and acknowledged."""
        row = self._row(self.rng.choice(self.partitions))
        if len(row.replicas) < 3 or row.leader < 0:
            raise NotReached("three replicas and a leader")
        late = self.cluster.by_number[row.leader]
        host = late.host
        await self._some(3, 1)
        others = [node for node in self.cluster.nodes if node is not late]
        self.hub.partition([host.name], [node.host.name for node in others])
        await self._until(lambda: not any(r.leader in (late.number, -1) for r in self._rows()))
        try:
            host.hanging.update((directory, HangingDisk()) for directory in late.properties["log.dirs"].split(","))
            self.hub.heal()
            await self._until(lambda: bool(self._truncations(late)), every=CLOSE_SECONDS)
            await self._some(0.1)
            waits = self._truncations(late)
            for where in waits:
                await self._begin_epoch(where)
            await self._until(lambda: bool(self._truncations(late).items() - waits.items()), 4, CLOSE_SECONDS)
            for _ in range(self.rng.randint(6, 16)):
                await self._look(lambda: False, self.rng.uniform(0.05, 0.3))
                for disk in host.hanging.values():
                    disk.let_one_through()
        finally:
            host.repair()
        await self._look(self._all_whole, 6)

    async def _begin_epoch(self, where: TopicPartition) -> None:
        """A reassignment is cancelled: the replica that was added is removed, which takes a new epoch of the same leader."""
        replicas = self._row(where).replicas
        added = [node.number for node in self.cluster.brokers if node.number not in replicas]
        await self._reassign(where, [*replicas, *added])
        await self._reassign(where, None)

    def _truncations(self, node: SimNode) -> dict[TopicPartition, Wait]:
        """Returns what the clients' partitions of the node wait for, where that is a truncation."""
        if node.server is None or not node.is_serving:
            return {}
        fetchers = node.server.broker.replicas.fetchers.by_leader.values()
        followed = [each for fetcher in fetchers for each in fetcher.session.followed.values()]
        waits = {(each.partition.topic, each.partition.index): each.wait for each in followed}
        return {
            where: wait
            for where, wait in waits.items()
            if where in self.partitions and wait is not None and wait.flushing is None
        }

    async def election_and_power(self) -> None:
        """The quorum leader has crashed, two voters are candidates of one epoch, and the third loses power after each vote."""
        active = self.cluster.active_controller
        if active is None:
            raise NoController
        voters, epoch = self._controllers, self._quorum_role(active).epoch

        def has_voted() -> bool:
            role = self._quorum_role(active)
            return role.election.voted is not None and not isinstance(role, Leader) and role.epoch > epoch

        for voter in voters:
            self._slow(voter, [each for each in voters if each is not voter], self.rng.uniform(20, 400))
        await active.crash(power=self.rng.random() < 0.7)
        await self._some(2.2, 1.0)
        self._boot(active)
        for _ in range(self.rng.randint(2, 5)):
            await self._until(has_voted, 3, CLOSE_SECONDS)
            epoch = self._quorum_role(active).epoch
            await active.crash(power=True)
            await self._some(0.1)
            self._boot(active)
        await self._look(lambda: self.cluster.active_controller is not None, 4)

    @staticmethod
    def _quorum_role(node: SimNode) -> Role:
        if node.server is None or not node.server.started_metadata:
            raise NoController
        return node.server.metadata.raft.state.role


#: It came later than `SCENES`: with another number of those, each odd seed would play another one.
#: Only a log with a snapshot of its producers truncates with a disk job: a flush writes those that rolls have taken.
SAME_LEADER_AGAIN = Scene(
    Scenes.same_leader_again,
    roles=(FOUR_BROKERS,),
    settings={"log.flush.interval.ms": "200"},
    small_slices=True,
    segment_bytes=2048,
)
SCENES = (
    Scene(Scenes.one_in_sync, small_slices=True),
    Scene(Scenes.late_request, session_ms=18_000),
    Scene(Scenes.directory_removed, settings={"log.dirs": TWO_DIRECTORIES}),
    Scene(
        Scenes.late_metadata,
        session_ms=18_000,
        settings={"controller.quorum.fetch.max.bytes": "1", "broker.heartbeat.interval.ms": "3000"},
    ),
    Scene(Scenes.all_die, settings={"controller.quorum.fetch.max.bytes": "1"}),
    Scene(Scenes.smaller_reassignment, roles=(FOUR_BROKERS,)),
    Scene(Scenes.directory_fails, settings={"log.dirs": TWO_DIRECTORIES}),
    Scene(Scenes.last_known_leader),
    Scene(Scenes.election_and_power, roles=(THREE_CONTROLLERS,)),
)
