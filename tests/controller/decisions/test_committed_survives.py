"""Random decisions beside a model of the data: a leader that was elected cleanly holds all that is committed (invariant 5), and
a partition whose replicas are all there, with all their records, has a leader.

Brokers are fenced, unfenced, crash and lose their tail, lose a log directory for good, and come back with their data or
without. One broker at a time may have lost something, until it is in sync again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest

from ottla.controller.decisions.alter_partition import alter_partition
from ottla.controller.decisions.brokers import offline_directories_records, register_broker
from ottla.controller.decisions.configs import ConfigOp
from ottla.controller.decisions.directories import assign_replicas_to_directories
from ottla.controller.decisions.elections import return_to_preferred_leaders
from ottla.controller.decisions.eligible import after_elrs
from ottla.controller.decisions.reassignment import alter_partition_reassignments
from ottla.controller.metadata.configs import ResourceType
from ottla.controller.metadata.topics import PartitionRegistration
from ottla.protocol.features import supported_levels
from ottla.protocol.messages import alter_partition as alter
from ottla.protocol.messages import assign_replicas_to_dirs as assign
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.broker_registration import BrokerRegistrationRequest
from ottla.protocol.messages.shared_structs import Feature, Listener, PartitionIndex
from tests.controller.harness import CLUSTER_ID, DecisionHarness, directory, topic_id
from tests.effort import seeds
from tests.histories import Mutant, assert_noticed, draw, play
from tests.sim.mutants import CONTROLLER

SEEDS, STEPS = seeds(100, long=300), 250
MUTANTS = ("reassignment-does-not-wait", "unclean-stays-eligible")

TOPIC, BROKERS = "orders", range(1, 6)
#: The events, each with its weight.
EVENTS = {
    "append": 2,
    "replicate": 2,
    "commit": 1,
    "shrink": 1,
    "expand": 1,
    "fence": 2,
    "unfence": 2,
    "crash": 1,
    "restart": 1,
    "directory": 1,
    "min_isr": 1,
    "reassign": 1,
    "cancel": 1,
    "prefer": 1,
}


class Walk:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.cluster = DecisionHarness(brokers=0)
        for broker_id in BROKERS:
            self.cluster.broker(broker_id, directories=2)
        self.cluster.topic(TOPIC, "1 2 3", min_isr=2)
        self.logs: dict[int, list[tuple[int, float]]] = {broker_id: [] for broker_id in BROKERS}
        self.committed: list[tuple[int, float]] = []
        self.directories = {broker_id: [directory(broker_id, 1), directory(broker_id, 2)] for broker_id in BROKERS}
        self.lossy: int | None = None
        #: By broker: the leader epoch and the end of its log, as the leader of that epoch knows them.
        self.fetched: dict[int, tuple[int, int]] = {}
        self.trace: list[str] = []
        self.led: Counter[str] = Counter()

    @property
    def partition(self) -> PartitionRegistration:
        return self.cluster.partition(TOPIC)

    def is_fenced(self, broker_id: int) -> bool:
        return self.cluster.image.cluster.brokers[broker_id].fenced

    def run(self, steps: int) -> None:
        for _ in range(steps):
            before = self.partition
            event = draw(self.rng, EVENTS)
            broker_id = self.rng.choice(BROKERS)
            getattr(self, f"_{event}")(broker_id)
            self.trace.append(f"{event} {broker_id}: {self.cluster.show(TOPIC)}, {len(self.committed)} committed")
            for gone in set(before.replicas) - set(self.partition.replicas):
                self.logs[gone] = []
            self._check(before)

    def _check(self, before: PartitionRegistration) -> None:
        after = self.partition
        if self.lossy is None and not any(map(self.is_fenced, after.replicas)):
            assert after.leader >= 0, "\n".join([*self.trace[-12:], "no leader, and no replica has lost anything"])
        if (after.leader, after.leader_epoch) == (before.leader, before.leader_epoch) or after.leader < 0:
            return
        log = self.logs[after.leader]
        if after.leader_recovery_state:
            self.led["unclean"] += 1
            self.committed = [mine for mine, its in zip(self.committed, log, strict=False) if mine == its]
            self._alter([after.leader])
        else:
            self.led["clean"] += 1
            assert log[: len(self.committed)] == self.committed, "\n".join(
                [*self.trace[-12:], f"{after.leader} leads with {len(log)} of {len(self.committed)}"]
            )

    # Data

    def _append(self, broker_id: int) -> None:
        p = self.partition
        if p.leader > 0:
            self.logs[p.leader].append((p.leader_epoch, self.rng.random()))

    def _replicate(self, broker_id: int) -> None:
        p = self.partition
        if p.leader > 0 and p.leader != broker_id in p.replicas and not self.is_fenced(broker_id):
            self.logs[broker_id] = list(self.logs[p.leader])  # truncated, and caught up
            self.fetched[broker_id] = (p.leader_epoch, len(self.logs[broker_id]))

    def _commit(self, broker_id: int) -> None:
        p = self.partition
        if p.leader < 0 or len(p.isr) < self._min_isr_now():
            return
        known = [self.fetched.get(other, (-1, 0)) for other in p.isr if other != p.leader]
        ends = [end if epoch == p.leader_epoch else 0 for epoch, end in known]
        end = min([len(self.logs[p.leader]), *ends])
        if end > len(self.committed):
            self.committed = self.logs[p.leader][:end]

    def _min_isr_now(self) -> int:
        wanted = int(self.cluster.image.configs.for_topic(TOPIC)["min.insync.replicas"])
        return min(wanted, len(self.partition.replicas))

    # The leader's wishes

    def _shrink(self, broker_id: int) -> None:
        p = self.partition
        if p.leader > 0 and len(p.isr) > 1:
            out = self.rng.choice([each for each in p.isr if each != p.leader])
            self._alter([each for each in p.isr if each != out])

    def _expand(self, broker_id: int) -> None:
        p = self.partition
        if p.leader < 0 or broker_id not in p.replicas or broker_id in p.isr:
            return
        if self.fetched.get(broker_id) == (p.leader_epoch, len(self.logs[p.leader])):
            self._alter([*p.isr, broker_id])

    def _alter(self, isr: Sequence[int]) -> None:
        p = self.partition
        wanted = alter.PartitionDataRequest(
            partition_index=0,
            leader_epoch=p.leader_epoch,
            partition_epoch=p.partition_epoch,
            leader_recovery_state=0,
            new_isr_with_epochs=[alter.BrokerState(broker_id=b, broker_epoch=self.cluster.epoch(b)) for b in isr],
        )
        topic = alter.TopicDataRequest(topic_id=topic_id(TOPIC), partitions=[wanted])
        request = alter.AlterPartitionRequest(
            broker_id=p.leader, broker_epoch=self.cluster.epoch(p.leader), topics=[topic]
        )
        self.cluster.decide(alter_partition(self.cluster.state, request))

    # Brokers

    def _fence(self, broker_id: int) -> None:
        if not self.is_fenced(broker_id):
            self.cluster.fence(broker_id)

    def _unfence(self, broker_id: int) -> None:
        if self.is_fenced(broker_id):
            self.cluster.unfence(broker_id)
            self._report_directory(broker_id)

    def _restart(self, broker_id: int) -> None:
        if self.is_fenced(broker_id):
            self._register(broker_id, cleanly=True)

    def _crash(self, broker_id: int) -> None:
        if self._may_lose(broker_id):
            self.logs[broker_id] = self.logs[broker_id][: self.rng.randint(0, len(self.logs[broker_id]))]
            self._register(broker_id, cleanly=False)

    def _directory(self, broker_id: int) -> None:
        """Lose the directory with the replica, while the broker runs or between two clean stops."""
        p = self.partition
        if broker_id not in p.replicas or len(self.directories[broker_id]) < 2 or not self._may_lose(broker_id):
            return
        lost = p.directory(broker_id)
        self.logs[broker_id] = []
        self.fetched.pop(broker_id, None)
        self.directories[broker_id] = [each for each in self.directories[broker_id] if each != lost]
        if self.rng.random() < 0.5 and not self.is_fenced(broker_id):
            self.cluster.replay(offline_directories_records(self.cluster.state, broker_id, [lost]))
            if self.rng.random() < 0.5:
                return
        self._fence(broker_id)
        self._register(broker_id, cleanly=True)

    def _may_lose(self, broker_id: int) -> bool:
        if self.lossy is not None and self.lossy in self.partition.isr:
            self.lossy = None
        if self.lossy not in (None, broker_id):
            return False
        self.lossy = broker_id
        return True

    def _register(self, broker_id: int, *, cleanly: bool) -> None:
        self.fetched.pop(broker_id, None)
        request = BrokerRegistrationRequest(
            broker_id=broker_id,
            cluster_id=CLUSTER_ID,
            incarnation_id=self.rng.randbytes(16),
            listeners=[Listener(name="PLAINTEXT", host="localhost", port=9000 + broker_id)],
            features=[
                Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
                for name, (lowest, highest) in supported_levels().items()
            ],
            log_dirs=list(self.directories[broker_id]),
            previous_broker_epoch=self.cluster.epoch(broker_id) if cleanly else -1,
        )
        new_epoch = 1_000 + self.cluster.offset
        self.cluster.decide(register_broker(self.cluster.state, request, new_epoch, has_session=False))
        self.cluster.unfence(broker_id)
        self._report_directory(broker_id)

    def _report_directory(self, broker_id: int) -> None:
        """Assign the replica to another directory if the one that the controller knows is gone, as a broker does that makes a
        new log.
        """
        p = self.partition
        if broker_id not in p.replicas or p.directory(broker_id) in self.directories[broker_id]:
            return
        partition = PartitionIndex(partition_index=0)
        topic = assign.TopicDataRequest(topic_id=topic_id(TOPIC), partitions=[partition])
        data = assign.DirectoryDataRequest(id=self.directories[broker_id][0], topics=[topic])
        request = assign.AssignReplicasToDirsRequest(
            broker_id=broker_id, broker_epoch=self.cluster.epoch(broker_id), directories=[data]
        )
        self.cluster.decide(assign_replicas_to_directories(self.cluster.state, request))

    # Operators

    def _min_isr(self, broker_id: int) -> None:
        # Copies on min ISR nodes are only promised for two and more.
        value = str(self.rng.choice((2, 2, 3)))
        change = (ResourceType.TOPIC, TOPIC, {"min.insync.replicas": (ConfigOp.SET, value)})
        alter_configs = self.cluster.configs.incremental_alter
        decision = after_elrs(self.cluster.state, lambda state: alter_configs(state, [change], validate_only=False))
        self.cluster.decide(decision)

    def _reassign(self, broker_id: int) -> None:
        self._move(self.rng.sample(BROKERS, self.rng.choice((2, 3, 3))))

    def _cancel(self, broker_id: int) -> None:
        self._move(None)

    def _move(self, replicas: list[int] | None) -> None:
        if self.rng.random() < 0.7:
            return
        row = ReassignablePartition(partition_index=0, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=TOPIC, partitions=[row])])
        self.cluster.decide(alter_partition_reassignments(self.cluster.state, request))

    def _prefer(self, broker_id: int) -> None:
        self.cluster.decide(return_to_preferred_leaders(self.cluster.state))


def test_a_leader_elected_cleanly_holds_all_that_is_committed() -> None:
    led: Counter[str] = Counter()

    def run(seed: int) -> None:
        walk = Walk(seed)
        walk.run(STEPS)
        led.update(walk.led)

    play(run, range(SEEDS))
    assert led["clean"] > 2 * SEEDS


def is_noticed(name: str, seed: int) -> bool:
    return Mutant(name, CONTROLLER[name].patches).is_noticed(lambda: Walk(seed).run(STEPS))


@pytest.mark.parametrize("name", MUTANTS)
def test_the_walk_notices(name: str) -> None:
    assert_noticed("walks", name, is_noticed)
