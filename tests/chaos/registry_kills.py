"""`python -m tests.chaos.registry_kills`: three instances of the schema registry, of which the leader is killed again and again.

Clients register schemas at any instance, each again until it has an id. The kill comes as soon as a consumer of the topic sees the
next schema: the leader sees it at the same time, and may or may not have answered. In the end an instance that has only the topic
answers all ids, none was given to two schemas, and none is missing between the first and the last.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, Message, TopicPartition

from ottla.testing import Cluster
from tests.ottla.registry.instances import SHORT_SESSION_MS, WAIT_S_MAX, Registries, Writers, judge

INSTANCES = 3
CLIENTS = 6
KILLS_A_RUN = 10
#: The limit of schemas that are registered between the restart of an instance and the next kill.
REGISTERED_MAX = 60


@dataclass
class Verdict:
    """The result of a run; `problems` is empty when every promise held. `unanswered` counts schemas whose leader wrote them and
    was killed before its response.
    """

    kills: int = 0
    registered: int = 0
    unanswered: int = 0
    outage_s: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def run(kills: int, seed: int, nodes: int = 3) -> Verdict:
    chance, verdict = random.Random(seed), Verdict(kills)
    with Cluster(nodes, group_min_session_timeout_ms="1000") as cluster:
        registries = Registries(cluster.bootstrap, session_ms=SHORT_SESSION_MS)
        registries.at_least(INSTANCES)
        writers = Writers(lambda: registries.urls, CLIENTS)
        tail = consumer_of(cluster.bootstrap, registries.topic, OFFSET_END)
        for number in range(1, kills + 1):
            leader, _ = registries.leader()
            writers.wait(chance.randint(1, REGISTERED_MAX))
            wait_for_a_schema(tail)
            leader.kill()
            verdict.outage_s.append(writers.wait(CLIENTS))
            print(f"seed {seed}: kill {number}, writes again after {verdict.outage_s[-1]:.1f} s", flush=True)
            registries.at_least(INSTANCES)
        tail.close()
        writers.stop()
        verdict.registered = len(writers.given)
        verdict.problems = judge(writers, registries.start())
        written = Counter[int]()
        for index, timestamp_ms in schema_records(cluster.bootstrap, registries.topic):
            written[index] += 1
            verdict.unanswered += timestamp_ms <= writers.failed_ms.get(index, 0)
        verdict.problems += [
            f"schema {index} was written {times} times" for index, times in written.items() if times > 1
        ]
        verdict.problems += [f"schema {index} is not in the topic" for index in writers.given.keys() - written.keys()]
        registries.stop()
    return verdict


def consumer_of(bootstrap: str, topic: str, offset: int) -> Consumer:
    settings = {"bootstrap.servers": bootstrap, "group.id": "judge", "enable.partition.eof": True}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, offset)])
    return consumer


def wait_for_a_schema(tail: Consumer) -> None:
    """Wait for the next record of a schema; existing records are passed over."""
    while tail.poll(0) is not None:
        pass
    while schema_of(tail.poll(WAIT_S_MAX)) is None:
        pass


def schema_of(message: Message | None) -> int | None:
    """Return the number of the schema in a record; None for another record, and at the end of the partition."""
    assert message is not None, "the topic has no more records"
    if fault := message.error():
        assert fault.code() == KafkaError._PARTITION_EOF, fault
        return None
    key = json.loads(message.key() or b"{}")
    return int(key["subject"].removeprefix("s")) if key["keytype"] == "SCHEMA" else None


def schema_records(bootstrap: str, topic: str) -> Iterator[tuple[int, int]]:
    """Yield the number and the timestamp, in ms since the epoch, of each record of a schema."""
    consumer = consumer_of(bootstrap, topic, OFFSET_BEGINNING)
    try:
        while True:
            message = consumer.poll(WAIT_S_MAX)
            number = schema_of(message)
            assert message is not None
            if number is not None:
                yield number, message.timestamp()[1]
            elif message.error():
                return
    finally:
        consumer.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.chaos.registry_kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nodes", type=int, default=3)
    arguments = parser.parse_args()
    registered, unanswered, slowest, bad = 0, 0, 0.0, 0
    for number in range(max(1, arguments.kills // KILLS_A_RUN)):
        seed, began = arguments.seed + number, time.monotonic()
        verdict = run(min(arguments.kills, KILLS_A_RUN), seed, arguments.nodes)
        registered += verdict.registered
        unanswered += verdict.unanswered
        slowest = max(slowest, *verdict.outage_s)
        bad += bool(verdict.problems)
        state = "; ".join(verdict.problems) or "no id given twice, none lost"
        print(
            f"seed {seed}: {verdict.kills} kills of the leader, {verdict.registered} schemas, {verdict.unanswered} of them"
            f" written and not answered, writes again after <= {max(verdict.outage_s):.1f} s,"
            f" {time.monotonic() - began:.0f} s: {state}",
            flush=True,
        )
    print(
        f"{arguments.kills} kills, {registered} schemas, {unanswered} written and not answered, {bad} runs with problems,"
        f" writes again after <= {slowest:.1f} s"
    )
    if not unanswered:
        print("no leader was killed between a write and its answer: the run shows nothing")
    return 1 if bad or not unanswered else 0


if __name__ == "__main__":
    sys.exit(main())
