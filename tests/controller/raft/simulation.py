"""One seeded run of a whole quorum under faults, with the invariants checked after every step.

The numbers are those of docs/dev/INVARIANTS.md. A failure prints the seed, which gives the same trace every time:   python -m
tests.controller.raft.simulation SEED
"""

from __future__ import annotations

import sys
from random import Random
from typing import Any

from ottla.controller.raft.core import NotLeader
from ottla.controller.raft.effects import Effects, ElectionState
from ottla.controller.raft.leader import Leader
from ottla.controller.raft.messages import AddVoter, Received, RemoveVoter, Vote, VoteReply
from ottla.controller.raft.roles import Candidate
from ottla.controller.raft.voters import ReplicaKey
from tests.controller.raft.cluster import Checks, Cluster, Replica, Settings, directory_of, endpoint_of, make_cluster
from tests.histories import Violation

FAULTS_MS = 20_000
#: After the last fault all replicas must agree within this time (invariant 54: liveness).
HEAL_MS = 30_000


class Invariants(Checks):
    def __init__(self, rules: bool = True) -> None:
        """With `rules` also check the rules of the algorithm, step by step. Without them only their consequences are checked:
        these have to catch a mutant, because a check of the rule itself would only repeat what the mutant changes.
        """
        self.rules = rules
        self.leader_of: dict[int, int] = {}
        self.voted: dict[tuple[int, int], ReplicaKey] = {}
        self.epoch_of: dict[int, int] = {}
        #: All records that any replica ever reported as committed: by offset, (epoch, value).
        self.committed: dict[int, tuple[int, str]] = {}
        self.committed_end = 0
        self.watermark_of: dict[tuple[int, int], int] = {}

    def on_election(self, replica: Replica, election: ElectionState) -> None:
        """Check that epochs grow, and that a replica votes once in an epoch, whatever it forgets (invariant 18)."""
        if self.rules and election.epoch < self.epoch_of.get(replica.id, 0):
            raise Violation("18", f"the epoch of {replica.id} went back to {election.epoch}")
        self.epoch_of[replica.id] = election.epoch
        if election.voted is not None:
            voted = self.voted.setdefault((replica.id, election.epoch), election.voted)
            if voted != election.voted:
                raise Violation("18", f"{replica.id} votes twice in epoch {election.epoch}")

    def on_step(self, replica: Replica, effects: Effects) -> None:
        core = replica.core
        if self.rules:
            self._check_rules(replica, effects)
        role = core.state.role
        if isinstance(role, Leader):
            if self.leader_of.setdefault(role.epoch, replica.id) != replica.id:
                raise Violation("18", f"{self.leader_of[role.epoch]} and {replica.id} lead in epoch {role.epoch}")
            if role.epoch == max(self.leader_of):
                self._check_complete(replica)
        # The high watermark never falls, within one life of a replica.
        key = (replica.id, replica.incarnation)
        if core.state.high_watermark < self.watermark_of.get(key, -1):
            raise Violation("20", f"the high watermark of {replica.id} went back to {core.state.high_watermark}")
        self.watermark_of[key] = core.state.high_watermark
        if effects.high_watermark is not None or effects.appends:
            self._check_committed(replica)

    def _check_rules(self, replica: Replica, effects: Effects) -> None:
        core, disk = replica.core, replica.disk
        if disk.election is not None and disk.election != core.state.role.election:
            raise Violation("18", f"the role of {replica.id} is not durable")
        for reply in effects.replies:
            granted = isinstance(reply.body, VoteReply) and reply.body.granted
            if granted and disk.election is not None and disk.election.epoch != reply.body.epoch:
                raise Violation("18", "a vote was sent before it was durable")
        for request in effects.requests:
            body = request.body
            if isinstance(body, Vote) and not body.pre_vote:
                assert isinstance(core.state.role, Candidate)
                if disk.election is None or disk.election.voted != core.state.key:
                    raise Violation("18", f"{replica.id} asks for votes without having voted for itself")
        role = core.state.role
        if isinstance(role, Leader) and -1 < role.high_watermark <= role.epoch_start_offset:
            raise Violation("20", "a watermark is exposed before a record of the leader's own epoch")

    def _check_complete(self, replica: Replica) -> None:
        """Check that a leader has everything committed (invariant 4). The newest committed record stands for all before it (log matching)."""
        last = self.committed_end - 1
        if last >= replica.core.state.log.start_offset:
            epoch = replica.core.state.log.epoch_at(last + 1)
            if epoch != self.committed[last][0]:
                raise Violation("4", f"leader {replica.id} lacks committed offset {last}")

    def _check_committed(self, replica: Replica) -> None:
        """Check that committed records never change, and that all replicas have the same (invariant 19)."""
        high_watermark = replica.core.state.high_watermark
        for batch in reversed(replica.log):
            if batch.last_offset >= high_watermark:
                continue
            known = self.committed.get(batch.last_offset)
            what = (batch.epoch, repr(batch.data) if isinstance(batch.data, list) else "control")
            if known is not None:
                if known != what:
                    raise Violation("19", f"{replica.id} has {what} at {batch.last_offset}, committed was {known}")
                if batch.last_offset < self.committed_end - 50:
                    break
            else:
                self.committed[batch.last_offset] = what
                for offset in range(batch.base_offset, batch.last_offset):
                    self.committed[offset] = (batch.epoch, "inside a batch")
                self.committed_end = max(self.committed_end, batch.last_offset + 1)


class Simulation:
    def __init__(
        self,
        seed: int,
        *,
        voters: int | None = None,
        batches_per_fetch: int = 3,
        flush_ms_max: int | None = None,
        dynamic: bool = False,
        rules: bool = True,
    ) -> None:
        self.seed = seed
        rng = Random(seed)
        self.checks = Invariants(rules)
        settings = Settings(
            delay_ms_max=rng.choice([5, 20, 100]),
            drop=rng.choice([0.0, 0.01, 0.1]),
            duplicate=rng.choice([0.0, 0.05]),
            flush_ms_max=rng.choice([0, 5, 50, 300]) if flush_ms_max is None else flush_ms_max,
            crash_in_flush=rng.choice([0.0, 0.01, 0.05]),
            batches_per_fetch=batches_per_fetch,
        )
        self.dynamic = rng.random() < 0.4 or dynamic
        count, observers = rng.choice([1, 3, 3, 5]), rng.choice([0, 1, 2])
        self.cluster: Cluster = make_cluster(
            voters or count, observers, seed=seed, dynamic=self.dynamic, settings=settings, checks=self.checks
        )
        self.rng = rng
        self.next_value = 0
        self.acked: list[tuple[int, str]] = []
        self.waiting: list[tuple[int, int, int, int, str]] = []

    def run(self) -> None:
        cluster = self.cluster
        while cluster.now_ms < FAULTS_MS:
            cluster.run_until(cluster.now_ms + self.rng.randint(1, 400))
            self._fault()
            for _ in range(self.rng.randint(0, 4)):
                self._append()
            self._collect()
        self._heal()
        if not cluster.run_until(cluster.now_ms + HEAL_MS, self._agreed):
            raise Violation("54", "no agreement after the last fault")
        self._collect()
        self._check_acknowledged()

    def _fault(self) -> None:
        cluster, rng = self.cluster, self.rng
        replica = cluster.replicas[rng.choice(list(cluster.replicas))]
        match rng.choice(
            (
                "none",
                "crash",
                "power loss",
                "restart",
                "restart",
                "restart all",
                "isolate",
                "cut",
                "heal",
                "heal",
                "snapshot",
                "resign",
                "voters",
            )
        ):
            case "power loss":
                cluster.trace("power loss")
                for each in cluster.replicas.values():
                    if each.is_up:
                        each.crash()
            case "crash" if replica.is_up:
                cluster.trace(f"crash {replica.id}")
                replica.crash()
            case "restart" if not replica.is_up:
                cluster.trace(f"restart {replica.id}")
                replica.start()
            case "restart all":
                for each in cluster.replicas.values():
                    if not each.is_up:
                        each.start()
            case "isolate":
                cluster.trace(f"isolate {replica.id}")
                cluster.isolate(replica.id)
            case "cut":
                cluster.cuts.add((replica.id, rng.choice(list(cluster.replicas))))
            case "heal":
                cluster.heal()
            case "snapshot" if replica.is_up:
                replica.take_snapshot()
            case "resign" if replica.is_up and replica.core.state.is_leader:
                replica.apply(replica.core.resign(cluster.now_ms))
            case "voters" if self.dynamic:
                self._change_voters()

    def _change_voters(self) -> None:
        leader = self.cluster.leader
        if leader is None:
            return
        node_id = self.rng.choice(list(self.cluster.replicas))
        key = ReplicaKey(node_id, directory_of(node_id))
        if leader.core.state.voters.last.is_voter(key):
            change: AddVoter | RemoveVoter = RemoveVoter(None, key)
        else:
            change = AddVoter(None, key, (endpoint_of(node_id),), 1000)
        leader.step(Received(change, lambda reply: self.cluster.trace(f"{change} -> {reply}")))

    def _append(self) -> None:
        for replica in self.cluster.leaders:
            value = f"v{self.next_value}"
            self.next_value += 1
            try:
                offset = replica.append(value)
            except NotLeader:
                continue
            self.waiting.append((replica.id, replica.incarnation, replica.core.state.epoch, offset, value))

    def _collect(self) -> None:
        """A value is acknowledged when the leader that got it, and still leads, has committed it."""
        left = []
        for entry in self.waiting:
            node_id, incarnation, epoch, offset, value = entry
            replica = self.cluster.replicas[node_id]
            role = replica.core.state.role
            if not replica.is_up or replica.incarnation != incarnation or role.epoch != epoch:
                continue
            if isinstance(role, Leader) and role.high_watermark > offset:
                self.acked.append((offset, value))
            elif isinstance(role, Leader):
                left.append(entry)
        self.waiting = left

    def _heal(self) -> None:
        cluster = self.cluster
        cluster.trace("heal everything")
        cluster.heal()
        cluster.settings.drop = cluster.settings.duplicate = cluster.settings.crash_in_flush = 0.0
        for replica in cluster.replicas.values():
            if not replica.is_up:
                replica.start()

    def _agreed(self) -> bool:
        return self.cluster.settled()

    def _check_acknowledged(self) -> None:
        """Check that what was acknowledged is on every replica in the same place (invariant 1), and that snapshots and logs
        agree (21).
        """
        replicas = list(self.cluster.replicas.values())
        for replica in replicas:
            if replica.delivered != replicas[0].delivered:
                raise Violation("21", f"{replica.id} delivered something else")
        delivered = replicas[0].delivered
        places = {value: index for index, value in enumerate(delivered)}
        if len(places) != len(delivered):
            raise Violation("26", "a value was delivered twice")
        missing = [value for _, value in self.acked if value not in places]
        if missing:
            raise Violation("1", f"acknowledged and lost: {missing[:5]}")
        order = [places[value] for _, value in sorted(self.acked)]
        if order != sorted(order):
            raise Violation("27", "acknowledged out of order")


def run(seed: int, **options: Any) -> Simulation:
    simulation = Simulation(seed, **options)
    try:
        simulation.run()
    except AssertionError as failure:
        failure.add_note(f"seed {seed}: python -m tests.controller.raft.simulation {seed}")
        raise
    return simulation


def main() -> None:
    simulation = Simulation(int(sys.argv[1]))
    try:
        simulation.run()
    finally:
        print("\n".join(simulation.cluster.log[-int(sys.argv[2]) if len(sys.argv) > 2 else -200 :]))
    print(f"{len(simulation.acked)} acknowledged, {len(simulation.checks.leader_of)} leaders")


if __name__ == "__main__":
    main()
