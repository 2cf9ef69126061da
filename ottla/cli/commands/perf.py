"""The commands of `ottla perf`: produce, consume, latency. Each measures a cluster from this machine, with percentiles.

The client is written in Python and soon is the bottleneck: `make bench` compares servers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated

from ottla.cli.app import App, Parameter, option_group
from ottla.cli.application import CONNECTION, ConnectionOptions, Output, connect, run
from ottla.cli.errors import USAGE, CommandFailed
from ottla.cli.load import reading, writing
from ottla.cli.load.measured import Measured, Taken, size_of
from ottla.cli.output import note, print_rows
from ottla.cli.progress import ProgressLine
from ottla.cli.shared_options import Compression
from ottla.client import topics
from ottla.client.cluster import ClusterClient
from ottla.client.consumer import Consumer, places_of
from ottla.protocol.records.compression import CODEC_IDS

COLUMNS = (
    "what", "records", "seconds", "records_per_s", "mb_per_s",
    "mean_ms", "p50_ms", "p95_ms", "p99_ms", "p999_ms", "max_ms",
)  # fmt: skip
PREFIX = "ottla-perf-"
#: A record and its batch must stay below the brokers' message.max.bytes, 1 MB by default.
SIZE_BYTES_MAX = 1_000_000

app = App("perf", "Measure a cluster from here: produce, consume, latency; with percentiles.")

main = partial(run, app)

Topic = Annotated[str | None, Parameter(help="Default: a topic of its own, which is deleted at the end.")]
Records = Annotated[int, Parameter(name=("--records", "-n"), help="How many.")]
Size = Annotated[int, Parameter(name=("--size", "-s"), help="Bytes of each value.")]


Partitions = Annotated[int, Parameter(name=("--partitions", "-p"), help="Partitions of the topic of its own.")]


@option_group
class OwnTopic:
    """Options of the topic that a run creates if it names none."""

    partitions: Partitions = 6
    replication_factor: Annotated[
        int, Parameter(name=("--replication-factor", "-r"), help="Replicas of the topic of its own.")
    ] = -1


@option_group
class OnePartition(OwnTopic):
    """Options of the topic for a run with one record at a time, if the run names none."""

    partitions: Partitions = 1


OWN_TOPIC, ONE_PARTITION = OwnTopic(), OnePartition()


@app.command
async def produce(
    topic: Topic = None,
    /,
    *,
    records: Records = 100_000,
    size: Size = 1000,
    rate: Annotated[float, Parameter(help="Records a second; 0: as many as go.")] = 0.0,
    linger: Annotated[
        float, Parameter(help="Milliseconds until a batch is sent that is not full.")
    ] = writing.LINGER_MS,
    compression: Compression = "none",
    own: OwnTopic = OWN_TOPIC,
    output: Output = "table",
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Write records with acks=all. The milliseconds are from a record, with --rate from when it was due, to its acknowledgement."""
    _check(records, size, rate, linger)
    async with (
        connect(connection, limited=False) as cluster,
        _topic(cluster, topic, own) as name,
    ):
        make = writing.same_value(cluster.world.rng, size)
        wanted = writing.Workload(records, make, rate, CODEC_IDS[compression], linger)
        row = await _produce(cluster, name, wanted)
    print_rows([row], COLUMNS, output)


@app.command
async def consume(
    topic: Topic = None,
    /,
    *,
    records: Annotated[
        int, Parameter(name=("--records", "-n"), help="Of a topic of its own; a topic that is named is read as it is.")
    ] = 100_000,
    size: Size = 1000,
    own: OwnTopic = OWN_TOPIC,
    output: Output = "table",
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Read a topic from its beginning to its end. The milliseconds are those between two responses with records."""
    _check(records, size)
    async with (
        connect(connection, limited=False) as cluster,
        _topic(cluster, topic, own) as name,
    ):
        if topic is None:
            await _produce(cluster, name, writing.Workload(records, writing.same_value(cluster.world.rng, size)))
        async with cluster.limit():
            first = await topics.list_offsets(cluster, name, topics.EARLIEST)
            ends = await topics.list_offsets(cluster, name, topics.LATEST)
        total = sum(ends.values()) - sum(first.values())
        clock = cluster.world.clock
        counted = _Counted(clock.mono_ns(), f"consuming {name}", total)
        consumer = Consumer(cluster, places_of(name, first), places_of(name, ends))
        await reading.consume(cluster, reading.records_of(consumer.fetch()), counted.add)
        row = counted.row("consume", clock.mono_ns())
    print_rows([row], COLUMNS, output)


@app.command
async def latency(
    topic: Topic = None,
    /,
    *,
    records: Records = 1000,
    size: Size = 100,
    rate: Annotated[float, Parameter(help="Records a second; 0: each as soon as the one before was received.")] = 0.0,
    own: OnePartition = ONE_PARTITION,
    output: Output = "table",
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Write one record after another while a consumer waits for each: until the acknowledgement (acks=all), and end to end."""
    _check(records, size, rate)
    async with (
        connect(connection, limited=False) as cluster,
        connect(connection, limited=False) as reader,
        _topic(cluster, topic, own) as name,
    ):
        async with cluster.limit():
            ends = await topics.list_offsets(cluster, name, topics.LATEST)
        clock = cluster.world.clock
        begin_ns = clock.mono_ns()
        counted = {what: Measured(begin_ns) for what in ("acknowledged", "end to end")}
        progress = ProgressLine(f"sending to {name}", records, "records", begin_ns // 1_000_000)

        def seen(trip: writing.RoundTrip) -> None:
            now_ns, bytes_ = clock.mono_ns(), size_of(trip.sent)
            for measured, ms in zip(counted.values(), (trip.acknowledged_ms, trip.received_ms), strict=True):
                measured.add(Taken(trip.number, 1, bytes_, ms, now_ns))
            progress.update(trip.number + 1, now_ns // 1_000_000)

        wanted = writing.Workload(records, writing.same_value(cluster.world.rng, size), rate)
        await writing.latency(cluster, reader, name, places_of(name, ends), wanted, seen)
        rows = [measured.row(what, clock.mono_ns()) for what, measured in counted.items()]
    print_rows(rows, COLUMNS, output)


async def _produce(cluster: ClusterClient, topic: str, wanted: writing.Workload) -> dict[str, object]:
    """Run the load. Return the row with its measurements."""
    clock = cluster.world.clock
    counted = _Counted(clock.mono_ns(), f"producing to {topic}", wanted.records)
    counted.begin_ns = await writing.produce(cluster, topic, wanted, counted.add)
    return counted.row("produce", clock.mono_ns())


class _Counted(Measured):
    """The measurements of a run, which show a line of progress."""

    def __init__(self, begin_ns: int, what: str, records: int) -> None:
        super().__init__(begin_ns)
        self._progress = ProgressLine(what, records, "records", begin_ns // 1_000_000)
        self._shown_ns = 0

    def add(self, taken: Taken) -> None:
        super().add(taken)
        if taken.at_ns != self._shown_ns:  # the records of one response come one after the other
            self._shown_ns = taken.at_ns
            self._progress.update(self.records, taken.at_ns // 1_000_000)


@asynccontextmanager
async def _topic(cluster: ClusterClient, name: str | None, own: OwnTopic) -> AsyncIterator[str]:
    """Yield the topic of a run. A topic that the run has created is deleted at the end, also after Ctrl-C."""
    if name is not None:
        async with cluster.limit():
            await cluster.topic(name)
        yield name
        return
    async with cluster.limit():
        topic = await topics.create_own_topic(cluster, PREFIX, own.partitions, own.replication_factor, {})
    note(f"topic {topic} (deleted at the end)")
    try:
        yield topic
    finally:
        async with cluster.limit():
            await topics.delete_topics(cluster, [topic])


def _check(records: int, size: int, rate: float = 0.0, linger: float = writing.LINGER_MS) -> None:
    if records < 1:
        raise CommandFailed(f"--records {records} is not above 0", None, USAGE)
    if not 0 <= size <= SIZE_BYTES_MAX:
        raise CommandFailed(f"--size {size} is not from 0 to {SIZE_BYTES_MAX}", None, USAGE)
    if not 0 <= rate < 1e9 or not 0 <= linger < 1e6:
        raise CommandFailed("--rate and --linger are not below 0, and finite", None, USAGE)
