"""`ottla mirror` between Apache Kafka, 4.3.1 and older, and an Ottla node, in both directions, beside Kafka's MirrorMaker 2.

Each step mirrors a topic with transactions and a group; then Kafka's RemoteClusterUtils reads the group's offsets in the target, as
ours does. In the steps of a handover, MirrorMaker itself mirrors first and last, and `ottla mirror` in between: by MirrorMaker's
positions each record is in the target once.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka import TopicPartition

from ottla.testing import Cluster
from ottla.testing.attached import Attached
from ottla.testing.clients import Clients
from tests.compat.mixed.nodes import NotSo, until
from tests.ports import free_base_port
from tools.apache_kafka import ApacheKafka, java_command
from tools.apache_kafka.jars import OLDEST, VERSION, mirror_classpath
from tools.apache_kafka.programs import compiled

HERE = Path(__file__).parent
JAVA = HERE / "Translated.java"
TOPIC, GROUP = "orders", "readers"
PARTITIONS, RECORDS = 3, 3_000
#: The last minor release that could run with ZooKeeper.
OLDER = "3.9.2"
COMMAND_SECONDS_MAX = 120
STOP_SECONDS_MAX = 60
#: The settings of MirrorMaker besides the clusters: it looks and writes often, because the run is short.
MIRROR_MAKER = """clusters = west, east
west.bootstrap.servers = {west}
east.bootstrap.servers = {east}
west->east.enabled = true
west->east.topics = {topic}
east->west.enabled = false
replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
offset-syncs.topic.replication.factor = 1
offset.storage.replication.factor = 1
status.storage.replication.factor = 1
config.storage.replication.factor = 1
offset.flush.interval.ms = 1000
refresh.topics.interval.seconds = 5
emit.checkpoints.interval.seconds = 2
source.consumer.isolation.level = read_committed
west.consumer.isolation.level = read_committed
"""


@contextmanager
def clusters(kinds: Sequence[str]) -> Iterator[tuple[Clients, Clients]]:
    """Run the source and the target, each of its kind: "ottla", "kafka", or an older version of Apache Kafka."""
    with ExitStack() as stack:
        made: list[Clients] = []
        for kind in kinds:
            if kind == "ottla":
                made.append(stack.enter_context(Cluster(1, spoilable=False)))
            else:
                kafka = ApacheKafka(free_base_port(), quick=True, version=VERSION if kind == "kafka" else kind)
                made.append(Attached(stack.enter_context(kafka).bootstrap))
        yield made[0], made[1]


def mirror(logs: Path, kinds: Sequence[str]) -> None:
    """Check the records, settings, offsets and heartbeats of a mirror, read by the clients of both kinds."""
    with clusters(kinds) as (west, east):
        west.topic(TOPIC, partitions=PARTITIONS, configs={"retention.ms": "86400000"})
        written = write(west, 0)
        commit(west, RECORDS // 2)
        run_ours(west, east)
        check(east, written)
        written += write(west, RECORDS)
        run_ours(west, east)
        check(east, written)
        compare_offsets(east)
        go_on(east)


def hand_over(logs: Path, kinds: Sequence[str]) -> None:
    """MirrorMaker mirrors, then Ottla, then MirrorMaker again; neither mirrors a record that the other has mirrored
    before it.
    """
    with clusters(kinds) as (west, east):
        west.topic(TOPIC, partitions=PARTITIONS)
        written = write(west, 0)
        with mirror_maker(logs, west, east):
            wait_for(east, len(written))
        written += write(west, RECORDS)
        run_ours(west, east)
        check(east, written)
        written += write(west, 2 * RECORDS)
        with mirror_maker(logs, west, east):
            wait_for(east, len(written))
        check(east, written)
        commit(west, RECORDS // 2)
        run_ours(west, east)
        compare_offsets(east)


def write(cluster: Clients, first: int) -> list[str]:
    """Write committed transactions with an aborted one after each. Return the committed values."""
    producer = cluster.producer(transactional_id="writer")
    producer.init_transactions(COMMAND_SECONDS_MAX)
    values = [f"{number}" for number in range(first, first + RECORDS)]
    for begin in range(0, RECORDS, RECORDS // 6):
        producer.begin_transaction()
        for value in values[begin : begin + RECORDS // 6]:
            producer.produce(TOPIC, value, key=value, partition=int(value) % PARTITIONS, headers={"n": value})
        producer.commit_transaction(COMMAND_SECONDS_MAX)
        producer.begin_transaction()
        producer.produce(TOPIC, "aborted", partition=begin % PARTITIONS)
        producer.flush(COMMAND_SECONDS_MAX)
        producer.abort_transaction(COMMAND_SECONDS_MAX)
    return values


def commit(cluster: Clients, records: int) -> None:
    """Commit the group's offsets as if it had read this many records, the same number of each partition."""
    offsets: dict[int, list[int]] = {}
    for record in cluster.records(TOPIC):
        offsets.setdefault(record.partition, []).append(record.offset)
    consumer = cluster.consumer(group_id=GROUP)
    places = [TopicPartition(TOPIC, index, row[records // PARTITIONS]) for index, row in offsets.items()]
    until("offsets of the group", lambda: consumer.commit(offsets=places, asynchronous=False))
    consumer.close()


def check(east: Clients, written: Sequence[str]) -> None:
    """Check that each record is there once, in the order of its partition, with its key and headers."""
    seen = east.records(f"west.{TOPIC}")
    values = [(record.value or b"").decode() for record in seen]
    if sorted(values, key=int) != list(written):
        extra = len(values) - len(set(values))
        raise NotSo(f"{len(values)} records, {extra} of them twice, in place of {len(written)}")
    by_partition: dict[int, list[int]] = {}
    for record in seen:
        by_partition.setdefault(record.partition, []).append(int(record.value or b""))
        if (record.key, record.headers) != (record.value, (("n", record.value),)):
            raise NotSo(f"another key or header than in the source: {record}")
    if any(row != sorted(row) for row in by_partition.values()):
        raise NotSo("the order of a partition is another one")


def wait_for(east: Clients, count: int) -> None:
    def mirrored() -> bool:
        there = f"west.{TOPIC}" in {topic.name for topic in east.metadata().topics}
        return there and len(east.records(f"west.{TOPIC}")) >= count

    until(f"{count} records are mirrored", mirrored)


def compare_offsets(east: Clients) -> None:
    """Check that Kafka's client library reads the offsets that `ottla mirror offsets` shows."""
    shown = ours("mirror", "offsets", "west", GROUP, "-b", east.bootstrap, "-o", "json").stdout.splitlines()
    rows = [json.loads(line) for line in shown]
    expected = [f"offset {row['topic']}-{row['partition']} {row['offset']}" for row in rows]
    command = java_command(
        JAVA.stem,
        east.bootstrap,
        "west",
        GROUP,
        extra_classpath=f"{compiled(JAVA, mirror_classpath())}:{mirror_classpath()}",
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_SECONDS_MAX)
    expected += ["hops 1", "upstream [west]", "checkpoints [west.checkpoints.internal]"]
    if len(rows) != PARTITIONS or done.stdout.splitlines() != expected:
        raise NotSo(f"RemoteClusterUtils reads {done.stdout!r}, and not {expected}: {done.stderr[-500:]}")


def go_on(east: Clients) -> None:
    """Let the group go on in the target: it reads what it has not read in the source, and at most the records of some batches
    twice.
    """
    ours("mirror", "offsets", "west", GROUP, "--set", "-b", east.bootstrap)
    consumer = east.consumer(f"west.{TOPIC}", group_id=GROUP, isolation_level="read_committed")
    seen: set[bytes] = set()
    deadline = time.monotonic() + COMMAND_SECONDS_MAX
    wanted = 2 * RECORDS - RECORDS // 2
    while len(seen) < wanted and time.monotonic() < deadline:
        seen |= {message.value() or b"" for message in consumer.consume(1_000, 1)}
    consumer.close()
    if not wanted <= len(seen) < 2 * RECORDS:
        raise NotSo(f"the group has read {len(seen)} records in the target, and {wanted} were left")


def run_ours(west: Clients, east: Clients) -> None:
    ours("mirror", "run", "west", "east", "-b", west.bootstrap, "--to", east.bootstrap, "--topics", TOPIC, "--once")
    ours("mirror", "run", "west", "east", "-b", west.bootstrap, "--to", east.bootstrap, "--topics", TOPIC, "--once")


def ours(*arguments: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "ottla", *arguments], capture_output=True, text=True, timeout=COMMAND_SECONDS_MAX
    )
    if done.returncode:
        raise NotSo(f"ottla {' '.join(arguments)}: {done.stderr}")
    return done


@contextmanager
def mirror_maker(logs: Path, west: Clients, east: Clients, topic: str = TOPIC, more: str = "") -> Iterator[None]:
    """Run Kafka's MirrorMaker 2 with `more` properties, and stop it in order, because it writes its positions then."""
    logs.mkdir(parents=True, exist_ok=True)
    properties = logs / "mirror-maker.properties"
    properties.write_text(MIRROR_MAKER.format(west=west.bootstrap, east=east.bootstrap, topic=topic) + more)
    command = java_command(
        "org.apache.kafka.connect.mirror.MirrorMaker", str(properties), extra_classpath=mirror_classpath(), quick=False
    )
    with (logs / "mirror-maker.log").open("ab") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(STOP_SECONDS_MAX)


STEPS: dict[str, Callable[[Path], None]] = {
    "kafka-to-ottla": lambda logs: mirror(logs, ("kafka", "ottla")),
    "oldest-kafka-to-ottla": lambda logs: mirror(logs, (OLDEST, "ottla")),
    "older-kafka-to-ottla": lambda logs: mirror(logs, (OLDER, "ottla")),
    "ottla-to-oldest-kafka": lambda logs: mirror(logs, ("ottla", OLDEST)),
    "ottla-to-kafka": lambda logs: mirror(logs, ("ottla", "kafka")),
    "mirror-maker-and-back": lambda logs: hand_over(logs, ("ottla", "ottla")),
}
