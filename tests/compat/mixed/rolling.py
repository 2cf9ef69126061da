"""A whole cluster of three changes its kind under load, node by node, with kill -9 of either kind in each step, and back.

Clients of every kind run all the time: idempotent producers, transactions, keys of a compacted topic, groups of both
protocols, a share group and an application of Kafka Streams. The checks of tests/chaos judge what they saw.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.chaos import group_history
from tests.chaos.history import ONE_IN_FLIGHT, TOPIC, Load, create_topic, judge, read_everything
from tests.chaos.loads import KeyedLoad, TransactionalLoad
from tests.chaos.network import Network
from tests.chaos.share_history import ShareGroup
from tests.chaos.word_counts import QUICK, WordCounts
from tests.compat.mixed.adoption import raise_features
from tests.compat.mixed.nodes import KAFKA, KAFKA_OLDEST, OTTLA, Mixed, Node, NotSo, is_kafka

IDS = (1, 2, 3)
#: The rate of each producer: there is always a request under way, and two processors are enough for all.
PER_SECOND = 150
INTERNAL = ("__consumer_offsets", "__transaction_state")
PROPERTIES = {
    # Internal topics of Kafka Streams have this factor. With one replica they have no leader while its node is away, and Apache
    # Kafka's coordinator drops the marker of such a partition (KAFKA-20734): tests/compat/FINDINGS.md.
    "default_replication_factor": 3,
    "offsets_topic_replication_factor": 3,
    "transaction_state_log_replication_factor": 3,
    "transaction_state_log_min_isr": 2,
    "share_coordinator_state_topic_replication_factor": 3,
    "share_coordinator_state_topic_min_isr": 2,
    "share_coordinator_state_topic_num_partitions": 3,
    "log_cleaner_backoff_ms": 500,
    # After a cut no record is acknowledged until the leader has taken the other replica out of the ISR. With Kafka's 30 s most
    # of the run would be this wait.
    "replica_lag_time_max_ms": 10_000,
    **QUICK,
}
SEEN_SECONDS_MAX = 120


class Users:
    """All clients, and the errors in what they saw."""

    def __init__(self, mixed: Mixed, seed: int) -> None:
        self._mixed = mixed
        bootstrap = ",".join(node.bootstrap for node in mixed.nodes.values())
        self.bootstrap = bootstrap
        create_topic(bootstrap, 3, min_insync_replicas="2")
        self.loads = [Load(bootstrap, number, per_second=PER_SECOND, settings=ONE_IN_FLIGHT) for number in range(2)]
        self.groups = [group_history.Group(bootstrap, 2)]
        self.transactions = TransactionalLoad(bootstrap, seed, ONE_IN_FLIGHT)
        self.keyed = KeyedLoad(bootstrap, seed, ONE_IN_FLIGHT)
        self.topics = [TOPIC, self.transactions.topic, self.keyed.topic, *INTERNAL]
        self.shares: list[ShareGroup] = []
        self.counts: list[WordCounts] = []

    def add_newer(self) -> None:
        """Start clients of the protocols that need features of 4.0 to 4.2."""
        self.groups.append(group_history.Group(self.bootstrap, 2, name="newer", settings=group_history.CONSUMER))
        node = self._mixed.serving()[0]
        self.shares.append(ShareGroup(self.bootstrap, node.port, self._mixed.host(node.id)))
        directory = self._mixed.directory
        self.counts.append(
            WordCounts(self.bootstrap, "words", directory, replicas=3, settings={**ONE_IN_FLIGHT, "log_level": 0})
        )
        self.counts[0].start()
        self.topics += [self.shares[0].topic, self.counts[0].input, self.counts[0].output]

    def wait_in_sync(self) -> None:
        """Wait until every node knows all replicas as in sync. A node that was cut off still believes that for a while."""
        for node in self._mixed.nodes.values():
            for topic in self.topics:
                self._mixed.wait_isr(topic, IDS, node=node)
        self._mixed.wait_leader()

    def go_on(self, rng: random.Random) -> None:
        """Wait until each transactional and share client has made progress; the others go on by themselves."""
        self.write_on(rng)
        self.transactions.wait_for_commits(rng.randint(1, 3))
        for share in self.shares:
            share.send(20)
        for counts in self.counts:
            counts.send(20)

    def write_on(self, rng: random.Random) -> None:
        """Write until more records are acknowledged. Plain producers go on after a cut, where a coordinator may not reach a
        leader with its markers.
        """
        for load in self.loads:
            load.wait_for_acknowledgements(rng.randint(1, 200))

    def stop_and_judge(self) -> list[str]:
        self.transactions.wait_for_commits(1)
        for each in (*self.loads, self.transactions, self.keyed):
            each.stop()
        for group in self.groups:
            group.stop(self.loads)
        problems = judge(self.loads, read_everything(self.bootstrap, leaders_change=True))
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
def running(
    directory: Path, kinds: Sequence[str], seed: int, network: Network | None = None
) -> Iterator[tuple[Mixed, Users]]:
    """Run three nodes and their users."""
    with Mixed(directory, IDS, network, **PROPERTIES) as mixed:
        for node_id, kind in zip(IDS, kinds, strict=True):
            mixed.add(kind, node_id, "broker,controller").start()
        mixed.wait_brokers(*IDS)
        users = Users(mixed, seed)
        try:
            yield mixed, users
        finally:
            users.end()


def finish(users: Users, what: str) -> None:
    """Stop all clients, show what was done, and fail where a promise was broken."""
    problems = users.stop_and_judge()
    print(f"  {what}: {users.text()}", flush=True)
    if problems:
        raise NotSo("; ".join(problems[:5]))


def roll(directory: Path, first: str, seed: int = 1) -> None:
    """Roll from Kafka to Ottla and back; an older Kafka's features are raised once all nodes are Ottla's, and it comes back as 4.3.1."""
    rng, kills = random.Random(seed), Counter[str]()
    with running(directory, (first,) * 3, seed) as (mixed, users):
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
        finish(users, f"{dict(kills)} killed")


def change(node: Node, kind: str) -> None:
    """Stop one node in order, and start it as the other kind."""
    node.stop()
    node.become(kind)
    node.command = ("adopt", "--config", str(node.properties))
    node.start()
    node.mixed.wait_brokers(*IDS)


def kill_either(mixed: Mixed, users: Users, rng: random.Random) -> Counter[str]:
    """Kill one node of each kind by kill -9, one after the other."""
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


STEPS: dict[str, Callable[[Path], None]] = {
    "roll-newest": partial(roll, first=KAFKA),
    "roll-oldest": partial(roll, first=KAFKA_OLDEST),
}
