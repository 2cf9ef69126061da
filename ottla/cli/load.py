"""Load on a cluster and what it measures: `ottla perf`. Each run takes a topic and returns counts, time and durations.

With a rate, a record's time begins when it was due, and not when a client that is late has sent it: otherwise a broker that stands
still for a second is one slow record, where a thousand had to wait (coordinated omission).
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

from ottla.cli.percentiles import Durations
from ottla.cli.progress import ProgressLine
from ottla.client.cluster import ClusterClient
from ottla.client.consumer import Consumer
from ottla.client.partitions import TopicPartition
from ottla.client.producer import ClusterProducer
from ottla.protocol.records.compression import NO_COMPRESSION
from ottla.protocol.records.record import NewRecord

#: Records that are sent between two looks at the clock when there is no rate.
LOOK_EVERY = 100


@dataclass(slots=True)
class Measured:
    """The result of a run: `bytes` are those of keys and values."""

    what: str
    records: int = 0
    bytes: int = 0
    took_ns: int = 0
    durations: Durations = field(default_factory=Durations)

    def row(self) -> dict[str, object]:
        seconds = max(self.took_ns, 1) / 1e9
        return {
            "what": self.what,
            "records": self.records,
            "seconds": round(seconds, 3),
            "records_per_s": round(self.records / seconds),
            "mb_per_s": round(self.bytes / seconds / 1e6, 2),
            **self.durations.row(),
        }


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The records of a run: their number, the bytes of each value, and how many are due in a second (0: as many as go)."""

    records: int
    size: int
    rate: float = 0.0
    compression: int = NO_COMPRESSION
    linger_ms: float = 5.0


async def produce(cluster: ClusterClient, topic: str, load: LoadResult, progress: ProgressLine) -> Measured:
    """Write the records with acks=all; the durations are from each record to its acknowledgement."""
    clock, rng = cluster.world.clock, cluster.world.rng
    producer = ClusterProducer(cluster, topic, compression=load.compression)
    async with cluster.limit():
        await producer.start()
    value, found = rng.randbytes(load.size), Measured("produce")
    waiting: deque[int] = deque()
    begin_ns = clock.mono_ns()
    flushed_ns = begin_ns

    def take_acknowledged() -> None:
        now_ns = clock.mono_ns()
        while producer.sent - len(waiting) < producer.acknowledged:
            found.durations.add((now_ns - waiting.popleft()) / 1e6)
        progress.update(producer.acknowledged, now_ns // 1_000_000)

    for number in range(load.records):
        due_ns = begin_ns + int(number * 1e9 / load.rate) if load.rate else 0
        while load.rate and (early_ns := due_ns - clock.mono_ns()) > 0:
            linger_ns = flushed_ns + int(load.linger_ms * 1e6) - clock.mono_ns()
            if waiting and linger_ns <= early_ns:
                await asyncio.sleep(max(0, linger_ns) / 1e9)
                await producer.flush()
                flushed_ns = clock.mono_ns()
                take_acknowledged()
            else:
                await asyncio.sleep(early_ns / 1e9)
        waiting.append(due_ns if load.rate else clock.mono_ns())
        before = producer.acknowledged
        await producer.send(NewRecord(None, value, clock.wall_ms()))
        if producer.acknowledged != before or (not load.rate and number % LOOK_EVERY == 0):
            take_acknowledged()
    await producer.flush()
    take_acknowledged()
    found.records, found.bytes = producer.acknowledged, producer.acknowledged * load.size
    found.took_ns = clock.mono_ns() - begin_ns
    return found


async def consume(
    cluster: ClusterClient,
    positions: dict[TopicPartition, int],
    ends: dict[TopicPartition, int],
    progress: ProgressLine,
) -> Measured:
    """Read from `positions` to `ends`; the durations are those of responses with records, from one to the next."""
    clock, found = cluster.world.clock, Measured("consume")
    consumer = Consumer(cluster, positions, ends)
    begin_ns = before_ns = clock.mono_ns()
    async for consumed in consumer.fetch():
        now_ns = clock.mono_ns()
        found.durations.add((now_ns - before_ns) / 1e6)
        before_ns = now_ns
        found.records += len(consumed.records)
        found.bytes += sum(len(record.value or b"") + len(record.key or b"") for record in consumed.records)
        progress.update(found.records, now_ns // 1_000_000)
    found.took_ns = clock.mono_ns() - begin_ns
    return found


async def latency(
    cluster: ClusterClient,
    reader: ClusterClient,
    topic: str,
    ends: dict[TopicPartition, int],
    load: LoadResult,
    progress: ProgressLine,
) -> list[Measured]:
    """Write one record after another, each read by a consumer that waits for it: until its acknowledgement, and end to end.

    The consumer has connections of its own, as in applications: a broker answers the requests of one connection in their order, and a
    Produce behind a Fetch that waits would wait with it.
    """
    clock, rng = cluster.world.clock, cluster.world.rng
    producer, consumer = ClusterProducer(cluster, topic), Consumer(reader, ends)
    async with cluster.limit():
        await producer.start()
    value, acknowledged, received = rng.randbytes(load.size), Measured("acknowledged"), Measured("end to end")
    begin_ns = clock.mono_ns()
    for number in range(load.records):
        if load.rate:
            await asyncio.sleep(max(0, begin_ns + int(number * 1e9 / load.rate) - clock.mono_ns()) / 1e9)
        sent_ns = clock.mono_ns()
        waiting = reader.world.spawn(_next_record(consumer), "the next record")
        await asyncio.sleep(0)  # its Fetch is under way before the record is
        async with cluster.limit():
            await producer.send(NewRecord(None, value, clock.wall_ms()))
            await producer.flush()
            acknowledged.durations.add((clock.mono_ns() - sent_ns) / 1e6)
            received.durations.add((await waiting - sent_ns) / 1e6)
        progress.update(number + 1, clock.mono_ns() // 1_000_000)
    for found in (acknowledged, received):
        found.records, found.bytes = load.records, load.records * load.size
        found.took_ns = clock.mono_ns() - begin_ns
    return [acknowledged, received]


async def _next_record(consumer: Consumer) -> int:
    """Wait for a record; return when it came."""
    while not await consumer.poll():
        pass
    return consumer.cluster.world.clock.mono_ns()
