"""One run: a cluster, clients and faults made from a seed; then all faults end, and everything promised must be there."""

from __future__ import annotations

import asyncio
import functools
import gc
import logging
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from ottla.controller.decisions.control_state import is_directory_online
from tests.histories import Violation
from tests.sim.checker import check_history
from tests.sim.clients.admin import UNCLEAN, Admin
from tests.sim.clients.connection import Client
from tests.sim.clients.consumer import READ_COMMITTED, Consumer
from tests.sim.clients.group import OffsetKeeper
from tests.sim.clients.log_dir_mover import LogDirMover
from tests.sim.clients.members import Group, Member, unsettled
from tests.sim.clients.producer import Producer
from tests.sim.clients.session_reader import SessionReader
from tests.sim.clients.transactions import Transactions
from tests.sim.cluster import BROKER_PORT, SimCluster
from tests.sim.directory_checks import misplaced
from tests.sim.faults import Faults
from tests.sim.group_members import GroupMembers
from tests.sim.history import History, TopicPartition
from tests.sim.invariants import Invariants
from tests.sim.loop import SimLoop, run
from tests.sim.plan import (
    SLOW_DISK_SECONDS,
    SMALL_SLICE_MS,
    TWO_DIRECTORIES,
    Plan,
    choose,
    format_nodes,
    settings_of,
    slices,
)
from tests.sim.replication_checks import ReplicationChecks
from tests.sim.scenes import PRODUCER_PAUSE_SECONDS, SCENE_SHARE, Scenes, scene_of, staged

CHECK_SECONDS = 0.2
START_SECONDS_MAX = 20
#: In a run of 60 s: how long faults strike, and how long clients go on after them.
FAULT_SHARE, CALM_SECONDS = 0.6, 5.0
#: Invariants 42 and 54: the cluster is healthy again within this time after the last fault.
HEAL_SECONDS_MAX = 45.0
#: There is a NoOpRecord each half second; a snapshot or an election that ends late may add some.
QUIET_SECONDS, QUIET_RECORDS_MAX = 3.0, 12
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"
TOPICS = {"orders": 2, "events": 1}


@dataclass
class Result:
    seed: int
    hash: str
    virtual_seconds: float
    operations: int
    acknowledged: int
    struck: dict[str, int]
    turns: int
    violation: str | None = None
    #: The number of the violated invariant; empty for any other exception.
    number: str = ""
    trace: list[str] = field(default_factory=list)


SimulationT = TypeVar("SimulationT", bound="Simulation")


class Simulation:
    """One run of a seed."""

    #: Of the topics that clients write to.
    topic_configs: Mapping[str, str] = {}
    #: Whether there may be groups of KIP-848, share and streams groups.
    has_new_groups = True

    def __init__(self, seed: int, seconds: float, *, verbose: bool = False) -> None:
        self.seed, self.seconds = seed, seconds
        self.rng = random.Random(seed)
        self._loop: SimLoop | None = None
        self.history = History(self._time, verbose=verbose)
        self.cluster: SimCluster
        self.invariants: Invariants
        self.faults: Faults | None = None
        #: Partitions that got a leader only through an unclean election.
        self.elected = 0

    def _choose(self) -> Plan:
        return staged(choose(self.rng, self.seed), self.seed)

    def _time(self) -> float:
        return 0.0 if self._loop is None else self._loop.time()

    def run(self) -> Result:
        violation, number = None, ""
        try:
            run(self._main())
        except Exception as failure:  # whatever it is, the seed has failed
            violation = f"{type(failure).__name__}: {failure}"
            number = failure.number if isinstance(failure, Violation) else ""
            if not isinstance(failure, Violation):
                logging.getLogger(__name__).exception("seed %d", self.seed)
            if self._loop is not None and hasattr(self, "invariants"):
                for line in self.invariants.describe():
                    self.history.note(line)
        operations = self.history.operations
        return Result(
            self.seed,
            self.history.hash,
            self._time(),
            len(operations),
            sum(operation.outcome == "ok" for operation in operations),
            {}
            if self.faults is None
            else self.faults.struck | ({"operator elects": self.elected} if self.elected else {}),
            0 if self._loop is None else self._loop.turns,
            violation,
            number,
            list(self.history.trace) if violation else [],
        )

    async def _main(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        self._loop = loop
        rng = self.rng
        self.plan = plan = self._choose()
        self.history.note(f"seed {self.seed}: {plan.describe()}")
        self.cluster = cluster = SimCluster(random.Random(rng.getrandbits(64)), plan.roles, plan.settings)
        for node in cluster.nodes:
            node.properties |= settings_of(plan, node.number, rng)
            node.host.turn_ms = SMALL_SLICE_MS if plan.small_slices else 0
        if rng.random() < 0.15:
            rng.choice(cluster.nodes).host.disk_seconds_max = rng.choice(SLOW_DISK_SECONDS)
        format_nodes(plan, cluster)
        self.invariants = Invariants(cluster, plan.min_isr)
        self.replication = ReplicationChecks(cluster)
        clients = self._clients()
        names = [client.name for client in clients]
        faults_rng = random.Random(rng.getrandbits(64))
        unmounts = random.Random(f"not mounted {self.seed}") if plan.unmounts else None
        self.faults = Faults(
            cluster, faults_rng, self.history, names, self.admin, flushes=plan.flushes, unmounts=unmounts
        )
        pause_seconds = rng.choice((0.7, 1.5, 3.0, 6.0))
        async with self._watched(), slices(plan):
            cluster.start()
            if not await cluster.all_serve(START_SECONDS_MAX):
                raise Violation("54", "the cluster does not start")
            await self._create_topics()
            for client in clients:
                client.start()
            await self._strike(self.faults, self.seconds * FAULT_SHARE, pause_seconds)
            await self.faults.heal()
            await asyncio.sleep(CALM_SECONDS)
            await self._elect_beside_lost_disks()
            await self._settled()
            others = [client for client in clients if client not in self.groups.share]
            await self._end_of(others)
            await self._until("the share group has read all", lambda: self.groups.unread() is None, number="56")
            await self._end_of(self.groups.share)
            await self._until("all is well", lambda: self._unwell() is None)
            await self._until("every replica has one place", lambda: self._misplaced() is None, number="59")
            await self._readable()
            check_history(self.history, self.consumers, self.invariants)
            self.groups.check(*(consumer.seen for consumer in self.consumers[-2:]))
            await self._quiet()
            await asyncio.sleep(max(0.0, self.seconds - loop.time()))
        self.history.note(f"end: {sorted((k[1], c.end) for k, c in self.invariants.committed.items())}")

    async def _strike(self, faults: Faults, seconds: float, pause_seconds: float) -> None:
        """Let faults strike for this time. If the seed has a scene, it may end later."""
        scene = scene_of(self.seed)
        if scene is not None:
            scenes = Scenes(
                self.cluster,
                random.Random(f"scenes {self.seed}"),
                self.history,
                faults,
                self.admin,
                self.invariants,
                self.partitions,
                self._elect_beside_lost_disks,
            )
            await scenes.run(scene, seconds * SCENE_SHARE)
            seconds *= 1 - SCENE_SHARE
        await faults.run(seconds, pause_seconds)

    @asynccontextmanager
    async def _watched(self) -> AsyncIterator[None]:
        """Run the body beside the checks; the first failure ends it."""
        watcher = asyncio.ensure_future(self._watch())
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        body = asyncio.current_task()
        assert body is not None
        failures: list[BaseException] = []

        def fail(failure: BaseException) -> None:
            failures.append(failure)
            body.cancel()

        unexpected = self.cluster.unexpected
        loop.on_failure = lambda lane, failure: unexpected.add(lane, "a callback failed", failure)
        logging.getLogger().addHandler(unexpected)
        watcher.add_done_callback(lambda task: None if task.cancelled() else fail(task.exception() or AssertionError()))
        try:
            yield
        except asyncio.CancelledError:
            if failures:
                raise failures[0] from None
            raise
        finally:
            watcher.cancel()
            logging.getLogger().removeHandler(unexpected)

    async def _watch(self) -> None:
        while True:
            self.invariants.check()
            self.replication.check()
            for client in self._all_clients:
                for failure in client.failed:
                    raise failure
            await asyncio.sleep(CHECK_SECONDS)

    def _acknowledged(self, partition: TopicPartition, last_offset: int) -> None:
        self.invariants.acknowledged(partition, last_offset)
        self.replication.acknowledged(partition, last_offset)

    # -- Clients -----------------------------------------------------------------------------------------------------

    def _client(self, kind: type[Client], name: str, rng: random.Random | None = None) -> Client:
        bootstrap = [(node.host.name, BROKER_PORT) for node in self.cluster.brokers]
        own = random.Random((rng or self.rng).getrandbits(64))
        client = kind(name, self.cluster.hub, own, bootstrap, self.history)
        self._all_clients.append(client)
        return client

    def _clients(self) -> list[Client]:
        self._all_clients: list[Client] = []
        self.partitions: list[TopicPartition] = [(t, i) for t, count in TOPICS.items() for i in range(count)]
        self.consumers: list[Consumer] = []
        rng = self.rng
        for number in range(rng.choice((2, 2, 3))):
            producer = self._client(Producer, f"p{number}")
            assert isinstance(producer, Producer)
            producer.partitions = self.partitions
            producer.idempotent = number < 2 and rng.random() < 0.8
            producer.acks = -1 if producer.idempotent or rng.random() < 0.5 else 1
            producer.pause_seconds = rng.choice((0.5, 1.2, 3.0))
            if scene_of(self.seed) is not None:
                producer.pause_seconds = PRODUCER_PAUSE_SECONDS
            producer.on_acknowledged = self._acknowledged
        self.members: list[Member] = []
        if rng.random() < 0.5:
            group = Group("members", self.partitions)
            for number in range(rng.choice((2, 3))):
                member = self._client(Member, f"m{number}")
                assert isinstance(member, Member)
                member.group = group
                self.members.append(member)
        if rng.random() < 0.6:
            transactions = self._client(Transactions, "t0")
            assert isinstance(transactions, Transactions)
            transactions.leadership = lambda node: self.invariants.leadership(
                node, TRANSACTIONS_TOPIC, transactions.transactional_id
            )
            transactions.partitions = self.partitions
        for number, level in enumerate((0, READ_COMMITTED)):
            self.consumers.append(self._consumer(f"c{number}", level))
        keeper = self._client(OffsetKeeper, "g0")
        assert isinstance(keeper, OffsetKeeper)
        keeper.partition, keeper.group = self.partitions[0], rng.choice(("red", "green", "blue"))
        keeper.leadership = lambda node: self.invariants.leadership(node, OFFSETS_TOPIC, keeper.group)
        self.keeper = keeper
        admin = self._client(Admin, "admin")
        assert isinstance(admin, Admin)
        admin.brokers = tuple(node.number for node in self.cluster.brokers)
        admin.moved = self.partitions
        admin.raises_features = self.plan.metadata_version is not None
        self.admin = admin
        self.groups = GroupMembers(
            self.seed,
            self.cluster,
            self.partitions,
            self._client,
            is_able=self.has_new_groups and self.plan.metadata_version is None and scene_of(self.seed) is None,
            dead_letters=self.plan.dead_letters,
        )
        if self.plan.moves:
            mover = self._client(LogDirMover, "moves", random.Random(f"mover {self.seed}"))
            assert isinstance(mover, LogDirMover)
            mover.paths = TWO_DIRECTORIES.split(",")
            internal = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC)
            mover.partitions = [*self.partitions, *((topic, index) for topic in internal for index in range(2))]
        return list(self._all_clients)

    def _consumer(self, name: str, level: int) -> Consumer:
        consumer = self._client(Consumer, name)
        assert isinstance(consumer, Consumer)
        consumer.partitions, consumer.isolation_level = self.partitions, level
        return consumer

    async def _create_topics(self) -> None:
        scene = scene_of(self.seed)
        for topic, count in TOPICS.items():
            by_chance = self.rng.choice((2048, 20_000, 1 << 20))
            configs = {"internal.segment.bytes": str((scene and scene.segment_bytes) or by_chance)} | self.topic_configs
            creating = self.admin.spawn(self.admin.create(topic, count, configs, 3), "creates topics")
            if not await creating:
                raise Violation("54", f"{topic} is not created")
        await self.groups.prepare(self.admin)

    # -- The end -----------------------------------------------------------------------------------------------------

    async def _elect_beside_lost_disks(self) -> None:
        """Elect leaders as an operator does, if the last known leader has lost its disk and the others have everything."""
        await self._until("all brokers are let in", lambda: self._waiting_for_operator() is not None)
        while waiting := self._waiting_for_operator():
            self.history.note(f"an operator elects for {waiting}")
            self.elected += len(waiting)
            await self.admin.spawn(self.admin.elect(UNCLEAN), "elects")
            await asyncio.sleep(1)

    def _waiting_for_operator(self) -> list[str] | None:
        """Return the partitions that no broker may lead without an operator; None as long as this is unknown."""
        active = self.cluster.active_controller
        if active is None or active.server is None or not all(node.is_serving for node in self.cluster.nodes):
            return None
        image = active.server.metadata.loader.image
        brokers = image.cluster.brokers
        if any(node.number not in brokers or brokers[node.number].fenced for node in self.cluster.brokers):
            return None
        return [
            f"{topic.name}-{index}"
            for topic in image.topics
            for index, partition in topic.sorted_partitions()
            for last in partition.last_known_elr
            if not partition.has_leader
            and not is_directory_online(partition.directory(last), brokers[last].directories)
        ]

    async def _settled(self) -> None:
        """No member leaves any more, and the group becomes stable."""
        for member in self.members:
            member.leaves = member.changes = 0.0
        if self.members:
            await self._until("the group is stable", lambda: unsettled(self.members) is None, number="42")
        self.groups.calm()
        await self._until("the new groups are stable", lambda: self.groups.unsettled() is None, number="42")

    async def _end_of(self, clients: Sequence[Client]) -> None:
        for client in clients:
            client.stopping = True
        await self._until("clients come to their end", lambda: all(client.is_done for client in clients))

    async def _until(self, what: str, is_so: Callable[[], bool], number: str = "54") -> None:
        end = self._time() + HEAL_SECONDS_MAX
        while not is_so():
            if self._time() > end:
                why = self._misplaced() if number == "59" else None
                why = why or self._unwell()
                if number == "42":  # later on members have been stopped
                    why = why or (unsettled(self.members) if self.members else None) or self.groups.unsettled()
                why = why or self.groups.unread()
                raise Violation(number, f"{what}: not within {HEAL_SECONDS_MAX:.0f} s: {why}")
            await asyncio.sleep(0.2)

    def _unwell(self) -> str | None:
        """Return the reason why the cluster is not healthy without faults; None if it is."""
        for node in self.cluster.nodes:
            if not node.is_serving or node.has_failed or node.has_lost_directory:
                return f"{node} does not serve ({node.failure!r})"
        active = self.cluster.active_controller
        if active is None or active.server is None:
            return "there is no active controller"
        image = active.server.metadata.loader.image
        for broker in image.cluster.brokers.values():
            if broker.fenced or broker.in_controlled_shutdown:
                return f"broker {broker.id} is not let in"
        for topic in image.topics:
            for index, r in topic.partitions.items():
                if r.leader < 0 or set(r.isr) != set(r.replicas) or r.reassigning:
                    return f"{topic.name}-{index}: {r}"
        names = {topic.name for topic in image.topics}
        if missing := set(self.admin.existing) - names:
            return f"{missing} have been created and are not there"
        if left := self.admin.gone & names:
            raise Violation("25", f"{left} have been deleted and are there")
        return None

    def _misplaced(self) -> str | None:
        active = self.cluster.active_controller
        if active is None or active.server is None:
            return "there is no active controller"
        image = active.server.metadata.loader.image
        return next((why for node in self.cluster.brokers if (why := misplaced(node, image)) is not None), None)

    async def _quiet(self) -> None:
        """Check that the controller writes only NoOpRecords when nothing is left to decide (invariant 54)."""
        self.invariants.same_metadata()
        active = self.cluster.active_controller
        assert active is not None and active.server is not None
        raft = active.server.metadata.raft
        end = raft.log_end_offset
        await asyncio.sleep(QUIET_SECONDS)
        written = raft.log_end_offset - end
        if written > QUIET_RECORDS_MAX:
            raise Violation("54", f"{written} records of metadata in {QUIET_SECONDS} quiet seconds")

    async def _readable(self) -> None:
        """Check that everything can be read from the beginning, at both levels, and the group's offset."""
        self.invariants.check()  # reads the records that were committed since the last check
        ends = {key: known.end for key, known in self.invariants.committed.items()}
        active = self.cluster.active_controller
        assert active is not None and active.server is not None
        by_name = {topic.name: topic.id for topic in active.server.metadata.loader.image.topics}
        for level in (0, READ_COMMITTED):
            reader = self._consumer(f"reader{level}", level)
            reader.pause_seconds = 0.05
            reader.wait_ms = (
                # it goes on after the responses of all leaders: a leader without more records must not delay the others
                0
            )
            wanted = {(topic, index): ends.get((by_name[topic], index), 0) for topic, index in self.partitions}
            reader.start()
            await self._until(f"reader {level} reads all", functools.partial(reader.has_read, wanted))
            reader.stopping = True
            self.consumers.append(reader)
        sessions = self._client(SessionReader, "sessions")
        assert isinstance(sessions, SessionReader)
        sessions.ends = {(topic, index): ends.get((by_name[topic], index), 0) for topic, index in self.partitions}
        sessions.start()
        await self._until("a reader with sessions reads all", lambda: sessions.has_read_all, number="46")
        for _ in range(20):
            if await self.keeper.spawn(self.keeper.fetch(), "reads the group's offset"):
                return
            await asyncio.sleep(0.5)
        raise Violation("39", "the group's offset cannot be read")


def played(simulation: SimulationT, broken: type[AssertionError]) -> SimulationT:
    """Run a simulation in a test's process, and return it. A violation is raised as `broken`, with the end of the trace.

    Garbage is collected before the run alone, as for other clusters (`__main__`).
    """
    gc.collect()
    gc.disable()
    try:
        result = simulation.run()
    finally:
        gc.enable()
    if result.violation is not None:
        raise broken("\n".join([*result.trace[-20:], result.violation]))
    return simulation
