"""The clients of `make bench ARGS=steady`, each in a process of its own: the measured load, and clients that are an accident
themselves.

A child prints a line when it is ready, begins at the first line of its input, goes on until the second, and prints its figures.
Clients that are an accident get a low priority (nice), because they would run on other machines.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks import raw
from benchmarks.connections import handshakes_until
from benchmarks.end_to_end import exchanged
from benchmarks.steady.group import rebalancing

Options = dict[str, Any]
#: The nice value with a tenth of a server's share of a core.
NICE = 10
END_SECONDS_MAX = 120


class Child:
    """One client, ready to begin."""

    def __init__(self, name: str, options: Options) -> None:
        command = [sys.executable, "-m", "benchmarks.steady.clients", name, json.dumps(options)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            raise RuntimeError(f"the client {name} did not start")

    def begin(self) -> None:
        self._write_line()

    def stop(self) -> None:
        """Ask the client to end; `figures` waits until it has."""
        self._write_line()

    def _write_line(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def figures(self) -> Any:
        """Return what a stopped child prints. Raises TimeoutExpired if it does not end."""
        out, _ = self._process.communicate(timeout=END_SECONDS_MAX)
        if self._process.returncode:
            raise RuntimeError(f"a client ended with {self._process.returncode}")
        return json.loads(out.splitlines()[-1])

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


# -- In the child --------------------------------------------------------------------------------------------------------


def has_ended() -> bool:
    """Return whether the second line of the input has come."""
    return bool(select.select([sys.stdin], [], [], 0)[0])


def begun(nice: int = NICE) -> None:
    print("ready", flush=True)
    sys.stdin.readline()
    os.nice(nice)


def load(o: Options) -> dict[str, Any]:
    """Send messages at `rate`; return when each was sent (ns of the monotonic clock), and its delay in ms."""
    begun(nice=0)
    found = exchanged({**o, "security": {"log_level": 2}}, lambda _: has_ended())
    return {"sent": found.sent, "sent_ns": found.sent_ns, "delays_ms": found.delays_ms}


def arrive(o: Options) -> dict[str, float]:
    """Make new TLS connections at `rate`, each with a complete handshake and one response."""
    begun()
    return handshakes_until(has_ended, (o["host"], o["port"]), o["ca"], o["rate"])


def read_again(o: Options) -> dict[str, float]:
    """Read one partition from its beginning, again and again, until it is ended and has read `bytes`."""
    address = (o["host"], o["port"])
    topic_id, conn = raw.topic_id(address, o["topic"]), socket.create_connection(address)
    conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    reading, offset, got = raw.Reading(conn), 0, 0
    begun()
    begin = time.perf_counter()
    while got < o["bytes"] or not has_ended():
        conn.sendall(raw.fetch_frame(topic_id, 0, max(0, offset), max_wait_ms=0))
        while not reading.read():
            pass
        error, position, end = raw.records_of(reading.view)
        assert not error, f"error {error} of a Fetch"
        got += end - position
        offset = raw.next_offset(reading.view, position, end)
        reading.have = 0
    return {"bytes": got, "seconds": time.perf_counter() - begin}


def fill(o: Options) -> dict[str, float]:
    """Records of a kilobyte at this many megabytes a second, to all partitions in turn."""
    from confluent_kafka import Producer

    errors = sent = 0

    def delivered(error: object, _: object) -> None:
        nonlocal errors
        errors += error is not None

    producer = Producer({"bootstrap.servers": o["bootstrap"], "linger.ms": 20, "partitioner": "random", "log_level": 2})
    body = os.urandom(1_000)
    begun()
    begin = time.perf_counter()
    while not has_ended():
        producer.produce(o["topic"], body, on_delivery=delivered)
        sent += 1
        producer.poll(max(0.0, begin + sent / (o["megabytes"] * 1_000) - time.perf_counter()))
    errors += producer.flush(60)
    return {"sent": sent, "errors": errors}


def group(o: Options) -> dict[str, float]:
    """Run a classic group of `members` that rebalances again and again."""
    return asyncio.run(rebalancing(o, begun, has_ended))


CLIENTS: dict[str, Callable[[Options], Any]] = {
    "arrive": arrive,
    "fill": fill,
    "group": group,
    "load": load,
    "read": read_again,
}

if __name__ == "__main__":
    print(json.dumps(CLIENTS[sys.argv[1]](json.loads(sys.argv[2]))), flush=True)
