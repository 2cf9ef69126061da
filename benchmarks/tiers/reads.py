"""Reads of records that are only in the store: by one consumer, by four, the first byte, and the effect of four on a steady
load.

The four have a lower priority than node and load at first, as they would have on machines of their own, then the same one.
In their place, four processes that only compute show what the machine does to the load without any read.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from benchmarks import raw
from benchmarks.steady.clients import NICE, Child
from benchmarks.steady.table import delays
from benchmarks.tiers.copies import LOAD_SECONDS, QUIET_SECONDS, RATE, STEADY
from benchmarks.tiers.node import SEGMENTS, TIERED, VALUE_BYTES, TieredNodes, nodes
from benchmarks.topic_tables.page import Figure
from benchmarks.usage import cpu_seconds

OLD = "old"
READERS = 4
FIRST_BYTES = 20


def figures(megabytes: int) -> Iterator[Figure]:
    """Yield the figures of a topic with this many megabytes in each of four partitions."""
    with nodes() as running:
        running.create(OLD, READERS + 1, SEGMENTS)
        running.produce(OLD, megabytes * (READERS + 1) * 1_000)
        running.set_configs(OLD, TIERED)
        running.wait_until_gone(OLD)
        ends = {row["partition"]: row["local_start"] for row in running.states(OLD)}
        yield first_byte(running, ends[READERS])
        yield consumers(running, {READERS: ends[READERS]}, at_least=80)
        quarter = {partition: ends[partition] for partition in range(READERS)}
        yield consumers(running, quarter, at_least=100)
        running.create(STEADY, 1, {})
        for what, niceness in (("four cold readers", NICE), ("four cold readers that are not nice", 0)):
            began = time.perf_counter()
            yield from beside(running, what, partial(begin_reading, running, quarter, niceness))
            seconds = time.perf_counter() - began - LOAD_SECONDS - QUIET_SECONDS
        yield from beside(running, "four processes that compute", partial(begin_computing, seconds))


def first_byte(running: TieredNodes, end: int) -> Figure:
    """The time from a Fetch to its first records, at offsets of which nothing is in memory."""
    host, _, port = running.bootstrap.rpartition(":")
    taken, topic_id = list[float](), raw.topic_id((host, int(port)), OLD)
    for number in range(FIRST_BYTES):
        offset = (
            (FIRST_BYTES - number) * end // (FIRST_BYTES + 1)
        )  # it goes backwards, so that nothing is already read ahead
        with socket.create_connection((host, int(port))) as connection:
            reading = raw.Reading(connection)
            began = time.perf_counter()
            while True:
                reading.have = 0
                connection.sendall(raw.fetch_frame(topic_id, READERS, offset))
                while not reading.read():
                    pass
                error, position, stop = raw.records_of(reading.view)
                assert not error, f"error {error}"
                if stop > position:
                    break
            taken.append((time.perf_counter() - began) * 1000)
    note = f"median {statistics.median(taken):.0f} ms of {FIRST_BYTES} places, one after the other"
    return Figure("first byte of a cold read, at most", max(taken), "ms", at_most=300, note=note)


def consumers(running: TieredNodes, ends: dict[int, int], at_least: float) -> Figure:
    used, reading = cpu_seconds(running.pids), begin_reading(running, ends, NICE)
    size, rate, slowest = finish(reading)
    used = cpu_seconds(running.pids) - used
    note = f"{size / 1e9:.2f} GB, {used / size * 1e9:.2f} CPU s/GB of the node; librdkafka of a process each"
    if len(ends) > 1:
        note += f"; the slowest {slowest:.0f} MB/s"
    return Figure(f"cold read by {len(ends)} consumer{'s' * (len(ends) > 1)}", rate, "MB/s", at_least, note=note)


def begin_reading(running: TieredNodes, ends: dict[int, int], niceness: int) -> list[subprocess.Popen[str]]:
    """Start a consumer of each partition, in a process of its own, up to an offset."""
    options = {"bootstrap": running.bootstrap, "topic": OLD, "niceness": niceness}
    return begin([options | {"partition": partition, "count": end} for partition, end in ends.items()])


def begin_computing(seconds: float) -> list[subprocess.Popen[str]]:
    return begin([{"seconds": seconds}] * READERS)


def begin(options: Sequence[Mapping[str, object]]) -> list[subprocess.Popen[str]]:
    return [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.tiers.reads", json.dumps(each)], stdout=subprocess.PIPE, text=True
        )
        for each in options
    ]


def finish(reading: list[subprocess.Popen[str]]) -> tuple[int, float, float]:
    """Return the bytes of all consumers, their common MB/s from the first start to the last end, and the MB/s of the slowest
    consumer.
    """
    found = [json.loads(each.communicate(timeout=300)[0]) for each in reading]
    size = sum(each["bytes"] for each in found)
    seconds = max(each["end"] for each in found) - min(each["begin"] for each in found)
    return size, size / seconds / 1e6, min(each["bytes"] / (each["end"] - each["begin"]) / 1e6 for each in found)


def beside(running: TieredNodes, others: str, start: Callable[[], list[subprocess.Popen[str]]]) -> Iterator[Figure]:
    load = Child("load", {"bootstrap": running.bootstrap, "topic": STEADY, "partitions": 1, "rate": RATE})
    try:
        load.begin()
        time.sleep(LOAD_SECONDS)
        quiet_ns = time.perf_counter_ns()
        time.sleep(QUIET_SECONDS)
        begin_ns = time.perf_counter_ns()
        _, rate, _ = finish(start())
        end_ns = time.perf_counter_ns()
        load.stop()
        found = load.figures()
    finally:
        load.kill()
    quiet, busy = delays(found, quiet_ns, begin_ns), delays(found, begin_ns, end_ns)
    assert quiet is not None and busy is not None
    what = f"end to end at {RATE} records/s, p99"
    yield Figure(f"{what}, quiet", quiet.p99, "ms", note=f"p50 {quiet.p50:.2f}, most {quiet.longest:.1f} ms, alone")
    note = f"p50 {busy.p50:.2f}, most {busy.longest:.1f} ms; the four read at {rate:.0f} MB/s"
    yield Figure(f"{what}, beside {others}", busy.p99, "ms", at_most=2 * quiet.p99, note=note)


def compute(seconds: float) -> dict[str, float]:
    begin = time.time()
    while (end := time.time()) - begin < seconds:
        pass
    return {"bytes": 0, "begin": begin, "end": end}


def consume(bootstrap: str, topic: str, partition: int, count: int, niceness: int) -> dict[str, float]:
    """Read one partition from its beginning with librdkafka's defaults; the time runs from the assignment on."""
    from confluent_kafka import Consumer, TopicPartition

    os.nice(niceness)

    settings = {"bootstrap.servers": bootstrap, "group.id": "cold", "enable.auto.commit": False}
    consumer = Consumer(settings | {"fetch.queue.backoff.ms": 10, "queued.max.messages.kbytes": 200_000})
    begin = time.time()
    consumer.assign([TopicPartition(topic, partition, 0)])
    got = 0
    while got < count:
        messages = consumer.consume(min(10_000, count - got), 30.0)
        assert messages, f"{got} of {count} records came"
        assert all(message.error() is None for message in messages)
        got += len(messages)
    end = time.time()
    consumer.close()
    return {"bytes": got * VALUE_BYTES, "begin": begin, "end": end}


if __name__ == "__main__":
    options = json.loads(sys.argv[1])
    print(json.dumps(compute(**options) if "seconds" in options else consume(**options)))
