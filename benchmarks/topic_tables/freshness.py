"""The time until DuckDB sees a record in the table: `python -m benchmarks.topic_tables.freshness PLACE` is the process that
looks.

It asks for the highest offset again and again. A record is fresh when the first query that has it returns.
"""

from __future__ import annotations

import json
import random
import select
import subprocess
import sys
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from benchmarks.steady.table import percentile
from benchmarks.topic_tables.kinds import json_order
from benchmarks.topic_tables.node import TABLE, create, node, tables_of
from benchmarks.topic_tables.page import Figure
from ottla.server.config.tables.topic_tables import INTERVAL
from tools import duck

#: Records of 1 KB a second, which is 1 MB/s.
RATE = 1_000
#: By interval in seconds: the length of the load, and the goal for the p99.
INTERVALS = {1: (20, 4), 10: (40, 13), 60: (180, 65)}
#: The time until the first commits have made the table.
WARM_SECONDS = 5
LOOK_SECONDS = 0.1


def figures(intervals: Sequence[int]) -> Iterator[Figure]:
    """Yield the p99 at each interval, of records that come at 1 MB/s."""
    with node() as server:
        for interval in intervals:
            topic, (load_seconds, goal) = f"fresh-{interval}", INTERVALS[interval]
            create(server, topic, 1, TABLE | {INTERVAL: str(interval * 1000)})
            place = tables_of(server) / "ottla" / topic
            command = [sys.executable, "-m", "benchmarks.topic_tables.freshness", str(place)]
            looking = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            try:
                sent_ns = send(server.bootstrap, topic, load_seconds)
                time.sleep(interval + max(3, 0.1 * interval))
                seen = json.loads(looking.communicate("\n", timeout=60)[0])
            finally:
                looking.kill()
            waits = waits_s(sent_ns, seen, RATE * max(WARM_SECONDS, interval))
            note = f"p50 {percentile(waits, 0.5):.2f}, most {waits[-1]:.2f} s, of {len(waits):,} records and {len(seen)} queries"
            what = f"freshness in DuckDB at an interval of {interval} s, p99"
            yield Figure(what, percentile(waits, 0.99), "s", at_most=goal, note=note)


def send(bootstrap: str, topic: str, seconds: int) -> list[int]:
    """Send records at the rate; return when each was sent, in ns of the monotonic clock, by its offset."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    chance = random.Random(1)
    bodies = [json_order(chance) for _ in range(RATE)]
    sent_ns, began = list[int](), time.perf_counter()
    while len(sent_ns) < RATE * seconds:
        sent_ns.append(time.perf_counter_ns())
        producer.produce(topic, bodies[len(sent_ns) % RATE], partition=0)
        producer.poll(0)
        while (wait := len(sent_ns) / RATE - (time.perf_counter() - began)) > 0:
            time.sleep(wait)
    assert producer.flush(60) == 0
    return sent_ns


def waits_s(sent_ns: list[int], seen: list[tuple[int, int]], first: int) -> list[float]:
    """Return, in order, how long each record from this offset on waited for the first query that had it."""
    offsets = [offset for _, offset in seen]
    assert offsets and offsets[-1] == len(sent_ns) - 1, "the table does not have all records"
    return sorted(
        (seen[bisect_left(offsets, offset)][0] - sent_ns[offset]) / 1e9 for offset in range(first, len(sent_ns))
    )


def look(place: str) -> list[tuple[int, int]]:
    """Ask until standard input has a line; return when each query had returned, and the highest offset that it saw."""
    import duckdb

    database, seen = duck.connected("avro", "iceberg"), list[tuple[int, int]]()
    while not select.select([sys.stdin], [], [], LOOK_SECONDS)[0]:
        try:
            row = database.execute(f"select max(_kafka.offset) from iceberg_scan('{place}')").fetchone()
        except duckdb.Error:  # the table is not there yet
            continue
        if row is not None and row[0] is not None:
            seen.append((time.perf_counter_ns(), row[0]))
    return seen


if __name__ == "__main__":
    print(json.dumps(look(sys.argv[1])))
