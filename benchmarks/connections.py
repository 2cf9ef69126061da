"""The cost of 5,000 connections for one node: `python -m benchmarks.connections [--count 5000]`.

Figures of a node that answers ApiVersions to another client meanwhile (that client's longest wait is printed beside them):

    accepted    new connections per second, each with one ApiVersions answered, from four processes; once more beside a
                client that keeps 32 connections busy without a pause
    idle        memory of a connection that has been answered once and then sends nothing
    active      requests per second of 500 connections that are kept busy, alone and beside the idle ones
    unfinished  memory of connections that each declare a frame of 100 MiB and send 100 bytes of it
    given back  memory that is left of all of this one second after the last of them was closed
"""

from __future__ import annotations

import argparse
import json
import resource
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.usage import cpu_seconds
from benchmarks.watched import PING, Node, Pings, read_frame

PROCESSES = 4
FLOODING = 32
ACTIVE = 500
ACTIVE_SECONDS = 5
UNFINISHED = struct.pack(">i", 100 << 20) + bytes(96)
SETTLE_SECONDS_MAX = 30


def open_many(port: int, count: int) -> list[socket.socket]:
    """Open connections, each of which has been answered once, and return them."""
    made = []
    for _ in range(count):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.sendall(PING)
        assert read_frame(connection)
        made.append(connection)
    return made


def child(port: int, count: int) -> None:
    """Run one of the processes that open connections: it prints its seconds, then sends its input as the beginning of a frame
    on each connection, and ends.
    """
    allow_files(count)
    print("ready", flush=True)
    sys.stdin.readline()
    begin = time.perf_counter()
    made = open_many(port, count)
    print(json.dumps({"seconds": time.perf_counter() - begin}), flush=True)
    sys.stdin.readline()
    for connection in made:
        connection.sendall(UNFINISHED)
    print("sent", flush=True)
    sys.stdin.readline()


def flood(port: int, count: int) -> None:
    """Send requests without a pause on `count` connections until the input ends; print how many were answered per second."""
    made = open_many(port, count)
    ended = threading.Event()
    print("ready", flush=True)
    threading.Thread(target=lambda: (sys.stdin.readline(), ended.set()), daemon=True).start()
    begin, answered = time.perf_counter(), 0
    while not ended.is_set():
        for connection in made:
            connection.sendall(PING)
        for connection in made:
            read_frame(connection)
        answered += len(made)
    print(f"{answered / (time.perf_counter() - begin):,.0f}", flush=True)


def handshakes_until(has_ended: Callable[[], bool], address: tuple[str, int], ca: str, rate: float) -> dict[str, float]:
    """Make new TLS connections at `rate` a second, each with a complete handshake and one response; return their number and the
    seconds.
    """
    context = ssl.create_default_context(cafile=ca)
    context.check_hostname = False
    made, begin = 0, time.perf_counter()
    while not has_ended():
        with (
            socket.create_connection(address) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as connection,
        ):
            connection.sendall(PING)
            assert connection.recv(4)
        made += 1
        time.sleep(max(0.0, begin + made / rate - time.perf_counter()))
    return {"made": made, "seconds": time.perf_counter() - begin}


def allow_files(count: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, count + 1000), hard))


class Children:
    """The processes of `child`. They take each step together."""

    def __init__(self, port: int, count: int) -> None:
        command = [sys.executable, "-m", "benchmarks.connections", "--child", str(port)]
        command += ["--count", str(count // PROCESSES)]
        self._all = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(PROCESSES)
        ]
        self._lines()

    def step(self) -> list[str]:
        for each in self._all:
            assert each.stdin is not None
            each.stdin.write("\n")
            each.stdin.flush()
        return self._lines()

    def end(self) -> None:
        for each in self._all:
            each.communicate("\n", timeout=60)

    def _lines(self) -> list[str]:
        lines = []
        for each in self._all:
            assert each.stdout is not None
            lines.append(each.stdout.readline())
        return lines


def resident_mb(pid: int) -> float:
    """Return the heap and the stacks of the process, without the kernel's buffers of its sockets."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Anonymous:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("smaps_rollup has no line Anonymous")


def settled_mb(pid: int) -> float:
    """Return the memory once it has not changed by 0.1 MB for a second."""
    end = time.monotonic() + SETTLE_SECONDS_MAX
    before, now = -1.0, resident_mb(pid)
    while abs(now - before) > 0.1 and time.monotonic() < end:
        time.sleep(1)
        before, now = now, resident_mb(pid)
    return now


def flooding(port: int, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.connections", "--flood", str(port), "--count", str(count)]
    load = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert load.stdout is not None
    load.stdout.readline()
    return load


def answered_to_active(port: int, pid: int) -> tuple[str, float]:
    """Return the requests per second of busy connections, and the node's CPU microseconds for each request."""
    load = flooding(port, ACTIVE)
    begin, used = time.perf_counter(), cpu_seconds([pid])
    time.sleep(ACTIVE_SECONDS)
    used, took = cpu_seconds([pid]) - used, time.perf_counter() - begin
    answered, _ = load.communicate("\n", timeout=60)
    per_second = answered.strip()
    return per_second, used / took / float(per_second.replace(",", "")) * 1e6


def opened_beside_a_load(port: int, count: int) -> tuple[float, str]:
    """Return the new connections per second, and the requests per second of the load beside them."""
    load = flooding(port, FLOODING)
    children = Children(port, count)
    begin = time.perf_counter()
    children.step()
    seconds = time.perf_counter() - begin
    answered, _ = load.communicate("\n", timeout=60)
    children.step()
    children.end()
    return count / seconds, answered.strip()


def measure(count: int) -> None:
    node = Node(1, **{"max.connections": str(count + 1000)})
    try:
        pid = node.cluster.pid(1)
        pings = Pings(node.port())
        alone, alone_us = answered_to_active(node.port(), pid)
        base = settled_mb(pid)
        children = Children(node.port(), count)
        begin = time.perf_counter()
        children.step()
        seconds = time.perf_counter() - begin
        idle = settled_mb(pid)
        active, active_us = answered_to_active(node.port(), pid)
        children.step()
        unfinished = settled_mb(pid)
        children.end()
        left = settled_mb(pid)
        beside, answered = opened_beside_a_load(node.port(), count)
        print(f"| accepted and answered once | {count / seconds:,.0f}/s | goal 2,000/s |")
        print(f"| the same beside {answered} requests/s on {FLOODING} connections | {beside:,.0f}/s | goal 2,000/s |")
        print(f"| idle | {(idle - base) * 1024 / count:.1f} KB each, {idle - base:.0f} MB | goal 20 KB each |")
        print(
            f"| {ACTIVE} active beside them | {active}/s, {active_us:.1f} us of CPU each | alone {alone}/s, {alone_us:.1f} us |"
        )
        print(
            f"| unfinished frames of 100 MiB | {unfinished - base:.0f} MB more, {unfinished:.0f} MB in all | goal 200 MiB |"
        )
        print(f"| after all were closed | {left - base:.1f} MB more than before | given back |")
        print(f"| longest wait of another client | {pings.longest_ms():.0f} ms | |")
    finally:
        node.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.connections", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--child", type=int, metavar="PORT", help=argparse.SUPPRESS)
    parser.add_argument("--flood", type=int, metavar="PORT", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.flood:
        flood(args.flood, args.count)
    elif args.child:
        child(args.child, args.count)
    else:
        measure(args.count)


if __name__ == "__main__":
    main()
