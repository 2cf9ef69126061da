"""Many partitions: `python -m benchmarks.partitions [--count 10000]`. Three nodes, three replicas of everything.

Creation until every leader is known everywhere, a first record in each, what idle nodes cost, and a kill -9 of one node until
it is in sync again in all of them.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
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
IDLE_PERCENT_GOAL = 3.0


def topics(count: int) -> dict[str, int]:
    return {
        f"many-{i}": min(PARTITIONS_PER_TOPIC, count - i * PARTITIONS_PER_TOPIC)
        for i in range((count - 1) // PARTITIONS_PER_TOPIC + 1)
    }


def wait(what: str, found: Callable[[], int], wanted: int) -> float:
    """Seconds until `found` gives `wanted`."""
    begin = time.monotonic()
    while (now := found()) < wanted:
        if time.monotonic() - begin > WAIT_SECONDS_MAX:
            raise TimeoutError(f"{what}: {now} of {wanted} after {WAIT_SECONDS_MAX} s")
        time.sleep(0.2)
    return time.monotonic() - begin


def in_sync(server: Server) -> Callable[[], int]:
    """How many partitions have a leader and all their replicas in sync, as the node says that knows the fewest."""
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
            if failure.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # the client asked twice
                raise
    wait("leaders", in_sync(server), count)
    return time.monotonic() - begin


def write_to_each(server: Server, count: int) -> float:
    """One acknowledged record in every partition, as fast as one client can."""
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
    """Seconds from kill -9 of one node until it is in sync everywhere again, and the CPU seconds that took all nodes."""
    synced = in_sync(server)
    others = [pid for i, pid in enumerate(server.pids) if i != 1]
    before = cpu_seconds(others)
    begin = time.monotonic()
    server.restart(1)
    wait("in sync", synced, count)
    return time.monotonic() - begin, cpu_seconds(others) - before + cpu_seconds([server.pids[1]])


def measure(server: Server, count: int) -> list[str]:
    def note(text: str) -> None:
        print(f"  {server.name}: {text}", file=sys.stderr, flush=True)
        lines.append(f"- {text}")

    lines = [f"{server.name}:"]
    before = cpu_seconds(server.pids)
    took = create(server, count)
    note(
        f"created {count} partitions in {took:.1f} s: {count / took:,.0f}/s, {cpu_seconds(server.pids) - before:.1f} CPU s"
    )
    before = cpu_seconds(server.pids)
    took = write_to_each(server, count)
    note(f"a first record in each: {took:.1f} s, {cpu_seconds(server.pids) - before:.1f} CPU s")
    time.sleep(10)
    used = [cpu_seconds([pid]) for pid in server.pids]
    time.sleep(IDLE_SECONDS)
    idle = [(cpu_seconds([pid]) - then) / IDLE_SECONDS * 100 for pid, then in zip(server.pids, used, strict=True)]
    goal = f" (goal <= {IDLE_PERCENT_GOAL} %{', MISSED' if max(idle) > IDLE_PERCENT_GOAL else ''})"
    note(f"idle: {', '.join(f'{percent:.1f}' for percent in idle)} % of a core{goal if server.name == 'ottla' else ''}")
    note(f"heap: {', '.join(f'{anonymous_megabytes([pid]):.0f}' for pid in server.pids)} MB")
    took, cpu = restart(server, count)
    note(f"kill -9 of one node to in sync everywhere: {took:.1f} s, {cpu:.1f} CPU s of all nodes")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.partitions", description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--no-kafka", action="store_true")
    parser.add_argument("--out", type=Path, default=Path(".bench/partitions.md"))
    args = parser.parse_args()
    reason = "left out by --no-kafka" if args.no_kafka else missing()
    if reason:
        print(f"Apache Kafka is left out: {reason}", file=sys.stderr)
    lines = [f"## {args.count} partitions, three replicas", ""]
    for start in (start_ottla, *([] if reason else [start_kafka])):
        server = start(3)
        try:
            lines += [*measure(server, args.count), ""]
        finally:
            server.stop()
    text = "\n".join(lines)
    print(text)
    args.out.parent.mkdir(exist_ok=True)
    args.out.write_text(text)


if __name__ == "__main__":
    main()
