"""The rate at which sealed segments are copied to the store, the cost of the copies, and their effect on a steady load."""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.steady.clients import Child
from benchmarks.steady.table import delays
from benchmarks.tiers.node import SEGMENTS, TIERED, nodes
from benchmarks.topic_tables.page import Figure
from benchmarks.usage import cpu_seconds

RATE = 500
BACKLOG, STEADY = "backlog", "steady"
PARTITIONS = 4
LOAD_SECONDS, QUIET_SECONDS = 4.0, 10.0


def figures(megabytes: int) -> Iterator[Figure]:
    """Yield the rate of copies of a backlog alone; then the same beside a steady load, and that load's p99."""
    for is_loaded in (False, True):
        with nodes() as running:
            running.create(BACKLOG, PARTITIONS, SEGMENTS)
            running.produce(BACKLOG, megabytes * 1_000)
            running.create(STEADY, 1, {})
            load = Child("load", {"bootstrap": running.bootstrap, "topic": STEADY, "partitions": 1, "rate": RATE})
            try:
                quiet_ns = time.perf_counter_ns()
                if is_loaded:
                    load.begin()
                    time.sleep(LOAD_SECONDS)
                    quiet_ns = time.perf_counter_ns()
                    time.sleep(QUIET_SECONDS)
                begin_ns, used = time.perf_counter_ns(), cpu_seconds(running.pids)
                running.set_configs(BACKLOG, TIERED)
                running.wait_until_copied(BACKLOG)
                end_ns, used = time.perf_counter_ns(), cpu_seconds(running.pids) - used
                size = sum(row["remote_bytes"] for row in running.states(BACKLOG))
                if is_loaded:
                    load.stop()
                    found = load.figures()
            finally:
                load.kill()
        seconds, gigabytes = (end_ns - begin_ns) / 1e9, size / 1e9
        if not is_loaded:
            note = f"{gigabytes:.2f} GB in segments of 64 MiB of {PARTITIONS} partitions, by plain HTTP"
            yield Figure("copy to versitygw", size / 1e6 / seconds, "MB/s", at_least=100, note=note)
            yield Figure("the same", used / gigabytes, "CPU s/GB", at_most=2.5, note="of the node")
            continue
        quiet, beside = delays(found, quiet_ns, begin_ns), delays(found, begin_ns, end_ns)
        assert quiet is not None and beside is not None
        what = f"end to end at {RATE} records/s, p99"
        yield Figure(
            f"{what}, quiet", quiet.p99, "ms", note=f"p50 {quiet.p50:.2f}, most {quiet.longest:.1f} ms, no copies"
        )
        note = f"p50 {beside.p50:.2f}, most {beside.longest:.1f} ms; copies at {size / 1e6 / seconds:.0f} MB/s"
        yield Figure(f"{what}, beside copies", beside.p99, "ms", at_most=2 * quiet.p99, note=note)
