"""Replicas of the pure core in one process, with virtual time, a network with faults and disks that lose writes.

The simulation and the transcripts run on it. It executes Effects exactly as the driver does, on lists in place of files. After
a crash a disk has all that was flushed, and by chance a part of the rest.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from ottla.controller.raft.core import NotLeader, RaftCore
from ottla.controller.raft.effects import Effects, ElectionState, PeerReply, PeerRequest
from ottla.controller.raft.leader import Leader
from ottla.controller.raft.log_state import LogState, OffsetAndEpoch
from ottla.controller.raft.messages import (
    Batch,
    Failed,
    FetchReply,
    FetchSnapshotReply,
    Flushed,
    Message,
    Received,
    Replied,
    RequestBody,
    SnapshotReceived,
    SupportedVersions,
    SupportedVersionsReply,
)
from ottla.controller.raft.raft_config import RaftConfig
from ottla.controller.raft.voters import QuorumEndpoint, ReplicaKey, Voter, VoterHistory, VoterSet
from ottla.protocol.errors import ErrorCode

CLUSTER_ID = "cluster"
LISTENER = "CONTROLLER"
SNAPSHOT_CHUNK = 2


def directory_of(node_id: int) -> bytes:
    return node_id.to_bytes(16, "big")


def endpoint_of(node_id: int) -> QuorumEndpoint:
    return QuorumEndpoint(LISTENER, f"node{node_id}", 9000 + node_id)


@dataclass
class Snapshot:
    id: OffsetAndEpoch
    #: The values of a state machine that remembers each of them. The first element stands for the header.
    content: list[str]
    voters: VoterSet | None
    kraft_version: int | None


@dataclass
class Disk:
    """The files that are certain to survive a crash."""

    election: ElectionState | None = None
    start_offset: int = 0
    log: list[Batch] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)


@dataclass
class Settings:
    """The faults of the world. Probabilities are per message."""

    delay_ms_max: int = 10
    drop: float = 0.0
    duplicate: float = 0.0
    flush_ms_max: int = 5
    #: The probability, per flush, that the replica crashes during it: at that time the loss of unflushed records does the most
    #: harm.
    crash_in_flush: float = 0.0
    #: The number is small, so that followers lag.
    batches_per_fetch: int = 3


class Replica:
    """One core, and the state that its driver would have."""

    def __init__(self, cluster: Cluster, config: RaftConfig, first_snapshot: Snapshot | None = None) -> None:
        self.cluster = cluster
        self.config = config
        self.id = config.node_id
        self.disk = Disk()
        if first_snapshot is not None:
            self.disk.snapshots.append(first_snapshot)
        self.incarnation = 0
        self.is_up = False
        self.core: RaftCore
        self.start()

    def start(self) -> None:
        self.is_up = True
        self.incarnation += 1
        self.log = list(self.disk.log)
        self.start_offset = self.disk.start_offset
        self.snapshots = list(self.disk.snapshots)
        self.delivered: list[str] = []
        self.delivered_offset = 0
        self.flushing = False
        self.flush_wanted = False
        state = LogState(start_offset=self.start_offset, end_offset=self.start_offset)
        voters = VoterHistory(self.config.static_voters)
        for snapshot in self.snapshots:
            state.snapshots.append(snapshot.id)
            voters.append(snapshot.id.offset - 1, snapshot.voters, snapshot.kraft_version)
        for batch in self.log:
            state.append(batch.base_offset, batch.last_offset, batch.epoch)
            voters.merge(batch.last_offset, batch.voters, batch.kraft_version) if batch.voters else None
        state.flushed_offset = state.end_offset
        now_ms = self.cluster.now_ms
        self.core = RaftCore(self.config, state, voters, self.disk.election, self.cluster.rng, now_ms)
        self.tick()

    def crash(self) -> None:
        """Keep what was flushed, and by chance either a prefix of the rest or the log as it was before a truncation."""
        self.is_up = False
        rng, disk = self.cluster.rng, self.disk
        common = 0
        while common < min(len(disk.log), len(self.log)) and disk.log[common] is self.log[common]:
            common += 1
        if common == len(disk.log) or rng.random() < 0.5:
            disk.log = self.log[: rng.randint(common, len(self.log))] if common == len(disk.log) else self.log[:common]

    # Driving the core.

    def step(self, message: Message) -> None:
        if self.is_up:
            self.apply(self.core.step(message, self.cluster.now_ms))

    def tick(self) -> None:
        self.apply(self.core.tick(self.cluster.now_ms))

    def append(self, value: str) -> int:
        offset, effects = self.core.append([(1, [value])], self.cluster.now_ms)
        self.apply(effects)
        return offset

    def apply(self, effects: Effects) -> None:
        cluster = self.cluster
        for note in effects.notes:
            cluster.trace(f"{self.id}: {note}")
        if effects.election is not None:
            cluster.checks.on_election(self, effects.election)
            self.disk.election = effects.election
        if effects.reset_to_snapshot is not None:
            self._reset(effects.reset_to_snapshot)
        if effects.truncate_to is not None:
            self.log = [batch for batch in self.log if batch.last_offset < effects.truncate_to]
            assert self.end_offset == effects.truncate_to, "a truncation must fall between two batches"
        for batch in effects.appends:
            assert batch.base_offset == self.end_offset
            self.log.append(batch)
        if effects.flush:
            self.want_flush()
        for request in effects.requests:
            cluster.send(self, request)
        for reply in effects.replies:
            self._reply(reply)
        cluster.checks.on_step(self, effects)
        if effects.high_watermark is not None:
            self._deliver()
        chunk = effects.snapshot_chunk
        if chunk is not None:
            self._store_chunk(chunk)
        cluster.arm(self)

    @property
    def end_offset(self) -> int:
        return self.log[-1].last_offset + 1 if self.log else self.start_offset

    def batches_from(self, offset: int) -> list[Batch]:
        return [batch for batch in self.log if batch.base_offset >= offset]

    # The disk.

    def want_flush(self) -> None:
        self.flush_wanted = True
        if not self.flushing:
            self.flushing = True
            self._start_flush()

    def _start_flush(self) -> None:
        self.flush_wanted = False
        log, generation, offset = list(self.log), self.core.state.log.generation, self.core.state.log.end_offset
        start_offset, incarnation = self.start_offset, self.incarnation

        def flushed() -> None:
            if not self.is_up or self.incarnation != incarnation:
                return
            if generation == self.core.state.log.generation:
                self.disk.log, self.disk.start_offset = log, max(start_offset, self.disk.start_offset)
                self.disk.log = [batch for batch in log if batch.base_offset >= self.disk.start_offset]
            self.flushing = False
            self.step(Flushed(generation, offset))
            if self.flush_wanted and not self.flushing:
                self.want_flush()

        rng, settings = self.cluster.rng, self.cluster.settings
        if rng.random() < settings.crash_in_flush:
            self.cluster.after(rng.randint(0, settings.flush_ms_max), self._crash_of(incarnation))
        self.cluster.after(rng.randint(0, settings.flush_ms_max), flushed)

    def _crash_of(self, incarnation: int) -> Callable[[], None]:
        def crash() -> None:
            faults_go_on = self.cluster.settings.crash_in_flush > 0
            if faults_go_on and self.is_up and self.incarnation == incarnation:
                self.cluster.trace(f"crash {self.id} while it flushes")
                self.crash()

        return crash

    def _reset(self, snapshot: OffsetAndEpoch) -> None:
        self.log, self.start_offset = [], snapshot.offset
        self.snapshots = [kept for kept in self.snapshots if kept.id == snapshot]
        self.disk.log, self.disk.start_offset, self.disk.snapshots = [], snapshot.offset, list(self.snapshots)

    def take_snapshot(self) -> bool:
        """Take a snapshot of everything delivered, and drop the log before it."""
        offset = self.delivered_offset
        if offset <= self.core.state.log.start_offset or not self.core.state.log.is_flushed:
            return False
        epoch = self.core.state.log.epoch_at(offset)
        snapshot_id = OffsetAndEpoch(offset, epoch)
        voters = self.core.state.voters
        kraft_version = voters.kraft_version_at(offset)
        made = Snapshot(
            snapshot_id,
            ["header", *self.delivered],
            voters.at(offset) if kraft_version else None,
            kraft_version or None,
        )
        self.snapshots.append(made)
        self.core.snapshot_created(snapshot_id)
        self.core.start_log_at(snapshot_id)
        self.snapshots = [kept for kept in self.snapshots if kept.id >= snapshot_id]
        self.start_offset = offset
        self.log = self.batches_from(offset)
        self.disk = replace(self.disk, log=list(self.log), start_offset=offset, snapshots=list(self.snapshots))
        self.cluster.trace(f"{self.id}: snapshot {snapshot_id}")
        return True

    def _store_chunk(self, chunk: Any) -> None:
        if chunk.position == 0:
            self.part: list[str] = []
        assert len(self.part) == chunk.position
        self.part.extend(chunk.data)
        if chunk.is_last:
            source = self.cluster.known_snapshots[chunk.snapshot]
            received = Snapshot(chunk.snapshot, list(self.part), source.voters, source.kraft_version)
            self.snapshots.append(received)
            self.disk.snapshots = sorted([*self.disk.snapshots, received], key=lambda snapshot: snapshot.id)
            self.step(SnapshotReceived(chunk.snapshot, received.voters, received.kraft_version))

    # The listener.

    def _deliver(self) -> None:
        high_watermark = self.core.state.high_watermark
        latest = self.snapshots[-1] if self.snapshots else None
        if latest is not None and self.delivered_offset < self.start_offset:
            self.delivered, self.delivered_offset = latest.content[1:], latest.id.offset
        for batch in self.log:
            if self.delivered_offset <= batch.base_offset and batch.last_offset < high_watermark:
                if isinstance(batch.data, list):
                    self.delivered.extend(batch.data)
                self.delivered_offset = batch.last_offset + 1

    # The wire.

    def _reply(self, reply: PeerReply) -> None:
        body = reply.body
        if isinstance(body, FetchReply) and body.records_from is not None:
            body = replace(
                body, batches=tuple(self.batches_from(body.records_from)[: self.cluster.settings.batches_per_fetch])
            )
        elif isinstance(body, FetchSnapshotReply) and body.error is ErrorCode.NONE:
            snapshot = next((kept for kept in self.snapshots if kept.id == body.snapshot), None)
            assert snapshot is not None
            self.cluster.known_snapshots[snapshot.id] = snapshot
            data = snapshot.content[body.position : body.position + SNAPSHOT_CHUNK]
            body = replace(body, size=len(snapshot.content), data=data)
        reply.reply_to(body)


class Checks:
    """The checks of the invariants; the simulation sets them."""

    def on_election(self, replica: Replica, election: ElectionState) -> None: ...
    def on_step(self, replica: Replica, effects: Effects) -> None: ...


class Cluster:
    def __init__(self, rng: Random, settings: Settings | None = None, checks: Checks | None = None) -> None:
        self.rng = rng
        self.settings = settings or Settings()
        self.checks = checks or Checks()
        self.now_ms = 0
        self.replicas: dict[int, Replica] = {}
        #: Cuts in one direction, as (from, to).
        self.cuts: set[tuple[int, int]] = set()
        self.known_snapshots: dict[OffsetAndEpoch, Snapshot] = {}
        self.log: list[str] = []
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._armed: dict[int, int] = {}

    def add(self, config: RaftConfig, first_snapshot: Snapshot | None = None) -> Replica:
        replica = self.replicas[config.node_id] = Replica(self, config, first_snapshot)
        return replica

    def trace(self, line: str) -> None:
        self.log.append(f"{self.now_ms:>6} {line}")

    # Time.

    def after(self, delay_ms: int, event: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (self.now_ms + delay_ms, self._sequence, event))

    def arm(self, replica: Replica) -> None:
        deadline_ms = replica.core.state.deadline_ms
        if deadline_ms >= 1 << 60 or self._armed.get(replica.id) == deadline_ms:
            return
        self._armed[replica.id] = deadline_ms
        incarnation = replica.incarnation

        def due() -> None:
            if self._armed.get(replica.id) == deadline_ms:
                del self._armed[replica.id]
            if replica.is_up and replica.incarnation == incarnation and replica.core.state.deadline_ms <= self.now_ms:
                replica.tick()

        self.after(max(0, deadline_ms - self.now_ms), due)

    def run_one(self) -> bool:
        if not self._events:
            return False
        self.now_ms, _, event = heapq.heappop(self._events)
        event()
        return True

    def run_until(self, end_ms: int, done: Callable[[], bool] | None = None) -> bool:
        """Run events up to that time. Return True as soon as `done` holds."""
        while self._events and self._events[0][0] <= end_ms:
            if done is not None and done():
                return True
            self.run_one()
        self.now_ms = max(self.now_ms, end_ms)
        return done is not None and done()

    # The network.

    def send(self, sender: Replica, request: PeerRequest) -> None:
        target = next((r for r in self.replicas.values() if endpoint_of(r.id) == request.endpoint), None)
        incarnation = sender.incarnation
        self.trace(f"{sender.id} -> {target.id if target else '?'}: {describe(request.body)}")

        def fail(connection_closed: bool) -> None:
            if sender.is_up and sender.incarnation == incarnation:
                sender.step(Failed(request.request_id, connection_closed))

        if target is None:
            self.after(1, lambda: fail(True))
            return

        def answer(body: Any) -> None:
            if not self._passes(target.id, sender.id):
                return

            def arrive() -> None:
                if sender.is_up and sender.incarnation == incarnation and (target.id, sender.id) not in self.cuts:
                    self.trace(f"{sender.id} <- {target.id}: {describe(body)}")
                    sender.step(Replied(request.request_id, body))

            for _ in range(self._copies()):
                self.after(self._delay_ms(), arrive)

        def deliver() -> None:
            if not target.is_up:
                self.after(self._delay_ms(), lambda: fail(True))
            elif (sender.id, target.id) in self.cuts:
                return
            elif isinstance(request.body, SupportedVersions):
                answer(SupportedVersionsReply(ErrorCode.NONE, 0, 1))
            else:
                down = target.incarnation
                target.step(Received(request.body, answer))
                # A crash of the target resets the connection, so a node that waits for a parked response notices it at once.
                self._watch(target, down, lambda: fail(True))

        if self._passes(sender.id, target.id):
            for _ in range(self._copies()):
                self.after(self._delay_ms(), deliver)

    def _watch(self, target: Replica, incarnation: int, fail: Callable[[], None]) -> None:
        def look() -> None:
            if not target.is_up or target.incarnation != incarnation:
                fail()

        self.after(self.settings.delay_ms_max + 1, look)

    def _passes(self, source: int, target: int) -> bool:
        return (source, target) not in self.cuts and self.rng.random() >= self.settings.drop

    def _copies(self) -> int:
        return 2 if self.rng.random() < self.settings.duplicate else 1

    def _delay_ms(self) -> int:
        return self.rng.randint(0, self.settings.delay_ms_max)

    def isolate(self, node_id: int) -> None:
        for other in self.replicas:
            if other != node_id:
                self.cuts |= {(node_id, other), (other, node_id)}

    def heal(self) -> None:
        self.cuts.clear()

    # The questions of tests.

    @property
    def leaders(self) -> list[Replica]:
        return [replica for replica in self.replicas.values() if replica.is_up and replica.core.state.is_leader]

    @property
    def leader(self) -> Replica | None:
        """Return the leader of the highest epoch."""
        return max(self.leaders, key=lambda replica: replica.core.state.epoch, default=None)

    def settled(self) -> bool:
        """Return whether there is one leader that all follow, and everything is committed on all replicas."""
        leader = self.leader
        if leader is None or not isinstance(leader.core.state.role, Leader):
            return False
        end = leader.core.state.log.end_offset
        return leader.core.state.role.high_watermark == end and all(
            replica.core.state.log.end_offset == end
            and replica.core.state.high_watermark == end
            and replica.core.state.leader_id == leader.id
            for replica in self.replicas.values()
            if replica.is_up
        )


def make_config(node_id: int, voters: VoterSet, **settings: Any) -> RaftConfig:
    return RaftConfig(
        node_id,
        directory_of(node_id),
        CLUSTER_ID,
        (endpoint_of(node_id),),
        static_voters=voters,
        **settings,
    )


def static_voters(*node_ids: int) -> VoterSet:
    return VoterSet.of(Voter(ReplicaKey(node_id), (endpoint_of(node_id),)) for node_id in node_ids)


def dynamic_voters(*node_ids: int) -> VoterSet:
    return VoterSet.of(
        Voter(ReplicaKey(node_id, directory_of(node_id)), (endpoint_of(node_id),)) for node_id in node_ids
    )


def make_cluster(
    voters: int = 3,
    observers: int = 0,
    *,
    seed: int = 0,
    dynamic: bool = False,
    settings: Settings | None = None,
    checks: Checks | None = None,
) -> Cluster:
    """Make a cluster. Voters are 1, 2 and so on, then observers follow. Dynamic voters come from the snapshot 0-0, as
    formatting writes it.
    """
    cluster = Cluster(Random(seed), settings, checks)
    ids = range(1, voters + 1)
    bootstrap = tuple(endpoint_of(node_id) for node_id in ids)
    for node_id in range(1, voters + observers + 1):
        if dynamic:
            first = Snapshot(OffsetAndEpoch(0, 0), ["header"], dynamic_voters(*ids), 1)
            is_initial = node_id <= voters
            cluster.add(make_config(node_id, VoterSet(), bootstrap_servers=bootstrap), first if is_initial else None)
        else:
            cluster.add(make_config(node_id, static_voters(*ids)))
    return cluster


def describe(body: Any) -> str:
    """Return a message as one short line for transcripts."""
    name = type(body).__name__
    parts = []
    if hasattr(body, "error") and body.error is not ErrorCode.NONE:
        parts.append(body.error.name)
    for attribute in (
        "epoch",
        "leader_id",
        "log_end",
        "high_watermark",
        "granted",
        "diverging",
        "snapshot",
        "position",
    ):
        value = getattr(body, attribute, None)
        unsaid = attribute == "high_watermark" and value == 2**63 - 1
        if value is not None and not unsaid:
            parts.append(f"{attribute}={value}")
    if getattr(body, "pre_vote", False):
        parts.append("pre_vote")
    if isinstance(body, FetchReply) and body.batches:
        parts.append(f"records={body.batches[0].base_offset}..{body.batches[-1].last_offset}")
    return " ".join([name, *parts])


__all__ = ["Checks", "Cluster", "NotLeader", "Replica", "RequestBody", "Settings", "make_cluster", "make_config"]
