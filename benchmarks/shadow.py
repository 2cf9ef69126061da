"""Measure what a client pays for `ottla record` and `ottla shadow`: `python -m benchmarks.shadow`. benchmarks/performance-log.md has a run.

One thread with plain sockets sends a Produce every 2 ms and waits for its response and for a Fetch that returns the record, as
benchmarks.latency does; in short turns of half a second, each way once in a round and in another order each time, so that what else the
machine does meets all of them alike. The proxies are in one process: two that do the same differ by some percent if they are processes of
their own. The figures are ratios with 95 % intervals by resampling the rounds: of the p99s of each round, their median, and of the p99
of all rounds, which few bad rounds decide.

Else p99s show when the machine has run something else, so (as root) the load, the first cluster and the proxies have real-time priority;
the shadow's process and the second cluster have not. On each processor a process spins with the policy SCHED_IDLE, because a virtual one
that sleeps takes up to milliseconds to wake.

    direct     to the node
    proxy      through a proxy that does nothing with what passes: the baseline of the others
    again      through another one like it: what the benchmark cannot see
    record     through one that records as `ottla record` does
    shadow     through one with the shadow of `ottla shadow`, whose second cluster is a node
    stalling   the same, with a second node that stands still for half of each 0.1 s
    hung       the same, with one that stands still
    gone       the same, with one that is killed after the first requests
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import selectors
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random
from typing import BinaryIO, NamedTuple, TypeAlias

from benchmarks import raw
from benchmarks.latency import RATE, Stamped
from benchmarks.servers import spinning
from benchmarks.turns import run_load
from benchmarks.usage import MachineTime, cpu_seconds
from ottla.cli.commands.record import SECURITY, proxied, until_interrupted
from ottla.cli.commands.shadow import ShadowProcess, replay_words
from ottla.server.address import Address
from ottla.server.world import RealWorld
from ottla.testing import Cluster
from ottla.traffic.entries import Opened
from ottla.traffic.masking import Masking
from ottla.traffic.recorder import Recorder, Spool
from ottla.traffic.relay import Tap
from tests.ports import free_ports

#: A shadow may cost this much of the p99 through the proxy alone (docs/TRAFFIC.md).
COST_GOAL = 1.05
BASE = "proxy"
SHADOWS = ("shadow", "stalling", "hung", "gone")
WAYS = ("direct", BASE, "again", "record", *SHADOWS)
#: The first messages of a turn do not count: the Fetch that waited has timed out meanwhile, and caches are of another way.
WARM_MESSAGES = 25
RESAMPLES = 400
STALL_SECONDS = 0.05
LATE_SECONDS_MAX = 30


class Nothing:
    """A tap that does nothing."""

    def opened(self, connection: int, ends: Opened) -> None: ...
    def closed(self, connection: int) -> None: ...
    def request(self, *_: object) -> None: ...
    def response(self, *_: object) -> None: ...


async def proxies(to: str, recording: BinaryIO, seconds: dict[str, str]) -> None:
    """Run a proxy for each way, and print their addresses. `seconds` has those of the second clusters."""
    real = RealWorld(asyncio.get_running_loop())

    def recorder(spool: Spool, *, is_whole: bool) -> Recorder:
        return Recorder(real.world.clock, spool, Masking(), is_whole=is_whole)

    async with AsyncExitStack() as stack:
        taps: dict[str, Tap] = {BASE: Nothing(), "again": Nothing()}
        taps["record"] = recorder(Spool(real.world, recording, print), is_whole=False)
        for name, second in seconds.items():
            process = ShadowProcess(replay_words(Address(*_pair(second)), None))
            stack.callback(process.end)
            real.world.spawn(real.world.workers.apart(name).run(process.read_counts), name)
            taps[name] = recorder(Spool(real.world, process.requests, process.drop), is_whole=True)
        ports = dict(zip(taps, free_ports(len(taps)), strict=True))
        for name, tap in taps.items():
            await stack.enter_async_context(proxied(real.world, f"127.0.0.1:{ports[name]}", to, tap, SECURITY))
        print(json.dumps(ports), flush=True)
        await until_interrupted()
    await real.close()


class Way:
    """What a load goes through, with its connections; `second` is the other cluster."""

    def __init__(self, name: str, address: tuple[str, int], second: Cluster | None) -> None:
        self.name, self.second = name, second
        self._producer, self._consumer = Stamped(address), Stamped(address)
        self._topic_id = raw.topic_id(address, name)
        self._frame = raw.produce_frame(name, 0, raw.one_record_batch(bytes(100)))
        self._offset = -1
        self._selector = selectors.DefaultSelector()
        for each in (self._producer, self._consumer):
            self._selector.register(each.socket, selectors.EVENT_READ, each)

    def turn(self, messages: int) -> list[float]:
        """Return the milliseconds until each record was acknowledged and read."""
        acknowledged: list[float] = []
        read: list[float] = []
        begin = time.monotonic()
        for number in range(WARM_MESSAGES + messages):
            while (wait := begin + number / RATE - time.monotonic()) > 0:
                time.sleep(wait)
            sent = time.perf_counter()
            self._producer.socket.sendall(self._frame)
            while len(acknowledged) <= number or len(read) <= number:
                for key, _ in self._selector.select(LATE_SECONDS_MAX):
                    if (whole := key.data.read()) is not None:
                        took = (time.perf_counter() - sent) * 1e3
                        if key.data is self._producer:
                            acknowledged.append(took)
                            self._acknowledged(whole[0])
                        elif self._fetched(whole[0]):
                            read.append(took)
        return [*map(max, acknowledged, read)][WARM_MESSAGES:]

    def _acknowledged(self, reply: bytes) -> None:
        assert raw.produce_error(reply, self.name) == 0
        if self._offset < 0:
            self._offset = _base_offset(reply, self.name)
            self._fetch()

    def _fetched(self, reply: bytes) -> bool:
        error, position, end = raw.records_of(memoryview(reply))
        assert error == 0
        if end > position:
            self._offset = raw.next_offset(memoryview(reply), position, end)
        self._fetch()
        return end > position

    def _fetch(self) -> None:
        self._consumer.socket.sendall(raw.fetch_frame(self._topic_id, 0, self._offset))


def _base_offset(reply: bytes, topic: str) -> int:
    """Return the base offset of a whole Produce v7 response for one partition."""
    at = 4 + 4 + 4 + 2 + len(topic) + 4 + 4 + 2
    return int.from_bytes(reply[at : at + 8], "big", signed=True)


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


class Found(NamedTuple):
    """The figures of one way, an entry for each round: the times in ms, and the CPU time of its process in us a record."""

    read: list[list[float]]
    used: list[float]


@contextmanager
def awake() -> Iterator[None]:
    """Keep the processors from sleeping, with processes that give way to any other."""
    with spinning(os.cpu_count() or 1, lambda pid: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))):
        yield


@contextmanager
def started(to: str, folder: str, seconds: dict[str, str]) -> Iterator[tuple[dict[str, int], int]]:
    """Start the proxies; yield their ports and their process."""
    words = ["--proxies", to, str(Path(folder) / "recording"), *(f"{name}={each}" for name, each in seconds.items())]
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.shadow", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline()), process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def hurry(pids: Iterable[int]) -> None:
    """Give the processes real-time priority, if this user may."""
    with suppress(PermissionError):
        for pid in pids:
            os.sched_setscheduler(pid, os.SCHED_RR, os.sched_param(1))


def rounds(ways: Sequence[Way], count: int, messages: int, pids: dict[str, int]) -> dict[str, Found]:
    found = {way.name: Found([], []) for way in ways}
    rng = Random(1)
    for number in range(-1, count):  # the first one makes connections and fills caches
        for way in rng.sample(ways, len(ways)):
            used = cpu_seconds([pids[way.name]])
            with beside(way):
                read = way.turn(messages)
            if number >= 0:
                each = found[way.name]
                each.read.append(read)
                each.used.append((cpu_seconds([pids[way.name]]) - used) / (messages + WARM_MESSAGES) * 1e6)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.shadow", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--messages", type=int, default=225, help="of each way in each round")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--proxies", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.proxies:
        to, recording, *seconds = args.proxies
        with open(recording, "wb", buffering=0) as file:
            asyncio.run(proxies(to, file, dict(each.split("=") for each in seconds)))
        return
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        first = stack.enter_context(Cluster(1, spoilable=False))
        second = {name: stack.enter_context(Cluster(1, spoilable=False)) for name in SHADOWS if name in args.ways}
        for name in args.ways:
            for cluster in (first, *filter(None, [second.get(name)])):
                run_load("create", {"bootstrap": cluster.bootstrap, "topic": name, "partitions": 1})
        addresses = {name: cluster.bootstrap for name, cluster in second.items()}
        ports, pid = stack.enter_context(started(first.bootstrap, folder, addresses))
        direct = _pair(first.bootstrap)
        ways = [
            Way(name, direct if name == "direct" else ("127.0.0.1", ports[name]), second.get(name))
            for name in dict.fromkeys((BASE, *args.ways))
        ]
        stack.enter_context(awake())
        clock = MachineTime.now()
        pids = {way.name: first.pid(1) if way.name == "direct" else pid for way in ways}
        hurry([0, first.pid(1), pid])
        found = rounds(ways, args.rounds, args.messages, pids)
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    load = os.getloadavg()[0]
    print(f"{args.rounds} rounds of {args.messages} records, stolen {clock.stolen_percent():.1f} %, load {load:.1f}\n")
    print(
        "| | p50 read, ms | p99 read, ms | of the proxy alone, median of the rounds | of all rounds | CPU of the process, us a record |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    for name, each in found.items():
        cells = [
            f"{statistics.median(itertools.chain(*each.read)):.3f}",
            f"{p99(each.read):.3f}",
            *(ratio(of, each.read, found[BASE].read) for of in (median_of_rounds, of_all_rounds)),
            f"{statistics.mean(each.used):.0f}",
        ]
        print(f"| {name} | {' | '.join(cells)} |")


Rounds: TypeAlias = Sequence[list[float]]


def ratio(of: Callable[[Rounds, Rounds], float], times: Rounds, base: Rounds) -> str:
    """Return a ratio of the times of rounds with its 95 % interval, by resampling the rounds."""
    rng, found = Random(1), []
    for _ in range(RESAMPLES):
        chosen = rng.choices(range(len(base)), k=len(base))
        found.append(of([times[each] for each in chosen], [base[each] for each in chosen]))
    found.sort()
    return f"{of(times, base):.3f} ({found[int(RESAMPLES * 0.025)]:.3f}-{found[int(RESAMPLES * 0.975)]:.3f})"


def median_of_rounds(times: Rounds, base: Rounds) -> float:
    return statistics.median(p99([mine]) / p99([other]) for mine, other in zip(times, base, strict=True))


def of_all_rounds(times: Rounds, base: Rounds) -> float:
    return p99(times) / p99(base)


def p99(rounds: Rounds) -> float:
    times = sorted(itertools.chain(*rounds))
    return times[int(len(times) * 0.99)]


def _pair(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


if __name__ == "__main__":
    main()
