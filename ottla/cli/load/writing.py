"""The half of the load generator that writes: `produce`, and `latency`, which reads each record before the next one.

With a rate, a record's time begins when it was due, not when a late client has sent it. Otherwise a broker that stalls for a
second would count as one slow record, although a thousand had to wait (coordinated omission).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from ottla.cli.load.measured import Seen, Taken, size_of
from ottla.client.cluster import ClusterClient
from ottla.client.consumer import Consumer
from ottla.client.idempotence import SentBatch
from ottla.client.partitions import TopicPartition
from ottla.client.producer import ClusterProducer
from ottla.protocol.records.compression import NO_COMPRESSION
from ottla.protocol.records.record import NewRecord, Record

#: Kafka's default of linger.ms since version 4.0.
LINGER_MS = 5.0


@dataclass(frozen=True, slots=True)
class Workload:
    """The records of a run.

    `make` makes a record of its number and the wall-clock time; `rate` is how many are due in a second (0: as many as
    possible). A batch that is not full waits `linger_ms`.
    """

    records: int
    make: Callable[[int, int], NewRecord]
    rate: float = 0.0
    compression: int = NO_COMPRESSION
    linger_ms: float = LINGER_MS

    def due_ns(self, number: int, begin_ns: int) -> int:
        """Return when a record is due; 0 if there is no rate."""
        return begin_ns + int(number * 1e9 / self.rate) if self.rate else 0


def same_value(rng: Random, size: int) -> Callable[[int, int], NewRecord]:
    """Return a function that makes all records with the same random value."""
    value = rng.randbytes(size)
    return lambda number, wall_ms: NewRecord(None, value, wall_ms)


async def produce(cluster: ClusterClient, topic: str, load: Workload, seen: Seen) -> int:
    """Write the records with acks=all. The time of a record ends with its acknowledgement.

    Returns: when the first one was due, in monotonic nanoseconds.
    """
    sending = _Sending(cluster, topic, load, seen)
    async with cluster.limit():
        await sending.producer.start()
    begin_ns = cluster.world.clock.mono_ns()
    for number in range(load.records):
        await sending.send(number, load.due_ns(number, begin_ns))
    await sending.flush()
    return begin_ns


class _Sending:
    """Records that are not acknowledged yet, with the times at which they begin."""

    def __init__(self, cluster: ClusterClient, topic: str, load: Workload, seen: Seen) -> None:
        self.producer = ClusterProducer(
            cluster, topic, compression=load.compression, on_acknowledged=self._acknowledged
        )
        self._clock, self._load, self._seen = cluster.world.clock, load, seen
        self._begin_ns: dict[int, int] = {}
        #: The time at which the oldest record was sent that is not flushed yet.
        self._lingers_ns = 0

    async def send(self, number: int, due_ns: int) -> None:
        """Send a record when it is due. Records that wait before it are flushed in time."""
        while self._begin_ns and self._lingers_ns + self._load.linger_ms * 1e6 <= max(due_ns, self._clock.mono_ns()):
            await self._sleep_until(self._lingers_ns + int(self._load.linger_ms * 1e6))
            await self.flush()
        await self._sleep_until(due_ns)
        now_ns = self._clock.mono_ns()
        if not self._begin_ns:
            self._lingers_ns = now_ns
        self._begin_ns[number] = due_ns or now_ns
        await self.producer.send(self._load.make(number, self._clock.wall_ms()))
        if len(self._begin_ns) == 1:  # a full batch was sent, and the records before are acknowledged
            self._lingers_ns = now_ns

    async def flush(self) -> None:
        await self.producer.flush()

    async def _sleep_until(self, at_ns: int) -> None:
        if (early_ns := at_ns - self._clock.mono_ns()) > 0:
            await asyncio.sleep(early_ns / 1e9)

    def _acknowledged(self, partition: int, offset: int, batch: SentBatch) -> None:
        now_ns = self._clock.mono_ns()
        for number, record in zip(batch.numbers, batch.records, strict=True):
            begin_ns = self._begin_ns.pop(number - 1)
            self._seen(Taken(number - 1, 1, size_of(record), (now_ns - begin_ns) / 1e6, now_ns))


class RoundTrip(NamedTuple):
    """A record that a consumer has received: the milliseconds until its acknowledgement, and until it was received."""

    number: int
    sent: NewRecord
    received: list[Record]
    acknowledged_ms: float
    received_ms: float


class NotReceived(TimeoutError):
    """A record was acknowledged, but no consumer received it in time."""


async def latency(
    cluster: ClusterClient,
    reader: ClusterClient,
    topic: str,
    ends: dict[TopicPartition, int],
    load: Workload,
    seen: Callable[[RoundTrip], object],
) -> int:
    """Write one record after another. A consumer waits for each: the times are those until the acknowledgement, and end to end.

    The consumer has connections of its own, as in applications: a broker answers the requests of one connection in their order, and a
    Produce behind a Fetch that waits would wait with it.

    Returns: when the first one was due, in monotonic nanoseconds.

    Raises:
        NotReceived: a record did not come back within the time limit of the cluster's client.
    """
    clock = cluster.world.clock
    producer, consumer = ClusterProducer(cluster, topic), Consumer(reader, ends)
    async with cluster.limit():
        await producer.start()
    begin_ns = clock.mono_ns()
    for number in range(load.records):
        if load.rate:
            await asyncio.sleep(max(0, load.due_ns(number, begin_ns) - clock.mono_ns()) / 1e9)
        record = load.make(number, clock.wall_ms())
        sent_ns = clock.mono_ns()
        waiting = reader.world.spawn(_next_records(consumer), "the next record")
        await asyncio.sleep(0)  # the consumer's Fetch is sent before the record
        async with cluster.limit():
            await producer.send(record)
            await producer.flush()
            acknowledged_ns = clock.mono_ns()
        try:
            async with cluster.limit():
                received, received_ns = await waiting
        except TimeoutError:
            raise NotReceived from None
        seen(RoundTrip(number, record, received, (acknowledged_ns - sent_ns) / 1e6, (received_ns - sent_ns) / 1e6))
    return begin_ns


async def _next_records(consumer: Consumer) -> tuple[list[Record], int]:
    """Wait for records. Return them, and the time of their arrival."""
    while not (found := await consumer.poll()):
        pass
    return [record for consumed in found for record in consumed.records], consumer.cluster.world.clock.mono_ns()
