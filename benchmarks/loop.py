"""The time that a client waits for other work of its node: `python -m benchmarks.loop [row ...]`. One client pings while a node
does something large.

For each row the longest wait of the ping loop (ApiVersions, a process of its own, every 2 ms), and the node's own gauge: the longest
time that its event loop was late. `--scale 0.1` makes every row a tenth as large, to see that it runs.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import socket
import struct
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.large_metadata import grow
from benchmarks.watched import PING_EVERY_S, Found, Node, read_frame, wait

ALL_TOPICS = struct.pack(">ihhihi?", 15, 3, 4, 1, -1, -1, False)  # Metadata v4 of every topic


def one_each(partitions: int) -> Iterator[tuple[int, bytes | None, bytes]]:
    return ((partition, None, b"x" * 100) for partition in range(partitions))


# -- The rows ------------------------------------------------------------------------------------------------------------


def delete(scale: float) -> Found:
    """Delete a topic of 1,000 partitions, a record in each."""
    partitions, found = max(1, int(1000 * scale)), Found()
    node = Node(log_segment_delete_delay_ms="0", log_retention_check_interval_ms="1000")
    try:
        node.create("t", partitions)
        node.fill("t", one_each(partitions))
        data = next(Path(node.cluster.directory).rglob("meta.properties")).parent
        with node.watched(found):
            node.admin.delete_topics(["t"])["t"].result(120)
            gone = wait("files go", lambda: not list(data.glob("t-*")))
        found.text.append(f"{partitions} partitions, files gone after {gone:.1f} s")
    finally:
        node.close()
    return found


def stop(scale: float) -> Found:
    """Clean stop of a node with 500 partitions of an idempotent producer; the pings go to /healthz, clients are sent away."""
    partitions, found = max(1, int(500 * scale)), Found()
    node = Node()
    try:
        node.create("t", partitions)
        node.fill("t", one_each(partitions), enable_idempotence="true")
        pid, url = node.cluster.pid(1), f"http://127.0.0.1:{node.admin_ports[1]}/healthz"
        begin = time.monotonic()
        os.kill(pid, signal.SIGTERM)
        while node.cluster.is_running(1):
            asked = time.monotonic()
            try:
                urllib.request.urlopen(url, timeout=60).read()
            except urllib.error.HTTPError:
                pass
            except OSError:
                time.sleep(0.005)
                continue
            found.longest_ms = max(found.longest_ms, (time.monotonic() - asked) * 1000)
        found.text.append(f"{partitions} partitions, ended after {time.monotonic() - begin:.2f} s (goal 2 s)")
    finally:
        node.close()
    return found


def controller(scale: float) -> Found:
    """Clean stop of the active controller, one of three nodes with 300 partitions: the longest CreateTopics meanwhile."""
    partitions, found = max(1, int(300 * scale)), Found()
    node = Node(3)
    try:
        node.create("t", partitions, 3)
        node.cluster.wait_isr("t", 3, 60)
        node.fill("t", one_each(partitions), enable_idempotence="true")
        active = next(n for n in node.admin_ports if is_active(node, n))
        admin = AdminClient(
            {"bootstrap.servers": ",".join(node.cluster.address(n) for n in node.admin_ports if n != active)}
        )
        admin.list_topics(timeout=30)
        stopping = threading.Thread(target=node.cluster.stop, args=(active,))
        begin = time.monotonic()
        stopping.start()
        number = 0
        while stopping.is_alive() or time.monotonic() - begin < 2:
            number += 1
            asked = time.monotonic()
            try:
                admin.create_topics([NewTopic(f"n{number}", 1, 1)])[f"n{number}"].result(60)
            except KafkaException as failure:
                # The client sends the request again if the first response was lost.
                if failure.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
            found.longest_ms = max(found.longest_ms, (time.monotonic() - asked) * 1000)
        stopping.join()
        found.text.append(f"{partitions} partitions, {number} topics created meanwhile")
    finally:
        node.close()
    return found


def is_active(node: Node, node_id: int) -> bool:
    with urllib.request.urlopen(f"http://127.0.0.1:{node.admin_ports[node_id]}/metrics", timeout=60) as answer:
        text = answer.read().decode().lower()
    return re.search(r"^kafka_controller_kafkacontroller_activecontrollercount\S* 1", text, re.M) is not None


def coordinators(scale: float) -> Found:
    """Take over 17 partitions of __consumer_offsets of 1 MB each, by a restart."""
    count, found = 17, Found()
    node = Node(offsets_topic_num_partitions=str(count))
    try:
        wide = 500
        node.create("wide", wide)
        rounds = max(1, int(1_000_000 * scale / (wide * 110)))
        for group in groups_of_each(count):
            member = Consumer({"bootstrap.servers": node.cluster.bootstrap, "group.id": group})
            for offset in range(rounds):
                member.commit(offsets=[TopicPartition("wide", p, offset) for p in range(wide)], asynchronous=False)
            member.close()
        size = sum(
            path.stat().st_blocks * 512 for path in Path(node.cluster.directory).rglob("__consumer_offsets-*/*.log")
        )
        node.cluster.stop(1)
        node.cluster.start(1)
        with node.watched(found):
            for group in groups_of_each(count):
                member = Consumer({"bootstrap.servers": node.cluster.bootstrap, "group.id": group})
                wait(
                    "loaded",
                    lambda member=member: member.committed([TopicPartition("wide", 0)], timeout=30)[0].offset >= 0,
                )
                member.close()
        found.text.append(f"{count} partitions, {size / 1e6:.0f} MB together")
    finally:
        node.close()
    return found


def groups_of_each(partitions: int) -> list[str]:
    """A group for every partition: String.hashCode modulo their number."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < partitions:
        name, code = f"group-{number}", 0
        for char in name:
            code = (31 * code + ord(char)) & 0xFFFFFFFF
        found.setdefault((code & 0x7FFFFFFF) % partitions, name)
        number += 1
    return [found[partition] for partition in sorted(found)]


def metadata(scale: float) -> Found:
    """Metadata of all topics, 5,000 partitions, asked by 20 clients at once."""
    found, topics = Found(), max(1, int(5 * scale))
    node = Node()
    try:
        for number in range(topics):
            node.create(f"t{number}", 1000)
        clients = [socket.create_connection(("127.0.0.1", node.port())) for _ in range(20)]
        with node.watched(found):
            begin = time.monotonic()
            for _ in range(3):
                for client in clients:
                    client.sendall(ALL_TOPICS)
                sizes = [read_frame(client) for client in clients]
            took = time.monotonic() - begin
        found.text.append(f"{topics * 1000} partitions, {sizes[0] / 1e3:.0f} KB each, three rounds in {took:.2f} s")
        for client in clients:
            client.close()
    finally:
        node.close()
    return found


def first_read(scale: float) -> Found:
    """The first read of a sealed segment of 1 GiB, from its middle."""
    found, segment = Found(), max(1 << 20, int((1 << 30) * scale))
    value = os.urandom(1 << 15)
    count = segment // len(value) + 200
    node = Node()
    try:
        node.create("t", 1, segment_bytes=str(segment))
        node.fill("t", ((0, None, value) for _ in range(count)), batch_size="1000000")
        node.cluster.stop(1)
        node.cluster.start(1)
        reader = Consumer(
            {"bootstrap.servers": node.cluster.bootstrap, "group.id": "g", "fetch.message.max.bytes": 1 << 16}
        )
        with node.watched(found):
            reader.assign([TopicPartition("t", 0, count // 2)])
            record = reader.poll(60)
            assert record is not None and not record.error()
            reader.assign([TopicPartition("t", 0, 10)])
            assert reader.poll(60) is not None
        reader.close()
        found.text.append(f"a segment of {segment >> 20} MiB")
    finally:
        node.close()
    return found


def compaction(scale: float) -> Found:
    """Compaction of 1,000,000 records of 100 bytes under 500,000 keys."""
    found, count = Found(), max(10_000, int(1_000_000 * scale))
    node = Node(log_cleaner_backoff_ms="500", log_cleaner_enable="true")
    try:
        segment = max(1 << 20, int((16 << 20) * scale))  # only sealed segments are compacted
        node.create("t", 1, cleanup_policy="compact", segment_bytes=str(segment), min_cleanable_dirty_ratio="0.01")
        keys = count // 2
        checkpoint = next(Path(node.cluster.directory).rglob("meta.properties")).parent / "cleaner-offset-checkpoint"

        def cleaned() -> int:
            lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
            return next((int(line.split()[2]) for line in lines if line.startswith("t 0 ")), 0)

        with node.watched(found):
            begin = time.monotonic()
            node.fill("t", ((0, b"%012d" % (i % keys), b"x" * 100) for i in range(count)), batch_size="500000")
            written = time.monotonic() - begin
            wait("compacted", lambda: cleaned() >= count * 0.8)
            took = time.monotonic() - begin
        found.text.append(
            f"{count} records, written in {written:.1f} s, clean after {took:.1f} s: {cleaned() / took:,.0f} records/s"
        )
    finally:
        node.close()
    return found


def large_metadata(scale: float) -> Found:
    """Start a node with the metadata of 200,000 partitions on 50 brokers, asked for /healthz.

    It loads the snapshot, becomes the active controller, and its broker takes its share over: first makes the logs, then finds them.
    """
    partitions, found = max(100, int(200_000 * scale)), Found()
    node = Node()
    try:
        node.cluster.stop(1)
        directory = next(Path(node.cluster.directory).rglob("meta.properties")).parent
        own = grow(directory, partitions)
        for what in ("logs made", "logs there"):
            starting = threading.Thread(target=node.cluster.start, args=(1,))
            begin = time.monotonic()
            starting.start()
            wait("healthz answers", lambda: healthz_ms(node) >= 0)
            longest_ms = 0.0
            while starting.is_alive():
                longest_ms = max(longest_ms, healthz_ms(node))
                time.sleep(PING_EVERY_S)
            lag_ms, took = node.lag_ms(), time.monotonic() - begin
            found.text.append(
                f"{own} {what}: {longest_ms:.0f} ms, loop late {lag_ms:.0f} ms, serving after {took:.1f} s"
            )
            found.longest_ms, found.lag_ms = max(found.longest_ms, longest_ms), max(found.lag_ms, lag_ms)
            node.cluster.stop(1)
        found.text.append(f"{partitions} partitions in all")
    finally:
        node.close()
    return found


def healthz_ms(node: Node, node_id: int = 1) -> float:
    """Return the time until the response of /healthz; -1 if there was none."""
    asked = time.monotonic()
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{node.admin_ports[node_id]}/healthz", timeout=60).read()
    except urllib.error.HTTPError:
        pass
    except OSError:
        return -1
    return (time.monotonic() - asked) * 1000


#: Name, what is measured, the longest wait to reach in ms.
ROWS: dict[str, tuple[Callable[[float], Found], float]] = {
    "delete": (delete, 50),
    "stop": (stop, 50),
    "controller": (controller, 300),
    "coordinators": (coordinators, 50),
    "metadata": (metadata, 50),
    "first-read": (first_read, 20),
    "compaction": (compaction, 20),
    "large-metadata": (large_metadata, 50),
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.loop", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="row", help=f"of {', '.join(ROWS)}; all by default")
    parser.add_argument("--scale", type=float, default=1.0)
    args = parser.parse_args()
    if wrong := set(args.rows) - ROWS.keys():
        parser.error(f"no such row: {', '.join(sorted(wrong))}")
    print("| what | longest wait | loop late | goal | |\n| --- | --- | --- | --- | --- |")
    for name in args.rows or ROWS:
        row, goal_ms = ROWS[name]
        found = row(args.scale)
        missed = " MISSED" if found.longest_ms > goal_ms else ""
        print(
            f"| {(row.__doc__ or name).splitlines()[0]} | {found.longest_ms:.0f} ms | {found.lag_ms:.0f} ms | {goal_ms:.0f} ms{missed} "
            f"| {'; '.join(found.text)} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
