"""Histories of share groups, and what Apache Kafka 4.3.1 assigned to their members at each step.

    .venv/bin/python -m tests.broker.groups.modern.kafkas_shares --port 39092      records them again

The broker has `group.share.assignment.interval.ms=0`. A step is a line of the file: what a member does, and what all have then.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import NamedTuple

from ottla.protocol.api import ApiKey
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.testing.connection import ClusterConnection

FILE = Path(__file__).with_name("kafkas_shares.txt")
HISTORIES = 40
STEPS = 8
#: Some names sort otherwise by Java's hash codes than by their letters, and no two lie in the same of 16 or of 32 buckets.
MEMBERS = ("a", "c", "p", "h", "member-1", "z")

#: Topic -> partitions.
Share = dict[str, list[int]]


class Step(NamedTuple):
    """A step of one member. `topics` is empty if it leaves, and `shares` are those of all members after the step."""

    member: str
    topics: tuple[str, ...]
    shares: dict[str, Share]


class History(NamedTuple):
    partitions: dict[str, int]
    steps: list[Step]


def histories() -> Iterator[History]:
    for line in FILE.read_text().splitlines():
        head, *steps = line.split(" | ")
        yield History({name: int(count) for name, count in _pairs(head)}, [_step(text) for text in steps])


def _step(text: str) -> Step:
    what, _, then = text.partition(" -> ")
    member, _, topics = what.partition(":")
    shares: dict[str, Share] = {}
    for each, share in _pairs(then):
        parts = [part for part in share.split(",") if part]
        shares[each] = {}
        for part in parts:
            shares[each].setdefault(part[0], []).append(int(part[1:]))
    return Step(member, tuple(topics), shares)


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for pair in text.split():
        name, _, value = pair.partition("=")
        yield name, value


def _written(history: History) -> str:
    head = " ".join(f"{name}={count}" for name, count in history.partitions.items())
    return " | ".join([head, *map(_line, history.steps)])


def _line(step: Step) -> str:
    shares = (
        f"{member}=" + ",".join(f"{topic}{index}" for topic in sorted(share) for index in share[topic])
        for member, share in sorted(step.shares.items())
    )
    return f"{step.member}:{''.join(step.topics)} -> {' '.join(shares)}"


# ---- recording


class Group:
    """A share group of the broker, with topics of its own."""

    def __init__(self, connection: ClusterConnection, name: str, partitions: Mapping[str, int]) -> None:
        self._connection = connection
        self._name = name
        self._epochs: dict[str, int] = {}
        new = [CreatableTopic(f"{name}-{topic}", count, 1) for topic, count in partitions.items()]
        made = connection.request(CreateTopicsRequest(new, 10_000), ApiKey.CREATE_TOPICS, 7)
        assert not any(topic.error_code for topic in made.topics), made
        time.sleep(0.5)  # until the broker knows the topics
        self._beat("first", partitions)
        deadline = time.monotonic() + 30
        while self._shares()["first"] != {topic: [*range(count)] for topic, count in partitions.items()}:
            assert time.monotonic() < deadline, "the partitions are initialized"
            time.sleep(0.1)
        self._beat("first", ())

    def take(self, member: str, topics: Iterable[str]) -> dict[str, Share]:
        """Give the member these topics, or let it leave if there are none; return the shares of all members."""
        self._beat(member, topics)
        return self._shares()

    def _beat(self, member: str, topics: Iterable[str] | None = None) -> None:
        names = None if topics is None else [f"{self._name}-{topic}" for topic in topics]
        epoch = -1 if names == [] else self._epochs.get(member, 0)
        request = ShareGroupHeartbeatRequest(self._name, member, epoch, None, names or None)
        answer = self._connection.request(request, ApiKey.SHARE_GROUP_HEARTBEAT, 1)
        assert not answer.error_code, answer
        self._epochs[member] = answer.member_epoch
        if epoch == -1:
            del self._epochs[member]

    def _shares(self) -> dict[str, Share]:
        for member in self._epochs:
            self._beat(member)  # the member takes its target
        request = ShareGroupDescribeRequest([self._name])
        (group,) = self._connection.request(request, ApiKey.SHARE_GROUP_DESCRIBE, 1).groups
        return {
            member.member_id: {
                each.topic_name[-1]: sorted(each.partitions)
                for each in sorted(member.assignment.topic_partitions, key=lambda each: each.topic_name)
            }
            for member in group.members
        }


def _played(connection: ClusterConnection, name: str, chance: Random) -> History:
    partitions = {topic: chance.randrange(1, 7) for topic in "uvw"[: chance.randrange(1, 4)]}
    is_one_subscription = chance.random() < 0.4
    group = Group(connection, name, partitions)
    present: set[str] = set()
    steps = []
    for _ in range(STEPS):
        member = chance.choice(MEMBERS)
        topics = tuple(partitions)
        if member in present and chance.random() < 0.6:
            topics = ()
        elif not is_one_subscription:
            topics = tuple(sorted(chance.sample(topics, chance.randrange(1, len(topics) + 1))))
        (present.add if topics else present.remove)(member)
        steps.append(Step(member, topics, group.take(member, topics)))
    return History(partitions, steps)


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.broker.groups.modern.kafkas_shares", description=__doc__)
    parser.add_argument("--port", type=int, default=39092)
    port = parser.parse_args().port
    with ClusterConnection("127.0.0.1", port, None) as connection:
        run = int(time.time())
        played = (_played(connection, f"shares-{run}-{seed}", Random(f"shares {seed}")) for seed in range(HISTORIES))
        FILE.write_text("\n".join(map(_written, played)) + "\n")


if __name__ == "__main__":
    main()
