"""The command `ottla bench`: what this cluster does from here, in three rows: produce, consume, and the delay of single records.

A look, not a verdict: the client is Python too and is soon the slower half. `make bench` compares servers.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated

from cyclopts import App, Parameter

from ottla.cli.application import CONNECTION, Connection, Output, connect, run
from ottla.cli.client import topics
from ottla.cli.client.cluster import ClusterClient
from ottla.cli.client.consumer import Consumer
from ottla.cli.client.producer import Producer
from ottla.cli.errors import USAGE, CommandFailed
from ottla.cli.output import Row, note, print_rows
from ottla.protocol.primitives import new_uuid, uuid_to_str
from ottla.protocol.records import NewRecord

COLUMNS = ("what", "records", "seconds", "records_per_s", "mb_per_s", "p50_ms", "p99_ms", "max_ms")
#: Single records for the delays: enough for a p99, few enough to take no time.
DELAY_RECORDS = 1000

app = App(name="bench", version_flags=[], help="Measure produce, consume and delay against a cluster.")

main = partial(run, app)


@app.default
async def bench(
    *,
    records: Annotated[int, Parameter(name=["--records", "-n"], help="How many to write and read back.")] = 100_000,
    size: Annotated[int, Parameter(name=["--size", "-s"], help="Bytes of each value.")] = 1000,
    partitions: Annotated[int, Parameter(name=["--partitions", "-p"])] = 6,
    replication_factor: Annotated[int, Parameter(name=["--replication-factor", "-r"])] = -1,
    output: Output = "table",
    connection: Connection = CONNECTION,
) -> None:
    """Write records to a topic of its own, read them back, then time single records; the topic is deleted at the end."""
    if records < 1 or size < 0:
        raise CommandFailed("--records must be at least 1 and --size not below 0", None, USAGE)
    async with (
        connect(connection, limited=False) as cluster,
        _scratch_topic(cluster, partitions, replication_factor) as topic,
    ):
        rows = [
            await _produce(cluster, topic, records, size),
            await _consume(cluster, topic, records, partitions),
            await _delays(cluster, topic, size),
        ]
    print_rows(rows, COLUMNS, output)


@asynccontextmanager
async def _scratch_topic(cluster: ClusterClient, partitions: int, replication_factor: int) -> AsyncIterator[str]:
    topic = f"ottla-bench-{uuid_to_str(new_uuid(cluster.world.rng))}"
    async with cluster.limit():
        await topics.create_topic(cluster, topic, partitions, replication_factor, {})
    note(f"topic {topic} (deleted at the end)")
    try:
        yield topic
    finally:
        async with cluster.limit():
            await topics.delete_topics(cluster, [topic])


async def _produce(cluster: ClusterClient, topic: str, records: int, size: int) -> Row:
    clock, value = cluster.world.clock, os.urandom(size)
    producer = Producer(cluster, topic)
    async with cluster.limit():
        await producer.start()
    begin_ns = clock.mono_ns()
    record = NewRecord(None, value, clock.wall_ms())
    for _ in range(records):
        await producer.send(record)
    await producer.flush()
    return _rate("produce, acks=all", records, records * size, clock.mono_ns() - begin_ns)


async def _consume(cluster: ClusterClient, topic: str, records: int, partitions: int) -> Row:
    clock, got, size = cluster.world.clock, 0, 0
    consumer = Consumer(cluster, {(topic, index): 0 for index in range(partitions)})
    begin_ns = clock.mono_ns()
    async for consumed in consumer.fetch():
        got += len(consumed.records)
        size += sum(len(record.value or b"") for record in consumed.records)
        if got >= records:
            break
    return _rate("consume", got, size, clock.mono_ns() - begin_ns)


async def _delays(cluster: ClusterClient, topic: str, size: int) -> Row:
    clock, delays_ms = cluster.world.clock, []
    producer = Producer(cluster, topic)
    async with cluster.limit():
        await producer.start()
    record = NewRecord(None, os.urandom(size), clock.wall_ms())
    first_ns = clock.mono_ns()
    for _ in range(DELAY_RECORDS):
        begin_ns = clock.mono_ns()
        await producer.send(record)
        await producer.flush()
        delays_ms.append((clock.mono_ns() - begin_ns) / 1e6)
    row = _rate("one record at a time", DELAY_RECORDS, DELAY_RECORDS * size, clock.mono_ns() - first_ns)
    delays_ms.sort()
    row |= {"p50_ms": round(delays_ms[DELAY_RECORDS // 2], 3), "p99_ms": round(delays_ms[DELAY_RECORDS * 99 // 100], 3)}
    return row | {"max_ms": round(delays_ms[-1], 3)}


def _rate(what: str, records: int, size: int, took_ns: int) -> dict[str, object]:
    seconds = took_ns / 1e9
    return {
        "what": what,
        "records": records,
        "seconds": round(seconds, 3),
        "records_per_s": round(records / seconds),
        "mb_per_s": round(size / seconds / 1e6, 2),
    }
