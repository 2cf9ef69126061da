"""A node that was away catches up: `python -m benchmarks.catch_up [--gigabytes N] [--server ottla kafka]`.

Three nodes, replication factor 3. One is stopped, and N GB are produced (records of 1 KB, batches of 64 KB, 6 partitions). Then it is
started, and its rate is those bytes by the time until it is in sync in each partition again. Beside that, and before all of it, there
are 20 MB/s of Produces of 20 KB with acks=all to another topic, sent when they are due whatever the answers do: how long these take.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import raw
from benchmarks.servers import Server, start_kafka, start_ottla
from benchmarks.turns import run_load
from benchmarks.usage import MachineTime, cpu_seconds

NODES = 3
PARTITIONS = 6
#: The topic of the bytes that the node has missed, and the topic of the steady load.
MISSED, STEADY = "missed", "steady"
CONNECTIONS_PER_PARTITION = 8
STEADY_BYTES = 20_000
STEADY_PER_S = 1_000
BEFORE_SECONDS = 8.0
AWAY_SECONDS_MAX = 900
LOOK_SECONDS = 0.1
GOAL_MB_PER_S = 200
GOAL_P99 = 2


@dataclass
class Due:
    """A connection with the frame that it sends, and the time at which it should have sent its current Produce."""

    conn: socket.socket
    frame: bytes
    due: float = 0.0
    reply: bytes = b""


def steady(leaders: list[tuple[str, int]]) -> dict[str, float]:
    """Send Produces at the rate until stdin is closed. The time of a Produce that waits for a free connection begins when it
    was due.
    """
    selector = selectors.DefaultSelector()
    selector.register(sys.stdin, selectors.EVENT_READ)
    batch = raw.one_record_batch(os.urandom(STEADY_BYTES))
    free: deque[Due] = deque()
    for _ in range(CONNECTIONS_PER_PARTITION):
        for partition, leader in enumerate(leaders):
            conn = socket.create_connection(leader)
            conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            each = Due(conn, raw.produce_frame(STEADY, partition, batch))
            selector.register(conn, selectors.EVENT_READ, each)
            free.append(each)
    chance = random.Random(1)
    waiting: deque[float] = deque()
    delays: list[float] = []
    errors = 0
    due = time.perf_counter()
    while True:
        while due <= time.perf_counter():
            waiting.append(due)
            due += chance.expovariate(STEADY_PER_S)
        while waiting and free:
            each = free.popleft()
            each.due = waiting.popleft()
            each.conn.sendall(each.frame)
        for key, _ in selector.select(max(0.0, due - time.perf_counter())):
            if key.data is None:
                delays.sort()
                return {
                    "p50 ms": delays[len(delays) // 2] * 1e3,
                    "p99 ms": delays[int(len(delays) * 0.99)] * 1e3,
                    "errors": errors,
                }
            each = key.data
            each.reply += each.conn.recv(4096)
            if len(each.reply) < 4 or len(each.reply) < 4 + struct.unpack_from(">i", each.reply)[0]:
                continue
            errors += raw.produce_error(each.reply, STEADY) != 0
            each.reply = b""
            delays.append(time.perf_counter() - each.due)
            free.append(each)


class SteadyLoad:
    """Runs `steady` in a process of its own."""

    def __init__(self, leaders: list[tuple[str, int]]) -> None:
        command = [sys.executable, "-m", "benchmarks.catch_up", "--steady", json.dumps(leaders)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def stop(self) -> dict[str, float]:
        found: dict[str, float] = json.loads(self._process.communicate("")[0])
        return found


def create(server: Server) -> AdminClient:
    """Create the topics. The third node leads no partition, so that its stop changes no leader."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    ids = sorted(admin.list_topics(timeout=30).brokers)
    first, second, third = ids
    assignment = [[first, second, third] if index % 2 else [second, first, third] for index in range(PARTITIONS)]
    configs = {"min.insync.replicas": "2"}
    topics = [NewTopic(name, PARTITIONS, replica_assignment=assignment, config=configs) for name in (MISSED, STEADY)]
    for created in admin.create_topics(topics).values():
        created.result(30)
    wait_for_replicas(admin, NODES)
    return admin


def wait_for_replicas(admin: AdminClient, count: int) -> None:
    """Wait until `count` replicas are in sync in each partition of both topics."""
    until = time.monotonic() + AWAY_SECONDS_MAX
    while time.monotonic() < until:
        topics = admin.list_topics(timeout=30).topics
        partitions = [each for name in (MISSED, STEADY) for each in topics[name].partitions.values()]
        if all(len(each.isrs) == count for each in partitions):
            return
        time.sleep(LOOK_SECONDS)
    raise TimeoutError(f"not {count} replicas in sync after {AWAY_SECONDS_MAX} s")


def leaders(admin: AdminClient) -> list[tuple[str, int]]:
    metadata = admin.list_topics(timeout=30)
    brokers = [metadata.brokers[each.leader] for each in metadata.topics[STEADY].partitions.values()]
    return [(broker.host, broker.port) for broker in brokers]


def measure(start: Callable[[int], Server], gigabytes: float) -> dict[str, Any]:
    server = start(NODES)
    try:
        admin = create(server)
        load = SteadyLoad(leaders(admin))
        time.sleep(BEFORE_SECONDS)
        load.stop()  # drop the measurements of the cold servers
        load = SteadyLoad(leaders(admin))
        time.sleep(BEFORE_SECONDS)
        before = load.stop()
        away = server.pids[NODES - 1]
        os.kill(away, signal.SIGTERM)
        os.waitid(os.P_PID, away, os.WEXITED | os.WNOWAIT)
        wait_for_replicas(admin, NODES - 1)
        count = round(gigabytes * 1e6)
        produced = run_load("produce", {"bootstrap": server.bootstrap, "topic": MISSED, "count": count, "size": 1000})
        assert not produced["errors"], produced
        load = SteadyLoad(leaders(admin))
        time.sleep(1)
        clock, used = MachineTime.now(), cpu_seconds(server.pids[: NODES - 1])
        began = time.monotonic()
        server.restart(NODES - 1)
        wait_for_replicas(admin, NODES)
        took = time.monotonic() - began
        used = cpu_seconds(server.pids[: NODES - 1]) - used
        own = cpu_seconds([server.pids[NODES - 1]])
        beside = load.stop()
        return {
            "produced MB/s": produced["mb_per_s"],
            "caught up MB/s": gigabytes * 1e3 / took,
            "after s": took,
            "leaders' CPU s/GB": used / gigabytes,
            "follower's CPU s/GB": own / gigabytes,
            "p50 before": before["p50 ms"],
            "p50 beside": beside["p50 ms"],
            "p99 before": before["p99 ms"],
            "p99 beside": beside["p99 ms"],
            "errors": before["errors"] + beside["errors"],
            "stolen %": clock.stolen_percent(),
        }
    finally:
        server.stop()


SERVERS = {"ottla": start_ottla, "kafka": start_kafka}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--server", nargs="*", choices=SERVERS, default=["ottla"])
    parser.add_argument("--steady", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.steady:
        print(json.dumps(steady([(host, port) for host, port in json.loads(arguments.steady)])))
        return
    for name in arguments.server:
        found = measure(SERVERS[name], arguments.gigabytes)
        print(
            f"{name}, {arguments.gigabytes:g} GB: " + ", ".join(f"{value:,.2f} {key}" for key, value in found.items())
        )
        print(
            f"  goals: {GOAL_MB_PER_S} MB/s {'met' if found['caught up MB/s'] >= GOAL_MB_PER_S else 'MISSED'}, p99 at most "
            f"{GOAL_P99}x: {found['p99 beside'] / found['p99 before']:.2f}x "
            f"{'met' if found['p99 beside'] <= GOAL_P99 * found['p99 before'] else 'MISSED'}"
        )


if __name__ == "__main__":
    main()
