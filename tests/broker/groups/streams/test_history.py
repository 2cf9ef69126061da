"""Random histories of a streams group: one owner of each active task, epochs that never fall, and rest at the end.

Members join, beat, close tasks late, fall silent, leave, come back, several in one process; topics grow and go; internal topics
come late; standby tasks are switched on and off; the coordinator moves; its log is compacted. After each step memory is what the
log says (invariants 21, 37, 38 and 42).
"""

from __future__ import annotations

from copy import copy
from random import Random
from typing import Any

import pytest

from ottla.broker.groups import heartbeats
from ottla.broker.groups.group_config import GroupSettings
from ottla.broker.groups.modern.modern_group import ModernGroupState
from ottla.broker.groups.modern.topics import TopicHashes
from ottla.broker.groups.streams import streams_heartbeat, streams_step
from ottla.broker.groups.streams.streams_group import Holdings, StreamsGroup, TasksTuple
from ottla.protocol.errors import ErrorCode
from tests.broker.groups.harness import GroupCoordinatorHarness
from tests.broker.groups.replayed import compacted, replayed
from tests.broker.groups.streams.member import StreamsMember
from tests.broker.groups.streams.topologies import word_count
from tests.effort import seeds
from tests.histories import Mutant, Patch, assert_noticed, parts, play

STEPS = 50
REJOIN = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)


class History:
    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.harness = GroupCoordinatorHarness()
        self.harness.topics = {"t": 3}
        if seed % 2:
            # In every other history the application ran before.
            self.harness.topics |= {"app-repartition": 3, "app-changelog": 3}
            self.harness.streams_settings = GroupSettings(initial_rebalance_delay_ms=0)
        self.members: list[StreamsMember] = []
        self.epochs: dict[str, int] = {}
        self.group_epoch = 0
        self.made = 0
        self.missing: dict[str, int] = {}

    def run(self) -> None:
        for _ in range(STEPS):
            steps = (self.join, self.beat, self.beat, self.beat, self.beat, self.leave, self.crash, self.zombie)
            self.chance.choice((*steps, self.pass_time, self.create, self.grow, self.standbys, self.move))()
            self.check()
        self.come_to_rest()

    def join(self) -> None:
        if len(self.members) < 6:
            self.made += 1
            process = self.chance.choice("ppq")
            self.members.append(StreamsMember(self.harness, f"m{self.made}", word_count("t"), process=process))
            self.send(self.members[-1])

    def beat(self) -> None:
        if self.members:
            self.harness.clock.advance(self.chance.choice((0, 500, 1_500)))
            self.send(self.chance.choice(self.members), late=self.chance.random() < 0.3)

    def send(self, member: StreamsMember, late: bool = False) -> None:
        before = member.owned
        answer = member.beat(full=self.chance.random() < 0.4)
        self.missing |= member.missing
        if answer.error_code in REJOIN:
            member.epoch, member.owned = 0, TasksTuple()
            return
        assert answer.error_code == ErrorCode.NONE, answer
        assert answer.member_epoch >= self.epochs.get(member.name, 0), "an epoch fell"
        self.epochs[member.name] = answer.member_epoch
        if late:
            # The member still owns its former tasks: no other member may get them.
            member.owned = TasksTuple(*map(_union, before, member.owned))

    def leave(self) -> None:
        if self.members:
            member = self.members.pop(self.chance.randrange(len(self.members)))
            if member.epoch > 0:
                member.leave()

    def crash(self) -> None:
        if self.members and self.chance.random() < 0.5:
            self.members.pop(self.chance.randrange(len(self.members)))

    def zombie(self) -> None:
        """Send a heartbeat with an epoch that is long over."""
        for member in self.members:
            known = None if self.group is None else self.group.members.get(member.name)
            if known is not None and known.current.previous_epoch > 1:
                answer = copy(member).beat(known.current.previous_epoch - 1)
                assert answer.error_code == ErrorCode.FENCED_MEMBER_EPOCH, "an old epoch is served"

    def pass_time(self) -> None:
        self.harness.clock.advance(self.chance.choice((1, 1_000, 5_000, 46_000)))

    def create(self) -> None:
        """Create the internal topics that members found missing."""
        self.harness.topics |= self.missing
        self.missing = {}

    def grow(self) -> None:
        """Grow all topics of the application, as their owner would do it."""
        if self.chance.random() < 0.3:
            self.harness.topics = {name: count + 1 for name, count in self.harness.topics.items()}
            self.missing = {}

    def standbys(self) -> None:
        replicas = self.chance.choice((0, 1, 1))
        self.harness.streams_settings = self.harness.streams_settings._replace(standby_replicas=replicas)

    def move(self) -> None:
        self.harness.restart()

    @property
    def group(self) -> StreamsGroup | None:
        return self.harness.shard.find(StreamsGroup, "g")

    def check(self) -> None:
        group = self.group
        if group is None:
            return
        assert group.epoch >= max(self.group_epoch, group.assignment_epoch)
        self.group_epoch = group.epoch
        held = [
            (subtopology, partition)
            for member in group.members.values()
            for holdings in (member.current.assigned, member.current.pending_revocation)
            for subtopology, partitions in holdings.active.items()
            for partition in partitions
        ]
        assert len(held) == len(set(held)), "two members hold one active task"
        in_process = [
            (member.metadata.process_id, subtopology, partition)
            for member in group.members.values()
            for holdings in (member.current.assigned, member.current.pending_revocation)
            for kind in holdings.tasks
            for subtopology, partitions in kind.items()
            for partition in partitions
        ]
        assert len(in_process) == len(set(in_process)), "a process has a task twice"
        used = [
            (subtopology, partition)
            for member in self.members
            if member.name in group.members and member.epoch > 0
            for subtopology, partitions in member.owned.active.items()
            for partition in partitions
        ]
        assert len(used) == len(set(used)), "two members run one active task"
        records = self.harness.records()
        for log in (records, compacted(records)):
            assert view(replayed(log).group(StreamsGroup, "g")) == view(group)

    def come_to_rest(self) -> None:
        if not self.members:
            self.join()
        for _ in range(20):
            self.harness.clock.advance(2_000)
            for member in self.members:
                self.send(member)
            self.create()
            self.check()
        group = self.group
        assert group is not None
        names = {member.name for member in self.members}
        for _ in range(30):
            if group.members.keys() != names:  # members that have fallen silent still have a session
                self.harness.clock.advance(2_000)
                for member in self.members:
                    self.send(member)
        for _ in range(10):
            self.harness.clock.advance(2_000)
            for member in self.members:
                self.send(member)
        self.check()
        assert group.state is ModernGroupState.STABLE, group.state
        owned = [(s, p) for member in self.members for s, ps in member.owned.active.items() for p in ps]
        count = self.harness.topics["t"]
        assert sorted(owned) == sorted((s, p) for s in "01" for p in range(count)), "a task has no owner"


def _union(some: Any, others: Any) -> Any:
    return {name: some.get(name, frozenset()) | others.get(name, frozenset()) for name in {**some, **others}}


def view(group: StreamsGroup) -> dict[str, Any]:
    """Return the state of the group that the log has to determine."""
    return {
        "epochs": (group.epoch, group.assignment_epoch, group.assignment_timestamp_ms, group.metadata_hash),
        "topology": (None if group.topology is None else group.topology.value, group.validated_topology_epoch),
        "configs": group.assignment_configs,
        "members": {member_id: (member.metadata, member.current) for member_id, member in group.members.items()},
        "targets": group.targets,
    }


MUTANTS: dict[str, Patch] = {
    "an active task is given before it is closed": (StreamsGroup, "is_free_active", lambda *given: True),
    "a member is believed to have closed everything": (Holdings, "has_any_of", lambda self, owned: False),
    "a heartbeat of any epoch is served": (streams_heartbeat, "_validate_epoch", lambda current, request: None),
    "what a member closes stays its own": (StreamsGroup, "_release", lambda self, member_id, holdings: None),
    "a target is never computed": (heartbeats, "target_records", lambda *given: []),
    "what others closed is never given": (
        streams_step,
        "_given",
        lambda target, kept, active, copy: (TasksTuple(), True),
    ),
    "the metadata's changes are not seen": (TopicHashes, "of_group", lambda self, topics, names: 1),
}


def run(seed: int) -> None:
    History(seed).run()


def is_noticed(name: str, seed: int) -> bool:
    return Mutant(name, (MUTANTS[name],)).is_noticed(lambda: run(seed))


@pytest.mark.parametrize("name", MUTANTS)
def test_a_known_mistake_is_noticed(name: str) -> None:
    assert_noticed("one streams group", name, is_noticed)


@pytest.mark.parametrize("seeds", parts(seeds(40, long=400), 50), ids=str)
def test_nothing_promised_is_broken_by_these_seeds(seeds: range) -> None:
    play(run, seeds)
