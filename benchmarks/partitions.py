"""Many partitions: `python -m benchmarks.partitions [--count 10000]`. Three nodes, three replicas of everything.

Creation until every leader is known everywhere, a first record in each, the cost of idle nodes, and a kill -9 of one node until
it is in sync again in all of them; `--parts first,idle,kill` leaves out what is not named. Apache Kafka did not get through
10,000 on two cores, so both are measured with `--kafka-count` partitions as well.

The file system decides about the first records. ext4 steps over each inode that was deleted in the last minutes when it looks for
a free one: a new file took 12 us, and 200 to 300 us where a test run had just removed its files. `TMPDIR` says where the nodes
keep their data; a file system of its own, made for the run, is what can be compared.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.servers import Server, start_kafka, start_ottla
from benchmarks.usage import anonymous_megabytes, cpu_seconds
from tools.apache_kafka import missing

#: Kafka takes at most 10,000 records of metadata in one request.
PARTITIONS_PER_TOPIC = 1000
REPLICAS = 3
IDLE_SECONDS = 30
WAIT_SECONDS_MAX = 600
PARTS = ("first", "idle", "kill")
FIRST_SECONDS_GOAL = 5.0
IDLE_PERCENT_GOAL = 1.0
KILL_SECONDS_GOAL = 6.0


def topics(count: int) -> dict[str, int]:
    return {
        f"many-{i}": min(PARTITIONS_PER_TOPIC, count - i * PARTITIONS_PER_TOPIC)
        for i in range((count - 1) // PARTITIONS_PER_TOPIC + 1)
    }


def wait(what: str, found: Callable[[], int], wanted: int) -> float:
    """Wait until `found` returns `wanted`; return the seconds."""
    begin = time.monotonic()
    while (now := found()) < wanted:
        if time.monotonic() - begin > WAIT_SECONDS_MAX:
            raise TimeoutError(f"{what}: {now} of {wanted} after {WAIT_SECONDS_MAX} s")
        time.sleep(0.2)
    return time.monotonic() - begin


def in_sync(server: Server) -> Callable[[], int]:
    """Return a function that counts the partitions with a leader and all replicas in sync, by the node that knows the
    fewest.
    """
    admins = [AdminClient({"bootstrap.servers": address}) for address in server.bootstrap.split(",")]

    def count() -> int:
        counts = []
        for admin in admins:
            found = admin.list_topics(timeout=60).topics
            counts.append(
                sum(
                    partition.leader >= 0 and len(partition.isrs) == REPLICAS
                    for name, topic in found.items()
                    if name.startswith("many-")
                    for partition in topic.partitions.values()
                )
            )
        return min(counts)

    return count


def create(server: Server, count: int) -> float:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    begin = time.monotonic()
    for name, partitions in topics(count).items():
        new = NewTopic(name, partitions, REPLICAS, config={"min.insync.replicas": "2"})
        try:
            admin.create_topics([new], request_timeout=120, operation_timeout=120)[name].result(180)
        except KafkaException as failure:
            if failure.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # the client has sent the request twice
                raise
    wait("leaders", in_sync(server), count)
    return time.monotonic() - begin


def write_to_each(server: Server, count: int) -> float:
    """Write one record into every partition and wait for its acknowledgement, as fast as one client can; return the seconds."""
    producer = Producer({"bootstrap.servers": server.bootstrap, "acks": "all", "linger.ms": 5})
    failed = 0

    def delivered(error: object, _message: object) -> None:
        nonlocal failed
        failed += error is not None

    begin = time.monotonic()
    for name, partitions in topics(count).items():
        for partition in range(partitions):
            producer.produce(name, b"first", partition=partition, on_delivery=delivered)
    left = producer.flush(WAIT_SECONDS_MAX)
    assert not failed + left, f"{failed} records failed, {left} are left"
    return time.monotonic() - begin


def restart(server: Server, count: int) -> tuple[float, float]:
    """Return the seconds from kill -9 of one node until it is in sync everywhere again, and the CPU seconds of all nodes in
    that time.
    """
    synced = in_sync(server)
    others = [pid for i, pid in enumerate(server.pids) if i != 1]
    before = cpu_seconds(others)
    begin = time.monotonic()
    server.restart(1)
    wait("in sync", synced, count)
    return time.monotonic() - begin, cpu_seconds(others) - before + cpu_seconds([server.pids[1]])


def measure(server: Server, count: int, parts: Collection[str], *, goals: bool) -> list[str]:
    def note(text: str) -> None:
        print(f"  {server.name}: {text}", file=sys.stderr, flush=True)
        lines.append(f"- {text}")

    def goal(found: float, most: float, unit: str) -> str:
        return f" (goal <= {most:g} {unit}{', MISSED' if found > most else ''})" if goals else ""

    lines = [f"{server.name}, {count} partitions:"]
    before = cpu_seconds(server.pids)
    took = create(server, count)
    note(
        f"created {count} partitions in {took:.1f} s: {count / took:,.0f}/s, {cpu_seconds(server.pids) - before:.1f} CPU s"
    )
    if "first" in parts:
        before = cpu_seconds(server.pids)
        took = write_to_each(server, count)
        used = cpu_seconds(server.pids) - before
        note(f"a first record in each: {took:.1f} s, {used:.1f} CPU s{goal(took, FIRST_SECONDS_GOAL, 's')}")
    if "idle" in parts:
        time.sleep(10)
        then = [cpu_seconds([pid]) for pid in server.pids]
        time.sleep(IDLE_SECONDS)
        idle = [(cpu_seconds([pid]) - used) / IDLE_SECONDS * 100 for pid, used in zip(server.pids, then, strict=True)]
        percents = ", ".join(f"{percent:.1f}" for percent in idle)
        note(f"idle: {percents} % of a core{goal(max(idle), IDLE_PERCENT_GOAL, '%')}")
        note(f"heap: {', '.join(f'{anonymous_megabytes([pid]):.0f}' for pid in server.pids)} MB")
    if "kill" in parts:
        took, cpu = restart(server, count)
        note(
            f"kill -9 of one node to in sync everywhere: {took:.1f} s, {cpu:.1f} CPU s of all nodes{goal(took, KILL_SECONDS_GOAL, 's')}"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.partitions", description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--kafka-count", type=int, default=1_000, help="partitions beside Apache Kafka; 0: without it")
    parser.add_argument("--out", type=Path, default=Path(".bench/partitions.md"))
    args = parser.parse_args()
    parts = args.parts.split(",")
    if not set(parts) <= set(PARTS):
        parser.error(f"--parts is a list of {', '.join(PARTS)}")
    reason = "left out by --kafka-count 0" if not args.kafka_count else missing()
    runs: list[tuple[Callable[[int], Server], int]] = [(start_ottla, args.count)] if args.count else []
    if reason:
        print(f"Apache Kafka is left out: {reason}", file=sys.stderr)
    else:
        runs += [(start_ottla, args.kafka_count), (start_kafka, args.kafka_count)]
    lines = ["## Many partitions, three replicas", ""]
    for start, count in runs:
        server = start(3)
        try:
            lines += [*measure(server, count, parts, goals=start is start_ottla and count == args.count), ""]
        finally:
            server.stop()
    text = "\n".join(lines)
    print(text)
    args.out.parent.mkdir(exist_ok=True)
    args.out.write_text(text)


if __name__ == "__main__":
    main()
