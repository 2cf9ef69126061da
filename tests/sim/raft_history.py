"""Seeded histories of a metadata quorum on simulated hosts: appends, snapshots, retention, kills, power losses, bad disks.

The real `RaftNode`, with its real files and requests. What must hold, whatever happens (`docs`: the numbers are the names):
    18  no replica leads in an epoch in which it, or another one, led already: votes and epochs outlive a power loss
    19  the batch that any replica learned as committed at an offset is the one that every replica learns there
    21  a snapshot and the log behind it make the same state as the log alone
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

from ottla.controller.raft.batches import CommittedBatch, batch_bytes
from ottla.controller.raft.core import NotLeader
from ottla.controller.raft.driver import RaftNode
from ottla.controller.raft.log_state import OffsetAndEpoch
from ottla.controller.raft.raft_config import RaftConfig
from ottla.controller.raft.routes import quorum_routes
from ottla.controller.raft.snapshots import SnapshotReader
from ottla.controller.raft.voters import QuorumEndpoint, ReplicaKey, Voter, VoterSet
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server.clock import TimerWheel
from ottla.server.config.listeners import Endpoint
from ottla.server.handlers.api_versions import ApiVersionsHandler, Features
from ottla.server.network.dispatch import Dispatcher
from ottla.server.network.frames import ReceiveBuffer
from ottla.server.network.limits import ConnectionLimits
from ottla.server.network.listener import Listener
from ottla.server.network.route import Route, RouteTable
from ottla.storage.errors import StorageFailure
from ottla.storage.reserve import RESERVE_BYTES
from tests.sim.disk import CAPACITY_BYTES, Killed, is_full
from tests.sim.loop import run
from tests.sim.network import SimHub
from tests.sim.world import SimHost

DATA = "/data"
PORT = 9093
#: How long a healed quorum may take to agree, in virtual milliseconds.
AGREE_MS_MAX = 60_000
STOP_SECONDS_MAX = 10


class Truth:
    """The committed batches that any replica knows, and the leader of each epoch."""

    def __init__(self) -> None:
        self.batches: dict[int, tuple[int, int, tuple[bytes, ...]]] = {}  # base offset -> last offset, epoch, records
        self.leaders: dict[int, tuple[int, int]] = {}  # epoch -> replica, life
        self.committed_end = 0

    def committed(self, batch: CommittedBatch) -> None:
        batch_read = (batch.last_offset, batch.epoch, tuple(batch.records))
        known = self.batches.setdefault(batch.base_offset, batch_read)
        assert known == batch_read, f"at {batch.base_offset} was {known}, is {batch_read}"
        self.committed_end = max(self.committed_end, batch.last_offset + 1)

    def led(self, epoch: int, replica: int, life: int) -> None:
        known = self.leaders.setdefault(epoch, (replica, life))
        assert known == (replica, life), f"epoch {epoch} was led by {known}, and by {(replica, life)}"

    def records_below(self, offset: int) -> list[bytes]:
        return [record for base in sorted(self.batches) if base < offset for record in self.batches[base][2]]


class State:
    """The listener of one life of a replica."""

    def __init__(self, truth: Truth, replica: int, life: int) -> None:
        self.truth, self.replica, self.life = truth, replica, life
        self.records: list[bytes] = []
        self.next_offset = self.last_epoch = 0

    def handle_commit(self, batches: list[CommittedBatch]) -> None:
        for batch in batches:
            assert batch.base_offset == self.next_offset
            self.truth.committed(batch)
            self.next_offset, self.last_epoch = batch.last_offset + 1, batch.epoch
            self.records += batch.records

    def handle_snapshot(self, reader: SnapshotReader) -> None:
        self.records = [record for batch in reader for record in batch.records]
        assert self.records == self.truth.records_below(reader.offset), "the snapshot is not the log below it"
        self.next_offset, self.last_epoch = reader.offset, reader.epoch

    def handle_leader_change(self, leader_id: int, epoch: int) -> None:
        if leader_id == self.replica:
            self.truth.led(epoch, self.replica, self.life)


class Replica:
    """One host and the processes that run on it, one after the other."""

    def __init__(self, number: int, hub: SimHub, rng: random.Random, config: RaftConfig, truth: Truth) -> None:
        self.number, self.config, self.truth = number, config, truth
        self.host = SimHost(f"host{number}", hub, rng)
        self.host.disk.make_dirs(DATA)
        self.host.disk.sync_dir("/")
        self.life = 0
        self.is_up = False
        self.raft: RaftNode
        self.state: State

    async def start(self) -> None:
        world = self.host.boot()
        self.life += 1
        self.state = State(self.truth, self.number, self.life)
        self.raft = RaftNode(world, self.config, DATA, self.state)
        api_versions = ApiVersionsHandler(lambda: Features({"kraft.version": (0, 1)}, {}))
        table = RouteTable([*quorum_routes(self.raft), Route(ApiKey.API_VERSIONS, api_versions)])
        api_versions.set_routes(table)
        endpoint = self.config.endpoints[0]
        listener = Listener(
            world,
            Endpoint(endpoint.name, endpoint.host, endpoint.port),
            Dispatcher(table, world.clock, world.spawn),
            ConnectionLimits(),
            ReceiveBuffer(1 << 20),
            TimerWheel(world.clock),
        )
        await listener.bind()
        await listener.accept()
        await self.raft.start()
        self.is_up = True

    async def crash(self, power: bool) -> None:
        self.is_up = False
        await self.host.crash(power)

    @property
    def is_dead(self) -> bool:
        """Its disk has failed it, or killed it."""
        return self.host.disk.killed or self.raft.failure is not None


class RaftHistory:
    def __init__(self, seed: int, voters: int = 1, steps: int = 80) -> None:
        self.seed, self.voters, self.steps = seed, voters, steps
        self.rng = random.Random(seed)
        self.truth = Truth()
        self.trace: list[str] = []
        self.written = 0
        self.replicas: list[Replica] = []

    def run(self) -> None:
        run(self._main())

    async def _main(self) -> None:
        rng = self.rng
        self.hub = hub = SimHub(random.Random(rng.getrandbits(32)))
        endpoints = [QuorumEndpoint("CONTROLLER", f"host{i}", PORT) for i in range(1, self.voters + 1)]
        voters = VoterSet.of(Voter(ReplicaKey(i + 1), (endpoint,)) for i, endpoint in enumerate(endpoints))
        segment_bytes, retention_bytes = rng.choice((2000, 10_000)), rng.choice((1000, 8000, 1 << 20))
        # Without a reserve a replica stops at once when the disk is full; with a whole reserve it never has to.
        reserve_bytes = random.Random(self.seed).choice((0, 0, 3000, RESERVE_BYTES))
        for i in range(1, self.voters + 1):
            config = RaftConfig(
                i,
                i.to_bytes(16, "big"),
                "sim",
                (endpoints[i - 1],),
                static_voters=voters,
                segment_bytes=segment_bytes,
                retention_bytes=retention_bytes,
                batch_bytes_max=1500,
                reserve_bytes=reserve_bytes,
            )
            self.replicas.append(Replica(i, hub, random.Random(rng.getrandbits(32)), config, self.truth))
        for replica in self.replicas:
            await self._restart(replica)
        for _ in range(self.steps):
            await self._step()
        await self._agree()

    async def _step(self) -> None:
        rng = self.rng
        replica = rng.choice(self.replicas)
        disk = replica.host.disk
        if self.voters > 1:
            self._cut_or_heal(replica)
        await asyncio.sleep(rng.choice((0, 0.0005, 0.003, 0.02, 0.5)))
        if replica.is_up and replica.is_dead:
            await self._crash(replica, f"its disk did: {disk.failed or 'killed'}")
        elif not replica.is_up:
            await self._restart(replica)
        else:
            fault = rng.choices(("none", "kill", "failure", "full"), (85, 8, 3, 2))[0]
            if fault == "kill":
                disk.kill_after(rng.randint(1, 14))
            elif fault == "failure":
                disk.fail_after(rng.randint(1, 10))
            elif fault == "full":
                disk.room_bytes = disk.used_bytes() + rng.choice((0, 100, 3000))
            await self._do(replica, rng.choices(("append", "snapshot", "crash", "stop"), (75, 12, 8, 4))[0], fault)
            if fault == "full":
                await self._live_full(replica)

    async def _live_full(self, replica: Replica) -> None:
        """The node goes on, or waits for space, and needs no other start. Meanwhile it is idle, or gets more requests."""
        for _ in range(self.rng.choice((1, 1, 4, 30))):
            await asyncio.sleep(self.rng.choice((0.01, 0.1, 0.5)))
            if replica.is_up and not replica.is_dead and self.rng.random() < 0.5:
                await self._do(replica, "append", "full")
        if replica.is_up and replica.raft.failure is not None:
            assert not is_full(replica.raft.failure), f"replica {replica.number} has ended: {replica.raft.failure}"
        replica.host.disk.room_bytes = CAPACITY_BYTES

    def _cut_or_heal(self, replica: Replica) -> None:
        what = self.rng.random()
        if what < 0.05:
            others = [other.host.name for other in self.replicas if other is not replica]
            self.hub.partition([replica.host.name], others)
            self.trace.append(f"{replica.number} is cut off")
        elif what < 0.15:
            self.hub.heal()

    async def _do(self, replica: Replica, what: str, fault: str) -> None:
        self.trace.append(f"{what} on {replica.number} {fault if fault != 'none' else ''}")
        try:
            if what == "append":
                self._append(replica)
            elif what == "snapshot":
                self._snapshot(replica)
            elif what == "stop":
                replica.is_up = False
                await self._stop(replica)
                await replica.host.crash(self.rng.random() < 0.5)
            else:
                await self._crash(replica, "at random")
        except (Killed, StorageFailure) as end:
            await self._crash(replica, repr(end))

    async def _stop(self, replica: Replica) -> None:
        try:
            async with asyncio.timeout(STOP_SECONDS_MAX):
                await replica.raft.stop()
        except TimeoutError:
            assert replica.host.disk.killed, "a living process takes too long to stop"

    def _append(self, replica: Replica) -> None:
        rng, records = self.rng, []
        for _ in range(rng.choice((1, 1, 3, 20))):
            self.written += 1
            records.append(b"%d:" % self.written + rng.randbytes(rng.choice((0, 10, 200))))
        try:
            if batch_bytes(records) <= replica.config.batch_bytes_max and rng.random() < 0.5:
                replica.raft.append_atomic(records)
            else:
                replica.raft.append(records)
        except NotLeader:
            pass
        except KafkaError as refused:
            assert refused.code == ErrorCode.KAFKA_STORAGE_ERROR
            assert replica.host.disk.room_bytes < CAPACITY_BYTES or replica.raft.shortage, "there is room"

    def _snapshot(self, replica: Replica) -> None:
        state, raft = replica.state, replica.raft
        snapshot = OffsetAndEpoch(state.next_offset, state.last_epoch)
        if raft.failure is not None or not raft.state.log.start_offset < snapshot.offset <= raft.state.high_watermark:
            return
        writer = raft.create_snapshot(snapshot, 0)
        if writer is not None:
            writer.append(state.records)
            if self.rng.random() < 0.1:
                writer.abandon()
                return
            writer.freeze()
            raft.snapshot_created(snapshot)

    async def _crash(self, replica: Replica, why: str) -> None:
        power = self.rng.random() < 0.6
        self.trace.append(f"{'power loss' if power else 'kill'} of {replica.number}: {why}")
        await replica.crash(power)

    async def _restart(self, replica: Replica) -> None:
        """Start the node; it may die once or twice more while it starts."""
        disk = replica.host.disk
        disk.room_bytes = CAPACITY_BYTES
        while replica.life and self.rng.random() < 0.2:
            disk.kill_after(self.rng.randint(1, 25))
            try:
                await replica.start()
            except Killed:
                self.trace.append(f"{replica.number} died while starting")
            await replica.crash(self.rng.random() < 0.5)
        await replica.start()
        self.trace.append(f"started {replica.number}, life {replica.life}")

    async def _agree(self) -> None:
        """The faults are over: every replica learns everything that was ever committed, and goes on from there."""
        self.hub.heal()
        for replica in self.replicas:
            if not replica.is_up or replica.is_dead:
                if replica.is_up:
                    await replica.crash(power=True)
                replica.host.disk.disarm()
                await replica.start()
            replica.host.disk.disarm()
            replica.host.disk.room_bytes = CAPACITY_BYTES
        self.trace.append("healed")
        wanted, waited = self.truth.committed_end, 0
        last = b"the end"
        while not all(last in replica.state.records for replica in self.replicas):
            for replica in self.replicas:
                assert replica.raft.failure is None, f"replica {replica.number} failed: {replica.raft.failure}"
                if replica.raft.is_leader and last not in replica.state.records:
                    with suppress(KafkaError):  # it has room, and has not noticed yet
                        replica.raft.append([last])
            await asyncio.sleep(0.1)
            waited += 100
            assert waited < AGREE_MS_MAX, "no agreement after the faults were over"
        for replica in self.replicas:
            assert replica.state.next_offset >= wanted
            assert replica.state.records == self.truth.records_below(replica.state.next_offset)


def run_raft_history(seed: int, voters: int = 1) -> RaftHistory:
    """Runs one history; a failure names the command that replays it, and the last events."""
    history = RaftHistory(seed, voters)
    try:
        history.run()
    except BaseException as failure:
        failure.add_note(
            f"replay: OTTLA_SIM_SEED={seed} python -m pytest -q tests/sim/test_raft_crashes.py -k 'of_{voters}'\n"
            + "\n".join(history.trace[-25:])
        )
        raise
    return history
