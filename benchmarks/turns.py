"""The runs behind the tables of `make bench`: warm-up of both servers, then every load on each of them in turns."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.in_memory import kfake
from benchmarks.rows import Figures, Row, Samples
from benchmarks.servers import NullServer, Server
from benchmarks.usage import MachineTime, cpu_seconds

#: The factor by which a round has to be faster, and the number of slower rounds in a row after which a rate stands still.
STILL, STILL_ROUNDS = 1.05, 2
#: The time of each run against the null server.
NULL_SECONDS = 1.5


def run_load(name: str, options: dict[str, Any]) -> Figures:
    command = [sys.executable, "-m", "benchmarks.loads", name, json.dumps(options)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise RuntimeError(f"load {name} failed: {done.stderr[-800:]}")
    result: Figures = json.loads(done.stdout.splitlines()[-1])
    return result


def measure(server: Server, row: Row, round_: int) -> Figures:
    """Run one load on one server once; return its figures, with the server's CPU per GB or per request as `cpu`, and the stolen
    time.
    """
    written = row.reads or row.name
    topic = f"bench-{re.sub(r'[^a-z0-9]+', '-', written.lower())}-{round_}"
    options = {**row.options, "bootstrap": server.bootstrap, "topic": topic}
    if row.options.get("tls"):
        options |= {"bootstrap": server.tls.bootstrap, "ca": server.tls.ca_file}
    if not row.reads:
        run_load("create", options)
    result = timed(row, row.load, options, server.pids)
    if result.get("errors"):
        print(f"  ! {server.name}: {result['errors']:.0f} errors in {row.name}", file=sys.stderr)
    return result


def measure_null(row: Row) -> Figures:
    """Run the same client without a server: against the null servers for raw sockets, the null broker for librdkafka."""
    return measure_without(row, NullServer.of(row.null_module))


def measure_without(row: Row, server: NullServer) -> Figures:
    with server as null:
        options = {**row.options, "topic": "t", "bootstrap": f"127.0.0.1:{null.port}", "port": null.port}
        if row.load == "consume":
            run_load("produce", options)
        if row.is_raw:
            return timed(row, f"null_{row.load}", {**options, "seconds": NULL_SECONDS}, [null.pid])
        return timed(row, row.load, options, [null.pid])


def timed(row: Row, load: str, options: dict[str, Any], pids: list[int]) -> Figures:
    clock, before = MachineTime.now(), cpu_seconds(pids)
    result = run_load(load, options)
    used = cpu_seconds(pids) - before
    result["stolen"] = clock.stolen_percent()
    if row.cpu_per == "GB":
        result["cpu"] = used / result["bytes"] * 1e9
    elif row.cpu_per is not None:
        result["cpu"] = used / result["requests"] * (1e6 if row.cpu_per == "request" else 1e3)
    return result


@dataclass
class WarmUp:
    """The time for which a server had the loads before anything was counted."""

    seconds: float = 0.0
    rounds: int = 0
    #: True if no load became faster by more than STILL for STILL_ROUNDS rounds.
    stands_still: bool = False

    def __str__(self) -> str:
        if not self.seconds:
            return "no warm-up"
        state = "stood still" if self.stands_still else "were still rising or its time was over"
        return f"{self.seconds:.0f} s of warm-up ({self.rounds} whole rounds of the loads; its rates {state})"


def warm_up(rows: list[Row], server: Server, seconds_max: float) -> WarmUp:
    """Run the loads again and again, until no rate is better than the best before it."""
    loads = {row.run: row for row in rows if not row.load.startswith("java")}
    best = dict.fromkeys(loads, 0.0)
    begin, still_rounds = time.monotonic(), 0
    for round_ in itertools.count(1):
        still_rounds += 1
        for run, row in loads.items():
            if time.monotonic() - begin > seconds_max:
                return WarmUp(time.monotonic() - begin, round_ - 1)
            rate = measure(server, row, -round_)[row.figure]
            if row.is_rate and rate > best[run] * STILL:
                still_rounds = 0
            best[run] = max(best[run], rate)
        report(f"warm-up {round_} | {server.name}", {row.name: best[run] for run, row in loads.items() if row.is_rate})
        if still_rounds >= STILL_ROUNDS:
            return WarmUp(time.monotonic() - begin, round_, True)
    raise AssertionError("unreachable")


def sample(rows: list[Row], servers: list[Server], runs: int, *, with_kfake: bool = False) -> Samples:
    """Run the loads on the servers in turns, so that a drift of the machine meets both."""
    samples: Samples = {row.name: {} for row in rows}
    for round_ in range(runs):
        shared: dict[tuple[str, str], Figures] = {}
        for row in rows:
            measured: dict[str, Callable[[], Figures]] = {s.name: partial(measure, s, row, round_) for s in servers}
            if row.null_module:
                measured["null"] = partial(measure_null, row)
            if with_kfake and row.has_kfake:
                measured["kfake"] = partial(measure_without, row, kfake())
            for name, run in measured.items():
                if (name, row.run) not in shared:
                    shared[name, row.run] = run()
                samples[row.name].setdefault(name, []).append(shared[name, row.run])
                report(f"[{round_}] {row.name} | {name}", shared[name, row.run])
    return samples


def report(what: str, result: Figures) -> None:
    figures = "  ".join(f"{k}={v:,.2f}" for k, v in result.items() if k not in ("bytes", "requests", "errors"))
    print(f"  {what}: {figures}", file=sys.stderr, flush=True)
