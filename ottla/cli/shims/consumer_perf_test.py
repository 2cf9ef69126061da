"""kafka-consumer-perf-test: how many records a second are read. The client is Python: it is the slower half."""

from __future__ import annotations

import argparse
import asyncio
from datetime import datetime

from ottla.cli.client import topics
from ottla.cli.client.cluster import ClusterClient
from ottla.cli.client.group_consumer import GroupConsumer
from ottla.cli.shims.tool import Parser, given, run_for_long

MIB = 1024 * 1024
FIELDS = "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"


def main(arguments: list[str]) -> int:
    parser = Parser("kafka-consumer-perf-test", "This tool is used to verify the consumer performance.")
    parser.add_bootstrap(old_names=("--consumer.config",))
    parser.texts("topic", "include", "group", "date-format")
    parser.flags("from-latest", "print-metrics", "show-detailed-stats", "hide-header")
    parser.numbers("num-records", "messages", "fetch-size", "socket-buffer-size")
    parser.lists("command-property")
    parser.add_argument("--timeout", type=int, default=10_000)
    parser.add_argument("--reporting-interval", type=int, default=5_000)
    options = parser.parse(arguments)
    if given(options, "messages"):
        print("Warning: --messages is deprecated. Use --num-records instead.")
    if not (given(options, "topic") or given(options, "include")):
        parser.usage_error("Exactly one of the following arguments is required: [topic], [include]")
    if given(options, "num-records") == given(options, "messages"):
        parser.usage_error("Exactly one of the following arguments is required: [messages], [num-records]")
    return run_for_long(options, lambda cluster: _run(cluster, options))


async def _run(cluster: ClusterClient, options: argparse.Namespace) -> int:
    if not options.hide_header:
        print(f"{'time, threadId' if options.show_detailed_stats else 'start.time, end.time'}, {FIELDS}")
    wanted = options.num_records or options.messages
    clock = cluster.world.clock
    name = options.group or f"perf-consumer-{cluster.world.rng.randrange(100_000)}"
    reset = topics.LATEST if options.from_latest else topics.EARLIEST
    start_ms, begin_ms = clock.wall_ms(), clock.mono_ms()
    count = size = 0
    joined_ms: int | None = None
    report = _Report(options, begin_ms)
    async with GroupConsumer(cluster, name, [options.topic or options.include], reset=reset) as member:
        fetched = member.fetch()
        while count < wanted:
            try:
                _, _, records = await asyncio.wait_for(anext(fetched), options.timeout / 1000)
            except TimeoutError:
                print(
                    f"WARNING: Exiting before consuming the expected number of records: timeout ({options.timeout} ms) exceeded. "
                    "You can use the --timeout option to increase the timeout."
                )
                break
            joined_ms = joined_ms or clock.mono_ms() - begin_ms
            count += len(records)
            size += sum(len(record.key or b"") + len(record.value or b"") for record in records)
            report.maybe_print(clock.mono_ms(), clock.wall_ms(), count, size)
        took_ms = max(1, clock.mono_ms() - begin_ms)
    if not options.show_detailed_stats:
        joining_ms = min(joined_ms or took_ms, took_ms)
        print(f"{time_text(start_ms)}, {time_text(clock.wall_ms())}, {_numbers(count, size, took_ms, joining_ms)}")
    return 0


class _Report:
    """The lines of --show-detailed-stats, one for each --reporting-interval."""

    def __init__(self, options: argparse.Namespace, now_ms: int) -> None:
        self.interval_ms = options.reporting_interval if options.show_detailed_stats else None
        self.last = (now_ms, 0, 0)

    def maybe_print(self, now_ms: int, wall_ms: int, count: int, size: int) -> None:
        then_ms, old_count, old_size = self.last
        if self.interval_ms is None or now_ms - then_ms < self.interval_ms:
            return
        seconds = (now_ms - then_ms) / 1000
        rates = f"{(size - old_size) / MIB / seconds:.4f}", f"{(count - old_count) / seconds:.4f}"
        print(
            f"{time_text(wall_ms)}, 0, {size / MIB:.4f}, {rates[0]}, {count}, {rates[1]}, 0, {now_ms - then_ms}, {rates[0]}, {rates[1]}",
            flush=True,
        )
        self.last = (now_ms, count, size)


def time_text(wall_ms: int) -> str:
    moment = datetime.fromtimestamp(wall_ms / 1000)
    return moment.strftime("%Y-%m-%d %H:%M:%S:") + f"{wall_ms % 1000:03d}"


def _numbers(count: int, size: int, took_ms: int, joining_ms: int) -> str:
    seconds, fetching_ms = took_ms / 1000, max(1, took_ms - joining_ms)
    fetching = fetching_ms / 1000
    mib = size / MIB
    return (
        f"{mib:.4f}, {mib / seconds:.4f}, {count}, {count / seconds:.4f}, {joining_ms}, {fetching_ms}, "
        f"{mib / fetching:.4f}, {count / fetching:.4f}"
    )
