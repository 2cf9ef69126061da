"""A node is watched while it does something large: its longest turn by its own gauge, and the longest wait of a client that
pings.

`python -m benchmarks.watched PORT` is that client. It is a process of its own, because a client in the benchmark's process
would wait for the benchmark, too.
"""

from __future__ import annotations

import json
import re
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import Cluster

PING = struct.pack(">ihhih", 10, 18, 0, 1, -1)  # ApiVersions v0
PING_EVERY_S = 0.002
WAIT_SECONDS_MAX = 300


@dataclass
class Found:
    """The result of a row in words, with `longest_ms` of the pings and `lag_ms` of the node's gauge."""

    longest_ms: float = 0.0
    lag_ms: float = 0.0
    text: list[str] = field(default_factory=list)


class Pings:
    """A pinging client in a separate process, so that it does not wait for this process."""

    def __init__(self, port: int) -> None:
        command = [sys.executable, "-m", "benchmarks.watched", str(port)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def longest_ms(self) -> float:
        out, _ = self._process.communicate("\n", timeout=60)
        return float(json.loads(out)["longest_ms"])


def ping(port: int) -> None:
    """Run the client of `Pings` until its input or the node ends."""
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), ended.set()), daemon=True).start()
    longest = 0.0
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        print("ready", flush=True)
        while not ended.is_set():
            begin = time.perf_counter()
            try:
                connection.sendall(PING)
                if not read_frame(connection):
                    break
            except OSError:
                break
            longest = max(longest, time.perf_counter() - begin)
            time.sleep(PING_EVERY_S)
    print(json.dumps({"longest_ms": longest * 1000}), flush=True)


def read_frame(connection: socket.socket) -> int:
    """Return the size of the next frame, 0 at the end of the stream."""
    head = connection.recv(4, socket.MSG_WAITALL)
    if len(head) < 4:
        return 0
    left = size = int(struct.unpack(">i", head)[0])
    while left:
        piece = len(connection.recv(min(left, 1 << 20)))
        if not piece:
            return 0
        left -= piece
    return size


class Node:
    """One node, or the first of several, with its metrics."""

    def __init__(self, nodes: int = 1, **properties: str) -> None:
        self.admin_ports = {node_id: free_port() for node_id in range(1, nodes + 1)}
        own = {n: {"ottla.admin.listener": f"127.0.0.1:{port}"} for n, port in self.admin_ports.items()}
        self.cluster = Cluster(nodes, per_node=own, spoilable=False, **properties)
        self.cluster.__enter__()
        self.admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap})

    def close(self) -> None:
        self.cluster.close()

    def port(self, node_id: int = 1) -> int:
        return int(self.cluster.address(node_id).rpartition(":")[2])

    def lag_ms(self, node_id: int = 1) -> float:
        """Return the longest delay of the event loop since the last call."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin_ports[node_id]}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        found = re.search(r"^ottla_event_loop_lag_ms_max (\S+)", text, re.M)
        return float(found[1]) if found else -1.0

    def create(self, name: str, partitions: int, replicas: int = 1, **configs: str) -> None:
        config = {key.replace("_", "."): value for key, value in configs.items()}
        # 120 s, because librdkafka's default is a minute. A topic of 5,000 partitions takes less.
        self.admin.create_topics([NewTopic(name, partitions, replicas, config=config)])[name].result(120)

    def fill(self, topic: str, records: Iterator[tuple[int, bytes | None, bytes]], **options: str) -> int:
        """Produce records, each with partition, key and value; return how many were acknowledged."""
        settings = {"bootstrap.servers": self.cluster.bootstrap, "linger.ms": 20, "queue.buffering.max.kbytes": 65536}
        producer = Producer(settings | {key.replace("_", "."): value for key, value in options.items()})
        count = 0
        for partition, key, value in records:
            while True:
                try:
                    producer.produce(topic, value, key, partition=partition)
                    break
                except BufferError:
                    producer.poll(0.1)
            count += 1
        left = producer.flush(WAIT_SECONDS_MAX)
        assert not left, f"{left} records of {topic} are not acknowledged"
        return count

    @contextmanager
    def watched(self, found: Found) -> Iterator[None]:
        """Watch the node while the body runs, which is what the row measures."""
        pings = Pings(self.port())
        time.sleep(0.3)
        self.lag_ms()
        try:
            yield
        finally:
            time.sleep(0.3)
            found.longest_ms = pings.longest_ms()
            found.lag_ms = self.lag_ms()


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def wait(what: str, is_so: Callable[[], bool], seconds: float = WAIT_SECONDS_MAX) -> float:
    """Wait until `is_so` returns True; return the seconds."""
    begin = time.monotonic()
    while not is_so():
        if time.monotonic() - begin > seconds:
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(0.05)
    return time.monotonic() - begin


if __name__ == "__main__":
    ping(int(sys.argv[1]))
