"""Copying in transactions, while nodes are killed again and again: every record and every offset is there exactly once.

On one node the kill takes everything away. On three it takes a role: the transaction coordinator, the group coordinator, or
the leader of a partition that the transactions write to. The two coordinators live on different nodes when a run begins.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from ottla.testing import Cluster
from tests.chaos.history import IN_SYNC_SECONDS_MAX
from tests.chaos.message_copiers import (
    CALL_SECONDS_MAX,
    LIBRDKAFKA,
    PARTITIONS,
    SOURCE,
    TARGET,
    TRANSACTION_TIMEOUT_MS,
    JavaMessageCopier,
    LibrdkafkaMessageCopier,
    TransactionalMessageCopier,
)
from tests.cluster.coordinators import group_coordinator, group_id_at, transaction_coordinator, transactional_id_at
from tests.cluster.transactor import READ_COMMITTED, Nodes

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
SETTINGS: dict[str, tuple[int, type[TransactionalMessageCopier]]] = {
    "one node, librdkafka": (1, LibrdkafkaMessageCopier),
    "three nodes, librdkafka": (3, LibrdkafkaMessageCopier),
    "three nodes, Java": (3, JavaMessageCopier),
}
POLL_SECONDS = 0.02
READ_SECONDS_MAX = 60


@dataclass
class Verdict:
    """The result of a run; `problems` is empty when every promise held."""

    kills: Counter[str] = field(default_factory=Counter)
    committed: int = 0
    aborted: int = 0
    recoveries: int = 0
    problems: list[str] = field(default_factory=list)


@dataclass
class Victims:
    """The processes that can be killed, by their present role."""

    cluster: Cluster
    transactional_id: str
    group_id: str
    spare_group_coordinator: bool

    def draw(self, rng: random.Random) -> tuple[str, int]:
        of_group = group_coordinator(self.cluster, self.group_id)
        roles = {
            "transaction coordinator": transaction_coordinator(self.cluster, self.transactional_id),
            "group coordinator": of_group,
            "leader": rng.choice(list(self.cluster.leaders(TARGET).values())),
        }
        others = sorted(set(self.cluster.nodes) - {of_group})
        if self.spare_group_coordinator:
            roles = {role: node for role, node in roles.items() if node != of_group} or {"another": rng.choice(others)}
        return rng.choice(list(roles.items()))


def run(
    *,
    kills: int,
    count: int,
    seed: int,
    nodes: int = 1,
    copier: type[TransactionalMessageCopier] = LibrdkafkaMessageCopier,
) -> Verdict:
    verdict = Verdict()
    rng = random.Random(seed)
    with Cluster(nodes, num_partitions=str(PARTITIONS)) as cluster:
        fill(cluster, count)
        # Node ids are 1 to `nodes`. With several nodes the two coordinators are on different ones.
        transactional_id = transactional_id_at(cluster, 1, "copier")
        group_id = group_id_at(cluster, nodes, "copiers")
        victims = Victims(cluster, transactional_id, group_id, nodes > 1 and copier is LibrdkafkaMessageCopier)
        application = copier(cluster.bootstrap, transactional_id, group_id, count, seed)
        while verdict.kills.total() < kills and application.wait_for_commits(1):
            # at any moment of the transactions in progress
            application.done.wait(rng.uniform(0, 0.3))
            role, victim = victims.draw(rng)
            cluster.kill(victim)
            verdict.kills[role] += 1
            if nodes > 1 and rng.random() < 0.7:
                application.wait_for_commits(rng.randint(1, 5))  # the other nodes go on
            cluster.start(victim)
            for topic in (TARGET, OFFSETS, TRANSACTIONS):
                cluster.wait_isr(topic, seconds=IN_SYNC_SECONDS_MAX)
        verdict.problems = application.problems()
        verdict.committed, verdict.aborted = application.committed, application.aborted
        verdict.recoveries = application.recoveries
        _check(cluster, group_id, count, verdict)
    return verdict


def fill(cluster: Cluster, count: int) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    replicas = len(cluster.nodes)
    topics = [NewTopic(name, num_partitions=PARTITIONS, replication_factor=replicas) for name in (SOURCE, TARGET)]
    for created in admin.create_topics(topics).values():
        created.result(CALL_SECONDS_MAX)
    # The queue takes all records at once: by default librdkafka's takes 100,000, and a slow machine writes none meanwhile.
    settings = {"enable.idempotence": True, "queue.buffering.max.messages": max(count, 100_000)}
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **settings})
    for number in range(count):
        producer.produce(SOURCE, str(number), partition=number % PARTITIONS)
    assert producer.flush(CALL_SECONDS_MAX) == 0


def _check(cluster: Cluster, group_id: str, count: int, verdict: Verdict) -> None:
    verdict.problems += open_transactions(cluster, TARGET) + open_transactions(cluster, OFFSETS)
    copies = Counter(int(value) for value in read_committed(cluster, TARGET))
    expected = Counter(range(count))
    if missing := expected - copies:
        verdict.problems.append(f"{missing.total()} copies are missing, like {sorted(missing)[:5]}")
    if extra := copies - expected:
        verdict.problems.append(f"{extra.total()} copies are there too often, like {sorted(extra)[:5]}")
    nodes = Nodes(cluster)
    committed = sum(nodes.committed_offset(group_id, SOURCE, index) for index in range(PARTITIONS))
    if committed != count:
        verdict.problems.append(f"the group's offsets say {committed} of {count}")


def open_transactions(cluster: Cluster, topic: str) -> list[str]:
    """Return the partitions whose last stable offset does not reach the high watermark in time (invariant 32)."""
    nodes = Nodes(cluster)
    deadline = time.monotonic() + TRANSACTION_TIMEOUT_MS / 1000 + 10
    while held_back := [index for index in cluster.leaders(topic) if not nodes.is_stable(topic, index)]:
        if time.monotonic() > deadline:
            return [f"a transaction is still open in {topic}-{index}" for index in held_back]
        time.sleep(POLL_SECONDS)
    return []


def read_committed(cluster: Cluster, topic: str) -> list[bytes]:
    """Return everything up to the last stable offsets. For a moment a new leader may show fetches an older last stable offset,
    as Kafka's does: so the leaders are first asked for the ends.
    """
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    nodes = Nodes(cluster)
    ends = {index: nodes.end_offset(topic, index, READ_COMMITTED) for index in range(PARTITIONS)}

    settings: dict[str, Any] = {
        "group.id": "checker",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "enable.auto.commit": False,
    }
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, **LIBRDKAFKA, **settings})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    values: list[bytes] = []
    open_partitions = set(range(PARTITIONS))
    deadline = time.monotonic() + READ_SECONDS_MAX
    while open_partitions:
        assert time.monotonic() < deadline, "the topic could not be read to its end"
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is None:
            values.append(message.value())
        elif error.code() == KafkaError._PARTITION_EOF and message.offset() >= ends[message.partition()]:
            open_partitions.discard(message.partition())
    consumer.close()
    return values


def describe(verdict: Verdict) -> str:
    return (
        f"killed {dict(verdict.kills)}, {verdict.committed} transactions committed, started over {verdict.recoveries}"
        f" times: {'; '.join(verdict.problems) or 'everything exactly once'}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.chaos.exactly_once", description=__doc__)
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--count", type=int, default=60_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--setting", choices=SETTINGS, help="instead of each in turn")
    chosen = parser.parse_args()
    bad = 0
    for seed in range(chosen.seed, chosen.seed + chosen.runs):
        setting = chosen.setting or list(SETTINGS)[seed % len(SETTINGS)]
        nodes, copier = SETTINGS[setting]
        began = time.monotonic()
        verdict = run(kills=chosen.kills, count=chosen.count, seed=seed, nodes=nodes, copier=copier)
        bad += bool(verdict.problems)
        print(f"{setting}, seed {seed}: {describe(verdict)}, {time.monotonic() - began:.0f} s", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
