"""The parts of the end-to-end p99 of 500 messages a second: `python -m benchmarks.latency`. benchmarks/performance-log.md has a
run.

Two loads, each on the null broker (nothing but two sockets and an event loop), on Ottla and on Apache Kafka, in turns:

    raw           one thread with plain sockets, one Produce v7 every 2 ms and one Fetch v4 that waits
    librdkafka    the load of `make bench`: a producer and a consumer, a process each

Parts of a message's time with raw sockets, in ms. The kernel's time stamp of the Fetch's response divides it in two:

    server        until the response is in the client's socket
      its CPU         what the server's thread has worked until the next message
      waits           how long it could have worked but had no core
    client        from there until the client has read it
"""

from __future__ import annotations

import argparse
import selectors
import socket
import statistics
import struct
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias

from benchmarks import raw
from benchmarks.rows import STEADY
from benchmarks.servers import NullServer, start_kafka, start_ottla
from benchmarks.turns import run_load
from benchmarks.usage import MachineTime
from tools.apache_kafka import missing

SO_TIMESTAMPING, SCM_TIMESTAMPING = 37, 37
RECEIVED, BY_SOFTWARE = 1 << 3, 1 << 4
WARM_MESSAGES = 500
RATE = 500
FETCH_WAIT_MS = 500


class Stamped:
    """A connection that returns each frame with the kernel's time of its last segment, in ns of CLOCK_REALTIME."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, RECEIVED | BY_SOFTWARE)
        self._data = b""

    def read(self) -> tuple[bytes, int] | None:
        """Receive once; return the frame when it is complete."""
        data, controls, _, _ = self.socket.recvmsg(1 << 20, 128)
        if not data:
            raise ConnectionError("closed")
        self._data += data
        if len(self._data) < 4 or len(self._data) < 4 + struct.unpack_from(">i", self._data)[0]:
            return None
        frame, self._data = self._data, b""
        stamps = [
            content for level, kind, content in controls if (level, kind) == (socket.SOL_SOCKET, SCM_TIMESTAMPING)
        ]
        seconds, ns = struct.unpack_from("qq", stamps[0])
        return frame, seconds * 1_000_000_000 + ns


#: The parts of one message's time, in ms.
Parts: TypeAlias = dict[str, float]


def trace(address: tuple[str, int], pid: int, topic: str, seconds: float) -> list[Parts]:
    producer, consumer = Stamped(address), Stamped(address)
    frame = raw.produce_frame(topic, 0, raw.one_record_batch(bytes(100)))
    topic_id, offset = raw.topic_id(address, topic), last_offset(address, topic)
    selector = selectors.DefaultSelector()
    for connection in (producer, consumer):
        selector.register(connection.socket, selectors.EVENT_READ, connection)
    consumer.socket.sendall(raw.fetch_frame(topic_id, 0, offset))
    time.sleep(FETCH_WAIT_MS / 2000)
    found: list[Parts] = []
    used = thread_times_ns(pid)
    begin = time.monotonic()
    for number in range(WARM_MESSAGES + int(RATE * seconds)):
        while (wait := begin + number / RATE - time.monotonic()) > 0:
            time.sleep(wait)
        before, used = used, thread_times_ns(pid)
        if found:
            found[-1] |= {"its CPU": (used[0] - before[0]) / 1e6, "waits": (used[1] - before[1]) / 1e6}
        sent = time.time_ns()
        producer.socket.sendall(frame)
        acknowledged = fetched = 0
        while not acknowledged or not fetched:
            for key, _ in selector.select(5):
                whole = key.data.read()
                now = time.time_ns()
                if whole is None:
                    continue
                reply, stamp = whole
                if key.data is producer:
                    assert raw.produce_error(reply, topic) == 0
                    acknowledged = stamp
                    continue
                error, position, end = raw.records_of(memoryview(reply))
                assert error == 0
                if end > position:
                    fetched, read = stamp, now
                    offset = raw.next_offset(memoryview(reply), position, end)
                consumer.socket.sendall(raw.fetch_frame(topic_id, 0, offset))
        found.append({"all": (read - sent) / 1e6, "server": (fetched - sent) / 1e6, "client": (read - fetched) / 1e6})
    return found[WARM_MESSAGES:-1]


def thread_times_ns(pid: int) -> tuple[int, int]:
    """Return two times of the process's first thread: on a core, and ready to run without a core."""
    running, waiting, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
    return int(running), int(waiting)


def last_offset(address: tuple[str, int], topic: str) -> int:
    """Return the last offset, by ListOffsets v1."""
    name = topic.encode()
    body = struct.pack(">iih", -1, 1, len(name)) + name + struct.pack(">iiq", 1, 0, -1)
    head = struct.pack(">hhih", 2, 1, 1, 5) + b"bench"
    with socket.create_connection(address) as connection:
        connection.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        reply = connection.recv(4096)
    return int(struct.unpack_from(">q", reply, len(reply) - 8)[0])


def lines_of(name: str, runs: list[list[Parts]]) -> list[str]:
    """Return the p50 and the p99 of each part, and the mean of each part in the slowest 1 % of the messages."""
    messages = sorted((message for run in runs for message in run), key=lambda message: message["all"])
    slowest = messages[int(len(messages) * 0.99) :]
    lines = []
    for part in ("all", "server", "its CPU", "waits", "client"):
        each = sorted(message[part] for message in messages)
        of_slowest = statistics.mean(message[part] for message in slowest)
        if name == "kafka" and part in ("its CPU", "waits"):
            continue  # it has many threads
        figures = (each[len(each) // 2], each[int(len(each) * 0.99)], of_slowest)
        lines.append(f"| {name}, raw: {part} | {' | '.join(f'{ms:.3f}' for ms in figures)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.latency", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--warm-seconds", type=float, default=30.0, help="of Kafka")
    parser.add_argument("--no-kafka", action="store_true")
    args = parser.parse_args()
    reason = "left out by --no-kafka" if args.no_kafka else missing()
    with ExitStack() as stack:
        null = stack.enter_context(NullServer.of("null_broker"))
        servers = [("null", f"127.0.0.1:{null.port}", null.pid)]
        for start in (start_ottla,) if reason else (start_ottla, start_kafka):
            server = start(1)
            stack.callback(server.stop)
            servers.append((server.name, server.bootstrap, server.pids[0]))
            run_load("create", {"bootstrap": server.bootstrap, "topic": "t", "partitions": 1})
        load = {**STEADY, "topic": "t", "seconds": args.seconds}
        until = time.monotonic() + (0 if reason else args.warm_seconds)
        while time.monotonic() < until:
            run_load("end_to_end", {**load, "bootstrap": servers[-1][1], "rate": 5000})
        clock = MachineTime.now()
        raws: dict[str, list[list[Parts]]] = {name: [] for name, _, _ in servers}
        whole: dict[str, list[dict[str, float]]] = {name: [] for name, _, _ in servers}
        for _ in range(args.turns):
            for name, bootstrap, pid in servers:
                host, _, port = bootstrap.partition(":")
                raws[name].append(trace((host, int(port)), pid, "t", args.seconds))
                whole[name].append(run_load("end_to_end", {**load, "bootstrap": bootstrap}))
    print(f"{args.turns} turns of {args.seconds:.0f} s each, stolen {clock.stolen_percent():.1f} %\n")
    print("| ms | p50 | p99 | slowest 1 %, mean |\n| --- | --- | --- | --- |")
    for name, _, _ in servers:
        print("\n".join(lines_of(name, raws[name])))
        p50, p99 = (statistics.median(run[key] for run in whole[name]) for key in ("p50_ms", "p99_ms"))
        each = ", ".join(f"{run['p99_ms']:.2f}" for run in whole[name])
        print(f"| {name}, librdkafka | {p50:.3f} | {p99:.3f} | (p99 of each turn: {each}) |")


if __name__ == "__main__":
    main()
