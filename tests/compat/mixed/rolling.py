"""A whole cluster of three changes its kind under load, node by node, with kill -9 of either kind in each step, and back.

Clients of every kind live through all of it: idempotent producers, transactions, keys of a compacted topic, groups of both
protocols, a share group and an application of Kafka Streams. Their judges are those of tests/chaos.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.chaos import group_history
from tests.chaos.history import TOPIC, Load, create_topic, judge, read_everything
from tests.chaos.loads import KeyedLoad, TransactionalLoad
from tests.chaos.share_history import ShareGroup
from tests.chaos.word_counts import QUICK, WordCounts
from tests.compat.mixed.adoption import raise_features
from tests.compat.mixed.nodes import KAFKA, KAFKA_OLDEST, OTTLA, Mixed, Node, NotSo, is_kafka

IDS = (1, 2, 3)
#: Of each producer: there is always something under way, and two processors are enough for all.
PER_SECOND = 150
INTERNAL = ("__consumer_offsets", "__transaction_state")
PROPERTIES = {
    "offsets_topic_replication_factor": 3,
    "transaction_state_log_replication_factor": 3,
    "transaction_state_log_min_isr": 2,
    "share_coordinator_state_topic_replication_factor": 3,
    "share_coordinator_state_topic_min_isr": 2,
    "share_coordinator_state_topic_num_partitions": 3,
    "log_cleaner_backoff_ms": 500,
    **QUICK,
}
SEEN_SECONDS_MAX = 120
CHAOS_SECONDS = 3_600


class Users:
    """All clients, and what is wrong with what they saw."""

    def __init__(self, mixed: Mixed, seed: int) -> None:
        self._mixed = mixed
        bootstrap = ",".join(node.bootstrap for node in mixed.nodes.values())
        self.bootstrap = bootstrap
        create_topic(bootstrap, 3, min_insync_replicas="2")
        self.loads = [Load(bootstrap, number, per_second=PER_SECOND) for number in range(2)]
        self.groups = [group_history.Group(bootstrap, 2)]
        self.transactions, self.keyed = TransactionalLoad(bootstrap, seed), KeyedLoad(bootstrap, seed)
        self.topics = [TOPIC, self.transactions.topic, self.keyed.topic, *INTERNAL]
        self.shares: list[ShareGroup] = []
        self.counts: list[WordCounts] = []

    def add_newer(self) -> None:
        """Clients of the protocols that need features of 4.0 to 4.2."""
        self.groups.append(group_history.Group(self.bootstrap, 2, name="newer", settings=group_history.CONSUMER))
        self.shares.append(ShareGroup(self.bootstrap, self._mixed.serving()[0].port))
        self.counts.append(WordCounts(self.bootstrap, "words", self._mixed.directory, replicas=3))
        self.counts[0].start()
        self.topics += [self.shares[0].topic, self.counts[0].input, self.counts[0].output]

    def wait_in_sync(self) -> None:
        for topic in self.topics:
            self._mixed.wait_isr(topic, IDS)
        self._mixed.wait_leader()

    def go_on(self, rng: random.Random) -> None:
        """Until each has got something done: the others carry on alone."""
        for load in self.loads:
            load.wait_for_acknowledgements(rng.randint(1, 200))
        self.transactions.wait_for_commits(rng.randint(1, 3))
        for share in self.shares:
            share.send(20)
        for counts in self.counts:
            counts.send(20)

    def stop_and_judge(self) -> list[str]:
        self.transactions.wait_for_commits(1)
        for each in (*self.loads, self.transactions, self.keyed):
            each.stop()
        for group in self.groups:
            group.stop(self.loads)
        problems = judge(self.loads, read_everything(self.bootstrap))
        for group in self.groups:
            problems += group.problems[:20]
        problems += self.transactions.judge() + self.keyed.judge()
        for share in self.shares:
            problems += share.stop(SEEN_SECONDS_MAX)
        for counts in self.counts:
            counts.flush()
            try:
                counts.check(SEEN_SECONDS_MAX)
            except AssertionError as wrong:
                problems.append(f"words are not counted once each: {wrong}")
        return problems

    def end(self) -> None:
        for counts in self.counts:
            counts.stop()
        for share in self.shares:
            share.kill()

    def text(self) -> str:
        acknowledged = sum(len(load.acknowledged) for load in self.loads)
        delivered = ", ".join(str(group.delivered) for group in self.groups)
        shared = sum(len(share.values) for share in self.shares)
        words = sum(counts.sent.total() for counts in self.counts)
        return (
            f"{acknowledged} acknowledged, {self.transactions.committed} transactions, {self.keyed.count} keyed records, groups saw"
            f" {delivered}, share group {shared}, {words} words counted"
        )


@contextmanager
def _running(directory: Path, kinds: Sequence[str], seed: int) -> Iterator[tuple[Mixed, Users]]:
    """Three nodes and their users."""
    with Mixed(directory, IDS, **PROPERTIES) as mixed:
        for node_id, kind in zip(IDS, kinds, strict=True):
            mixed.add(kind, node_id, "broker,controller").start()
        mixed.wait_brokers(*IDS)
        users = Users(mixed, seed)
        try:
            yield mixed, users
        finally:
            users.end()


def _judge(users: Users, what: str) -> None:
    problems = users.stop_and_judge()
    print(f"  {what}: {users.text()}", flush=True)
    if problems:
        raise NotSo("; ".join(problems[:5]))


def roll(directory: Path, first: str, seed: int = 1) -> None:
    """From Kafka to Ottla and back; an older Kafka's features are raised once all nodes are Ottla's, and it comes back as 4.3.1."""
    rng, kills = random.Random(seed), Counter[str]()
    with _running(directory, (first,) * 3, seed) as (mixed, users):
        if first == KAFKA:
            users.add_newer()
        users.go_on(rng)
        for kind in (OTTLA, KAFKA):
            for node in rng.sample(list(mixed.nodes.values()), 3):
                users.wait_in_sync()
                change(node, kind)
                users.wait_in_sync()
                kills += kill_either(mixed, users, rng)
            if kind == OTTLA and first != KAFKA:
                raise_features(mixed)
                users.add_newer()
                users.go_on(rng)
        users.wait_in_sync()
        _judge(users, f"{dict(kills)} killed")


def change(node: Node, kind: str) -> None:
    """One node, in order: stop, and start as the other kind."""
    node.stop()
    node.become(kind)
    node.command = ("adopt", "--config", str(node.properties))
    node.start()
    node.mixed.wait_brokers(*IDS)


def kill_either(mixed: Mixed, users: Users, rng: random.Random) -> Counter[str]:
    """kill -9 of one node of each kind that there is, one after the other."""
    kills: Counter[str] = Counter()
    for of_kind in (is_kafka, lambda kind: not is_kafka(kind)):
        nodes = [node for node in mixed.nodes.values() if of_kind(node.kind)]
        if not nodes:
            continue
        victim = rng.choice(nodes)
        victim.kill()
        kills[victim.kind] += 1
        users.go_on(rng)
        victim.start()
        mixed.wait_brokers(*IDS)
        users.wait_in_sync()
    return kills


def chaos(directory: Path, seed: int = 1) -> None:
    """Accidents drawn one after the other for an hour, or OTTLA_MIXED_CHAOS_SECONDS: kills of every role and kind, and changes of kind."""
    rng, accidents = random.Random(seed), Counter[str]()
    ends = time.monotonic() + float(os.environ.get("OTTLA_MIXED_CHAOS_SECONDS", CHAOS_SECONDS))
    with _running(directory, (KAFKA, OTTLA, KAFKA), seed) as (mixed, users):
        users.add_newer()
        while time.monotonic() < ends:
            users.wait_in_sync()
            users.go_on(rng)
            name = rng.choice(list(ACCIDENTS))
            accidents[name] += 1
            ACCIDENTS[name](mixed, users, rng)
            mixed.wait_brokers(*IDS)
        users.wait_in_sync()
        _judge(users, f"{dict(accidents)}")


def _kill(users: Users, rng: random.Random, victim: Node) -> None:
    victim.kill()
    users.go_on(rng)
    victim.start()


def _kill_leader(mixed: Mixed, users: Users, rng: random.Random) -> None:
    _kill(users, rng, mixed.nodes[rng.choice(mixed.partitions(TOPIC))[0]])


def _kill_controller(mixed: Mixed, users: Users, rng: random.Random) -> None:
    _kill(users, rng, mixed.wait_leader())


def _kill_one(mixed: Mixed, users: Users, rng: random.Random) -> None:
    _kill(users, rng, rng.choice(list(mixed.nodes.values())))


def _change_one(mixed: Mixed, users: Users, rng: random.Random, how: Callable[[Node], None]) -> None:
    node = rng.choice(list(mixed.nodes.values()))
    how(node)
    node.become(OTTLA if is_kafka(node.kind) else KAFKA).start()


#: One node at a time. With two or all killed, a batch that an Apache Kafka leader has appended is refused with NOT_ENOUGH_REPLICAS when
#: librdkafka sends it again, and if another partition then has it raise its epoch, the batch is written twice (FINDINGS.md).
Accident = Callable[[Mixed, Users, random.Random], None]
ACCIDENTS: dict[str, Accident] = {
    "kill of a leader": _kill_leader,
    "kill of the controller": _kill_controller,
    "kill of one": _kill_one,
    "change after a stop": partial(_change_one, how=Node.stop),
    "change after a kill": partial(_change_one, how=Node.kill),
}


STEPS: dict[str, Callable[[Path], None]] = {
    "chaos": chaos,
    "roll-newest": partial(roll, first=KAFKA),
    "roll-oldest": partial(roll, first=KAFKA_OLDEST),
}
