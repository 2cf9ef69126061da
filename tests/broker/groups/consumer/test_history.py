"""Random histories of a consumer group: one owner of each partition, epochs that never fall, and rest at the end.

Members join, by names or regular expressions, by the consumer or the classic protocol; they beat, give partitions up late, fall
silent, leave, come back; topics grow and go; the coordinator moves; its log is compacted. After each step memory is what the log
says (invariants 21, 37, 38 and 42).
"""

from __future__ import annotations

from collections import Counter
from copy import copy
from random import Random
from re import fullmatch
from typing import Any

import pytest

from ottla.broker.coordinator.outcome import CoordinatorRecord
from ottla.broker.groups import heartbeats
from ottla.broker.groups.consumer import (
    classic_members,
    consumer_heartbeat,
    regexes,
)
from ottla.broker.groups.consumer.consumer_group import ConsumerGroup, ConsumerGroupMember
from ottla.broker.groups.modern.modern_group import ModernGroupState
from ottla.protocol.errors import ErrorCode
from tests.broker.groups.consumer.classic_member import ClassicMember
from tests.broker.groups.consumer.member import ConsumerMember
from tests.broker.groups.harness import GroupCoordinatorHarness
from tests.broker.groups.replayed import compacted, replayed
from tests.effort import seeds
from tests.histories import Mutant, Patch, assert_noticed, each_mistake, parts, play

STEPS = 60
REJOIN = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)


class History:
    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        # A group of classic members alone stays a consumer group: classic groups have random histories of their own.
        self.harness = GroupCoordinatorHarness(consumer_migration_policy="upgrade")
        self.harness.topics = {"t": 3, "u": 5}
        self.members: list[ConsumerMember | ClassicMember] = []
        self.epochs: dict[str, int] = {}
        self.group_epoch = 0
        self.made = 0

    def run(self) -> None:
        for _ in range(STEPS):
            steps = (self.join, self.beat, self.beat, self.beat, self.beat, self.leave, self.pause, self.zombie)
            self.chance.choice((*steps, self.pass_time, self.topics, self.move))()
            self.check()
        self.come_to_rest()

    def join(self) -> None:
        if len(self.members) < 6:
            self.made += 1
            instance = f"i{self.made}" if self.chance.random() < 0.3 else None
            topics = self.chance.choice(("t", "u", "t,u"))
            name, group, kind = f"m{self.made}", self.group, self.chance.random()
            member: ConsumerMember | ClassicMember
            if kind < 0.2 and group is not None and any(not each.is_classic for each in group.members.values()):
                member = ClassicMember(self.harness, name, topics=topics)
            else:
                regex = self.chance.choice(("[tu]", "t|v", "[^t]")) if kind < 0.5 else None
                member = ConsumerMember(self.harness, name, topics=topics, regex=regex, instance=instance)
            self.members.append(member)
            self.send(member)

    def beat(self) -> None:
        if self.members:
            self.send(self.chance.choice(self.members), late=self.chance.random() < 0.2)

    def send(self, member: ConsumerMember | ClassicMember, late: bool = False) -> None:
        before = {topic: set(partitions) for topic, partitions in member.owned.items()}
        answer = member.beat(full=self.chance.random() < 0.1)
        if answer.error_code in REJOIN:
            if isinstance(member, ConsumerMember):
                member.epoch, member.owned = 0, {}
            return
        assert answer.error_code == ErrorCode.NONE, answer
        assert answer.member_epoch >= self.epochs.get(member.member_id, 0), "an epoch fell"
        self.epochs[member.member_id] = answer.member_epoch
        if late and isinstance(member, ConsumerMember):
            # The member still owns its former partitions: no other member may get them.
            for topic, partitions in before.items():
                member.owned.setdefault(topic, set()).update(partitions)

    def pause(self) -> None:
        """Replace the process of a static member by another one."""
        for index, member in enumerate(self.members):
            if member.instance is not None and member.epoch > 0 and not member.leave(-2).error_code:
                self.made += 1
                self.members[index] = ConsumerMember(
                    self.harness, f"m{self.made}", topics=member.topics, regex=member.regex, instance=member.instance
                )
                break

    def leave(self) -> None:
        if self.members:
            member = self.members.pop(self.chance.randrange(len(self.members)))
            if member.epoch > 0:
                member.leave(-1)

    def zombie(self) -> None:
        """Send a heartbeat with an epoch that is long over."""
        for member in self.consumers:
            known = None if self.group is None else self.group.members.get(member.member_id)
            if known is not None and known.current.previous_epoch > 1:
                answer = copy(member).beat(known.current.previous_epoch - 1)
                assert answer.error_code == ErrorCode.FENCED_MEMBER_EPOCH, "an old epoch is served"

    def pass_time(self) -> None:
        self.harness.clock.advance(self.chance.choice((1, 500, 1_000, 5_000, 46_000)))

    def topics(self) -> None:
        name = self.chance.choice("tuv")
        if self.chance.random() < 0.1:
            self.harness.topics.pop(name, None)
        else:
            self.harness.topics[name] = self.harness.topics.get(name, 0) + 1

    def move(self) -> None:
        self.harness.restart()

    @property
    def consumers(self) -> list[ConsumerMember]:
        return [member for member in self.members if isinstance(member, ConsumerMember)]

    @property
    def group(self) -> ConsumerGroup | None:
        return self.harness.shard.find(ConsumerGroup, "g")

    def check(self, *, of_log: bool = True) -> None:
        group = self.group
        if group is None:
            return
        assert group.epoch >= max(self.group_epoch, group.assignment_epoch)
        self.group_epoch = group.epoch
        names = Counter(name for m in group.members.values() for name in m.metadata.subscribed_topic_names)
        assert group.names == names
        held = [
            (topic_id, partition)
            for member in group.members.values()
            for holdings in (member.current.assigned, member.current.pending_revocation)
            for topic_id, partitions in holdings.items()
            for partition in partitions
        ]
        assert len(held) == len(set(held)), "two members hold one partition"
        used = [
            (topic, partition)
            for member in self.members
            if member.member_id in group.members and member.epoch > 0
            for topic, partitions in member.owned.items()
            for partition in partitions
        ]
        assert len(used) == len(set(used)), "two members use one partition"
        records = self.harness.records() if of_log else []
        for log in (records, compacted(records)) if of_log else ():
            assert view(replayed(log).group(ConsumerGroup, "g")) == view(group)

    def come_to_rest(self) -> None:
        if self.members and not self.consumers:
            # Members that have lost their places come back only to a consumer group.
            self.members.append(ConsumerMember(self.harness, "last"))
        self.members.sort(key=lambda member: isinstance(member, ClassicMember))
        for _ in range(30):
            self.harness.clock.advance(2_000)
            for member in self.members:
                self.send(member)
            self.check(of_log=False)
        self.check()
        group = self.group
        if group is not None:
            assert group.state is (ModernGroupState.STABLE if self.members else ModernGroupState.EMPTY)
        wanted = {topic for member in self.members for topic in self.topics_of(member)}
        owned = [(t, p) for member in self.members for t, partitions in member.owned.items() for p in partitions]
        assert sorted(owned) == sorted((t, p) for t in wanted for p in range(self.harness.topics.get(t, 0)))

    def topics_of(self, member: ConsumerMember | ClassicMember) -> set[str]:
        if member.regex is None:
            return set(member.topics.split(","))
        return {name for name in self.harness.topics if fullmatch(member.regex, name)}


def view(group: ConsumerGroup) -> dict[str, Any]:
    """Return the state of the group that the log has to determine."""
    return {
        "epochs": (group.epoch, group.assignment_epoch, group.assignment_timestamp_ms, group.metadata_hash),
        "members": {member_id: (member.metadata, member.current) for member_id, member in group.members.items()},
        "static": group.static_members,
        "targets": group.targets,
        "regexes": group.regexes,
    }


_replacement = ConsumerGroup.replacement


def replacement_without_tombstones(
    group: ConsumerGroup, former: ConsumerGroupMember, member_id: str
) -> list[CoordinatorRecord]:
    return [(key, value) for key, value in _replacement(group, former, member_id) if value is not None]


MUTANTS: dict[str, Patch] = {
    "a partition is given before it is given up": (ConsumerGroup, "is_free", lambda self, topic_id, partition: True),
    "a member is believed to have given everything up": (consumer_heartbeat, "_has_any", lambda owned, revoked: False),
    "a heartbeat of any epoch is served": (consumer_heartbeat, "_validate_epoch", lambda current, request: None),
    "what a member gives up stays its own": (ConsumerGroup, "_release", lambda self, member_id, holdings: None),
    "a target is computed once": (
        heartbeats,
        "assign_if_due",
        lambda shard, now_ms, group, plan, go_on, *, may_change=False: go_on(),
    ),
    "a regular expression is resolved once": (regexes, "REFRESH_MIN_INTERVAL_MS", 10**9),
    "a classic member is never sent to join again": (classic_members, "_has_to_join", lambda group, member: False),
    "a static member's former id stays": (ConsumerGroup, "replacement", replacement_without_tombstones),
}


def run(seed: int) -> None:
    History(seed).run()


def is_noticed(name: str, seed: int) -> bool:
    return Mutant(name, (MUTANTS[name],)).is_noticed(lambda: run(seed))


@pytest.mark.parametrize("name", each_mistake(MUTANTS))
def test_a_known_mistake_is_noticed(name: str) -> None:
    assert_noticed("one consumer group", name, is_noticed)


@pytest.mark.parametrize("seeds", parts(seeds(50, long=400), 50), ids=str)
def test_nothing_promised_is_broken_by_these_seeds(seeds: range) -> None:
    play(run, seeds)
