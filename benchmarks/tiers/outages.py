"""A store that is gone, hung, slow or unavailable while producers go on: clients are not to notice, and the copies are to catch up."""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.steady.clients import Child
from benchmarks.steady.table import delays, lost
from benchmarks.tiers.copies import LOAD_SECONDS, QUIET_SECONDS, RATE, STEADY
from benchmarks.tiers.gate import GONE, HUNG, OPEN, SLOW, UNAVAILABLE
from benchmarks.tiers.node import SEGMENTS, TIERED, TieredNodes, all_of, nodes, wait_until
from benchmarks.topic_tables.page import Figure

FILLED, OLD = "filled", "old"
PARTITIONS = 4
#: The records are of a megabyte each, as many as come in one or two seconds.
SMALL_SEGMENTS = SEGMENTS | {"segment.bytes": str(1 << 20)}
MEGABYTES_PER_SECOND = 4
MODES = {
    GONE: "refuses",
    HUNG: "does not answer",
    SLOW: "takes 2 s for a call",
    UNAVAILABLE: "says 503 to every second call",
}


def figures(seconds: int) -> Iterator[Figure]:
    """Yield, for each kind of outage of this length, its effect on a steady load, and the time until all segments are
    copied.
    """
    for mode in MODES:
        # A call that hangs is given up after ten seconds here; by default after five minutes, which is half of the outage of issue 45.
        with nodes(is_gated=True, ottla_tier_call_timeout_ms=str(min(300_000, seconds * 1_000 // 6))) as running:
            yield from outage(running, mode, seconds)


def outage(running: TieredNodes, mode: str, seconds: int) -> Iterator[Figure]:
    running.create(FILLED, PARTITIONS, SMALL_SEGMENTS | TIERED)
    running.create(STEADY, 1, {})
    load = Child("load", {"bootstrap": running.bootstrap, "topic": STEADY, "partitions": 1, "rate": RATE})
    filling = Child("fill", {"bootstrap": running.bootstrap, "topic": FILLED, "megabytes": MEGABYTES_PER_SECOND})
    try:
        load.begin()
        filling.begin()
        time.sleep(LOAD_SECONDS)
        quiet_ns = time.perf_counter_ns()
        time.sleep(QUIET_SECONDS)
        begin_ns = time.perf_counter_ns()
        running.gate.set(mode)
        time.sleep(seconds)
        rows = running.states(FILLED)
        running.gate.set(OPEN)
        end_ns = time.perf_counter_ns()
        filling.stop()
        filled = filling.figures()
        wait_until(lambda: all_of(running.states(FILLED), lambda row: not row["lag_segments"] and row["copied_to"]))
        caught_up = (time.perf_counter_ns() - end_ns) / 1e9
        load.stop()
        found = load.figures()
    finally:
        load.kill()
        filling.kill()
    quiet, during = delays(found, quiet_ns, begin_ns), delays(found, begin_ns, end_ns)
    assert quiet is not None and during is not None
    what = f"a store that {MODES[mode]} for {seconds} s"
    lag = sum(row["lag_bytes"] for row in rows) / 1e6
    note = f"quiet {quiet.p99:.2f} ms; most {during.longest:.1f} ms; {lost(found)} records lost, {filled['errors']} errors of producers"
    yield Figure(f"{what}: p99 of {RATE} records/s", during.p99, "ms", at_most=2 * quiet.p99, note=note)
    waits = next((row["waits"] for row in rows if row["waits"]), "nothing waits")
    yield Figure(
        "the same: all is copied after", caught_up, "s", at_most=seconds, note=f"{lag:.0f} MB behind; {waits}"[:200]
    )
