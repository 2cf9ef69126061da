"""kafka-share-consumer-perf-test: how many records a second a share group reads.

The client is written in Python, and is slower than the broker.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

from ottla.cli.load.measured import Measured, MeasuredRun, Taken
from ottla.cli.load.reading import consume
from ottla.cli.shims.perf_texts import MIB, add_date_format, milliseconds, times_text, too_few
from ottla.cli.shims.tool import ToolParser, deprecated, int64, run_for_long
from ottla.client.cluster import ClusterClient
from ottla.client.share_consumer import ShareConsumer
from ottla.protocol.records.record import Record

HEADER = "start.time, end.time, data.consumed.in.MB, MB.sec, nMsg.sec, data.consumed.in.nMsg, fetch.time.ms"
CLIENT_ID = "perf-share-consumer-client"


WITHOUT_EFFECT = {
    "print-metrics": "The client has no metrics of Kafka's names.",
    "fetch-size": "A ShareFetch has no limit for one partition since its version 1.",
    "socket-buffer-size": "The kernel sizes the buffers of a connection.",
}


def main(arguments: list[str]) -> int:
    parser = ToolParser("kafka-share-consumer-perf-test", "This tool is used to verify the share consumer performance.")
    parser.add_bootstrap(old_names=("--consumer.config",))
    parser.texts("topic")
    add_date_format(parser)
    parser.flags("print-metrics", "show-detailed-stats", "hide-header", "show-consumer-stats")
    parser.numbers("num-records", "messages", "fetch-size", "socket-buffer-size")
    parser.lists("command-property")
    parser.add_argument("--group", default="perf-share-consumer")
    parser.add_argument("--threads", type=int64, default=1)
    parser.add_argument("--timeout", type=int64, default=10_000)
    parser.add_argument("--reporting-interval", type=int64, default=5_000)
    options = parser.parse(arguments, bootstrap=False)
    parser.require(options, "topic", "bootstrap-server")
    if (options.num_records is None) == (options.messages is None):
        parser.usage_error("Exactly one of the following arguments is required: [messages], [num-records]")
    parser.forbid(options, "consumer.config", "command-config")
    if options.messages is not None:
        print("Warning: --messages is deprecated. Use --num-records instead.")
    deprecated(options, {"consumer.config": "command-config"})
    parser.connect(options)
    return run_for_long(options, lambda cluster: _run(cluster, options))


async def _run(cluster: ClusterClient, options: argparse.Namespace) -> int:
    if not options.hide_header:
        print(HEADER)
    clock = cluster.world.clock
    wanted: int = options.num_records if options.messages is None else options.messages
    name = options.client_properties.get("client.id", CLIENT_ID)
    ids = [name] if options.threads == 1 else [f"{name}-{number + 1}" for number in range(options.threads)]
    start_ms, begin_ns = clock.wall_ms(), clock.mono_ns()
    runs = [MeasuredRun(begin_ns, options.reporting_interval) for _ in ids]

    def is_wanted() -> bool:
        return sum(run.every.records for run in runs) < wanted

    await asyncio.gather(*(_consume(cluster, options, run, number, is_wanted) for number, run in enumerate(runs, 1)))
    times = times_text(options, start_ms, clock.wall_ms())
    end_ns = clock.mono_ns()
    if options.show_consumer_stats:
        for number, (client_id, run) in enumerate(zip(ids, runs, strict=True), 1):
            who = f"Share consumer {number} having client id {client_id} consumption metrics- "
            print(f"{who}{times}, {_numbers(run.every, end_ns)}")
    if is_wanted():
        print(too_few(options))
    every = Measured(begin_ns, sum(run.every.records for run in runs), sum(run.every.bytes for run in runs))
    print(f"{times}, {_numbers(every, end_ns)}")
    return 0


async def _consume(
    cluster: ClusterClient, options: argparse.Namespace, run: MeasuredRun, number: int, is_wanted: Callable[[], bool]
) -> None:
    clock = cluster.world.clock

    def seen(taken: Taken) -> None:
        run.add(taken)
        if options.show_detailed_stats and (ended := run.ended_window(taken.at_ns)):
            took_ms, wall_ms = milliseconds(ended, taken.at_ns), clock.wall_ms()
            times = times_text(options, wall_ms - took_ms, wall_ms)
            print(f"{times}, {_window(run.every, ended, taken.at_ns)} for share consumer {number}", flush=True)

    async with ShareConsumer(cluster, options.group, [options.topic]) as consumer:
        await consume(cluster, _acquired(consumer), seen, wanted=is_wanted, silent_s=options.timeout / 1000)


async def _acquired(consumer: ShareConsumer) -> AsyncIterator[Sequence[Record]]:
    """Acknowledge and yield the records that the leaders have; a chunk may be empty."""
    while True:
        acquired = await consumer.poll()
        if acquired:
            await consumer.acknowledge(acquired)
        yield [found.record for found in acquired]


def _window(every: Measured, window: Measured, now_ns: int) -> str:
    seconds = window.seconds(now_ns)
    rates = f"{window.bytes / MIB / seconds:.4f}, {window.records / seconds:.4f}"
    return f"{every.bytes / MIB:.4f}, {rates}, {every.records}, {milliseconds(window, now_ns)}"


def _numbers(measured: Measured, now_ns: int) -> str:
    seconds, mib = measured.seconds(now_ns), measured.bytes / MIB
    rates = f"{mib / seconds:.4f}, {measured.records / seconds:.4f}"
    return f"{mib:.4f}, {rates}, {measured.records}, {milliseconds(measured, now_ns)}"
