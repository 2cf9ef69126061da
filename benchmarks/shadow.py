"""Measure what a client pays for `ottla record` and `ottla shadow`: `python -m benchmarks.shadow`. benchmarks/performance-log.md has a run.

One thread with plain sockets sends a Produce every 2 ms and waits for its response and for a Fetch that returns the record, as
benchmarks.latency does; each way in turns, so that what else the machine does meets all of them:

    direct     to the node
    proxy      through a proxy that does nothing with what passes: the baseline of the others
    record     through `ottla record`
    shadow     through `ottla shadow`, whose second cluster is a node
    stalling   the same, with a second node that stands still for half of each 0.1 s
    hung       the same, with one that stands still
    gone       the same, with one that is killed after the first requests
"""

from __future__ import annotations

import argparse
import asyncio
import os
import selectors
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks import raw
from benchmarks.latency import RATE, WARM_MESSAGES, Stamped
from benchmarks.turns import run_load
from benchmarks.usage import MachineTime, cpu_seconds
from ottla.cli.commands.record import SECURITY, proxied, until_interrupted
from ottla.server.world import RealWorld
from ottla.testing import Cluster
from ottla.traffic.entries import Opened

#: A shadow may cost this much of the p99 through the proxy alone (docs/TRAFFIC.md).
COST_GOAL = 1.05
STALL_SECONDS = 0.05
LATE_SECONDS_MAX = 30


class Way(NamedTuple):
    """What a load goes through, and the process that it pays for; `second` is the other cluster."""

    name: str
    address: tuple[str, int]
    topic: str
    pid: int
    second: Cluster | None = None


class Nothing:
    """A tap that does nothing."""

    def opened(self, connection: int, ends: Opened) -> None: ...
    def closed(self, connection: int) -> None: ...
    def request(self, *_: object) -> None: ...
    def response(self, *_: object) -> None: ...


async def proxy_alone(to: str) -> None:
    real = RealWorld(asyncio.get_running_loop())
    async with proxied(real.world, "127.0.0.1:0", to, Nothing(), SECURITY):
        await until_interrupted()
    await real.close()


def load(way: Way, seconds: float) -> tuple[list[float], list[float]]:
    """Return the milliseconds until each record was acknowledged, and until it was read."""
    producer, consumer = Stamped(way.address), Stamped(way.address)
    frame = raw.produce_frame(way.topic, 0, raw.one_record_batch(bytes(100)))
    selector = selectors.DefaultSelector()
    for each in (producer, consumer):
        selector.register(each.socket, selectors.EVENT_READ, each)
    offset, acknowledged, read = -1, [], []
    begin = time.monotonic()
    for number in range(WARM_MESSAGES + int(RATE * seconds)):
        while (wait := begin + number / RATE - time.monotonic()) > 0:
            time.sleep(wait)
        sent = time.perf_counter()
        producer.socket.sendall(frame)
        while len(acknowledged) <= number or len(read) <= number:
            for key, _ in selector.select(LATE_SECONDS_MAX):
                if (whole := key.data.read()) is None:
                    continue
                took = (time.perf_counter() - sent) * 1e3
                if key.data is producer:
                    assert raw.produce_error(whole[0], way.topic) == 0
                    acknowledged.append(took)
                    if offset < 0:
                        offset = _base_offset(whole[0], way.topic)
                        consumer.socket.sendall(raw.fetch_frame(way.topic, 0, offset))
                    continue
                error, position, end = raw.records_of(memoryview(whole[0]), way.topic)
                assert error == 0
                if end > position:
                    offset = raw.next_offset(memoryview(whole[0]), position, end)
                    read.append(took)
                consumer.socket.sendall(raw.fetch_frame(way.topic, 0, offset))
    for each in (producer, consumer):
        each.socket.close()
    return acknowledged[WARM_MESSAGES:], read[WARM_MESSAGES:]


def _base_offset(reply: bytes, topic: str) -> int:
    """Return the base offset of a whole Produce v7 response for one partition."""
    at = 4 + 4 + 4 + 2 + len(topic) + 4 + 4 + 2
    return int.from_bytes(reply[at : at + 8], "big", signed=True)


def started(stack: ExitStack, *words: str) -> tuple[tuple[str, int], int]:
    """Start a proxy; its address and process."""
    process = subprocess.Popen([sys.executable, *words], stderr=subprocess.PIPE, text=True)

    def end() -> None:
        """Kill the proxy, and the shadow's process, which may have to go through much."""
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for pid in (process.pid, *map(int, children)):
            os.kill(pid, signal.SIGKILL)
        process.wait()

    stack.callback(end)
    assert process.stderr is not None
    line = process.stderr.readline()
    host, _, port = line.rpartition(" ")[2].strip().rpartition(":")
    threading.Thread(target=process.stderr.read, daemon=True).start()
    return (host, int(port)), process.pid


@contextmanager
def beside(way: Way) -> Iterator[None]:
    """Have the second cluster as its way wants it."""
    second, over = way.second, threading.Event()
    if second is None or way.name == "shadow":
        yield
        return
    if way.name == "gone":
        if second.is_running(1):
            second.kill(1)
        yield
        return

    def stall() -> None:
        while not over.is_set():
            second.pause(1)
            over.wait(STALL_SECONDS)
            second.resume(1)
            over.wait(STALL_SECONDS)

    if way.name == "stalling":
        thread = threading.Thread(target=stall)
        thread.start()
        yield
        over.set()
        thread.join()
    else:
        second.pause(1)
        yield
        second.resume(1)


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.shadow", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=4.0, help="of each way in each turn")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--proxy", metavar="TO", help="only run a proxy that does nothing with what passes")
    args = parser.parse_args()
    if args.proxy:
        asyncio.run(proxy_alone(args.proxy))
        return
    found: dict[str, tuple[list[float], list[float], list[float]]] = {}
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        first = stack.enter_context(Cluster(1, spoilable=False))
        host, _, port = first.bootstrap.partition(":")
        ways = [Way("direct", (host, int(port)), "direct", first.pid(1))]
        ways.append(Way("proxy", *_named(stack, "proxy", "-m", "benchmarks.shadow", "--proxy", first.bootstrap)))
        listen = ("--listen", "127.0.0.1:0", "--to", first.bootstrap)
        file = str(Path(folder) / "recording")
        ways.append(Way("record", *_named(stack, "record", "-m", "ottla", "record", file, *listen)))
        for name in ("shadow", "stalling", "hung", "gone"):
            second = stack.enter_context(Cluster(1, spoilable=False))
            run_load("create", {"bootstrap": second.bootstrap, "topic": name, "partitions": 1})
            words = ("-m", "ottla", "shadow", *listen, "--shadow", second.bootstrap)
            ways.append(Way(name, *_named(stack, name, *words), second))
        for way in ways:
            run_load("create", {"bootstrap": first.bootstrap, "topic": way.topic, "partitions": 1})
        clock = MachineTime.now()
        for turn in range(args.turns):
            for way in ways if turn % 2 else reversed(ways):
                used = cpu_seconds([way.pid])
                with beside(way):
                    acknowledged, read = load(way, args.seconds)
                each = found.setdefault(way.name, ([], [], []))
                each[0].append(_p(acknowledged, 0.99))
                each[1].append(_p(read, 0.99))
                each[2].append((cpu_seconds([way.pid]) - used) / (len(read) + WARM_MESSAGES) * 1e6)
    print(f"{args.turns} turns of {args.seconds:.0f} s each, stolen {clock.stolen_percent():.1f} %\n")
    print("| | p99 acknowledged, ms | p99 read, ms | of the proxy alone | CPU of the process, us a record |")
    print("| --- | --- | --- | --- | --- |")
    for name, (acknowledged, read, used) in found.items():
        ratios = [mine / base for mine, base in zip(read, found["proxy"][1], strict=True)]
        cells = [
            *(f"{statistics.median(each):.3f} ({min(each):.3f}-{max(each):.3f})" for each in (acknowledged, read)),
            f"{statistics.median(ratios):.2f}",
            f"{statistics.median(used):.0f}",
        ]
        print(f"| {name} | {' | '.join(cells)} |")


def _named(stack: ExitStack, name: str, *words: str) -> tuple[tuple[str, int], str, int]:
    address, pid = started(stack, *words)
    return address, name, pid


def _p(values: list[float], part: float) -> float:
    return sorted(values)[int(len(values) * part)]


if __name__ == "__main__":
    main()
