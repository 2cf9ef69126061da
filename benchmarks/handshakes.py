"""The cost of TLS handshakes for a node's memory and for its other clients: `python -m benchmarks.handshakes [--count 5000]
[--only stopped|arriving]`.

stopped    connections that stop in the middle of a handshake, half of them in the middle of their first message: memory, and how
           long a new client then takes to log in (SASL_SSL, SCRAM-SHA-512) and to be answered
arriving   the end-to-end p99 of messages over TLS at a steady rate, of Ottla and of Apache Kafka (RSA-2048 for both): alone, while
           new connections arrive at RATE, each with a complete handshake and one answer, and while they arrive at another node.
           The new clients' processes share the machine's cores: the last is what they alone cost. `--nice 19` lets them wait for
           the server, as if they ran on another machine.
"""

from __future__ import annotations

import argparse
import json
import socket
import ssl
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from typing import Any

from benchmarks.connections import allow_files, handshakes_until, settled_mb
from benchmarks.servers import Server, start_kafka, start_ottla
from benchmarks.turns import run_load
from benchmarks.usage import cpu_seconds
from ottla.testing import Cluster
from tools.apache_kafka import missing

PROCESSES = 4
LOGINS = 20
LOGIN_SECONDS_GOAL = 2
MEMORY_MIB_GOAL = 200
#: New connections per second.
RATE = 500
LOAD = {"topic": "load", "partitions": 1, "rate": 500, "seconds": 10}
ROUNDS = 3
P99_RATIO_GOAL = 2


def hello(ca: str) -> bytes:
    """Return the first message of a client."""
    sent = ssl.MemoryBIO()
    client = ssl.create_default_context(cafile=ca).wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost")
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return sent.read()
    raise AssertionError("a handshake without a server")


def stop_in_the_middle(port: int, ca: str, count: int) -> None:
    """Run one of the processes of `stopped`: it prints a line when the server has answered, and ends with its input."""
    allow_files(count)
    first = hello(ca)
    made = []
    for number in range(count):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.sendall(first if number % 2 else first[: len(first) // 2])
        made.append(connection)
    for connection in made[1::2]:
        connection.recv(1)
    print("stopped", flush=True)
    sys.stdin.readline()


def arrive(port: int, ca: str, rate: float) -> None:
    """Run one of the processes of `arriving`: it opens new connections until its input ends, and prints their number and the
    seconds.
    """
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), ended.set()), daemon=True).start()
    print(json.dumps(handshakes_until(ended.is_set, ("127.0.0.1", port), ca, rate)), flush=True)


class Children:
    """Processes that run one of the functions above."""

    def __init__(self, kind: str, port: int, ca: str, each: float, niceness: int = 0) -> None:
        command = [sys.executable, "-m", "benchmarks.handshakes", "--child", kind, str(port), ca, str(each)]
        command = ["nice", "-n", str(niceness), *command] if niceness else command
        self._all = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(PROCESSES)
        ]

    def lines(self) -> list[str]:
        return [each.stdout.readline() for each in self._all if each.stdout is not None]

    def end(self) -> list[str]:
        return [each.communicate("\n", timeout=60)[0] for each in self._all]


def stopped(count: int) -> None:
    with Cluster(1, secure=True, spoilable=False) as cluster:
        pid = cluster.pid(1)
        cluster.metadata([])
        base = settled_mb(pid)
        children = Children("stopped", *tls_of(cluster), count // PROCESSES)
        children.lines()
        waits = []
        for _ in range(LOGINS):
            begin = time.perf_counter()
            cluster.metadata([])
            waits.append(time.perf_counter() - begin)
        held = settled_mb(pid)
        children.end()
    print(
        f"| {count} stopped handshakes | {held - base:.0f} MB more, {held:.0f} MB in all | goal {MEMORY_MIB_GOAL} MiB |"
    )
    print(f"| longest of {LOGINS} logins meanwhile | {max(waits):.2f} s | goal {LOGIN_SECONDS_GOAL} s |")


def tls_of(cluster: Cluster) -> tuple[int, str]:
    return int(cluster.address(1).rpartition(":")[2]), cluster.client_settings["ssl.ca.location"]


def arriving(niceness: int) -> None:
    without = missing()
    if without:
        print(f"Apache Kafka is left out: {without}", file=sys.stderr)
    with ExitStack() as running:
        other = tls_of(running.enter_context(Cluster(1, secure=True, spoilable=False)))
        for start in [start_ottla] if without else [start_ottla, start_kafka]:
            server = start(1)
            try:
                arriving_at(server, other, niceness)
            finally:
                server.stop()


def arriving_at(server: Server, other: tuple[int, str], niceness: int) -> None:
    own = (server.tls.port, server.tls.ca_file)
    options: dict[str, Any] = {**LOAD, "bootstrap": server.tls.bootstrap, "ca": server.tls.ca_file}
    run_load("create", options)
    found: dict[str, list[float]] = {}
    rates: dict[str, list[float]] = {}
    cpu_us: list[float] = []
    # A JVM compiles what it has run often: the first round is not counted.
    for round_ in range(-1, ROUNDS):
        for beside, target in (("alone", None), ("at another node", other), ("at this node", own)):
            children = Children("arriving", *target, RATE / PROCESSES, niceness) if target else None
            before = cpu_seconds(server.pids)
            p99_ms = run_load("end_to_end", options)["p99_ms"]
            used = cpu_seconds(server.pids) - before
            made = [json.loads(line) for line in children.end()] if children else []
            if round_ < 0:
                continue
            found.setdefault(beside, []).append(p99_ms)
            rates.setdefault(beside, []).append(sum(each["made"] / each["seconds"] for each in made))
            if target is own:
                cpu_us.append(used / sum(each["made"] for each in made) * 1e6)
    alone, besides = sorted(found["alone"])[ROUNDS // 2], sorted(found["at another node"])[ROUNDS // 2]
    for beside, all_ms in found.items():
        median = sorted(all_ms)[ROUNDS // 2]
        verdict = f"{median / alone:.2f}x of alone"
        if beside == "at this node":
            verdict += f" (goal <= {P99_RATIO_GOAL}x), {median / besides:.2f}x of those at another node"
        each = ", ".join(f"{ms:.2f}" for ms in all_ms)
        rate = ", ".join(f"{rate:.0f}" for rate in rates[beside])
        print(f"| {server.name}, new connections/s {beside}: {rate} | p99 {each} ms | {verdict} |", flush=True)
    print(
        f"| {server.name}, CPU per new connection, with the load's | {sorted(cpu_us)[ROUNDS // 2]:.0f} us | |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.handshakes", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--only", choices=("stopped", "arriving"))
    parser.add_argument("--nice", type=int, default=0, help="of the clients that arrive")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        kind, port, ca, each = args.child
        if kind == "stopped":
            stop_in_the_middle(int(port), ca, int(each))
        else:
            arrive(int(port), ca, float(each))
        return
    if args.only != "arriving":
        stopped(args.count)
    if args.only != "stopped":
        arriving(args.nice)


if __name__ == "__main__":
    main()
