"""kafka-consumer-perf-test: how many records a second are read. The client is written in Python, and is slower than the broker."""

from __future__ import annotations

import argparse

from ottla.cli.errors import CommandFailed
from ottla.cli.load.measured import Measured, MeasuredRun, Taken
from ottla.cli.load.reading import consume, records_of
from ottla.cli.shims.perf_texts import MIB, add_date_format, milliseconds, times_text, too_few
from ottla.cli.shims.tool import ToolParser, given, int32, int64, run_for_long
from ottla.cli.shims.topic_filter import java_pattern
from ottla.client import topics
from ottla.client.cluster import ClusterClient
from ottla.client.consumer import PARTITION_BYTES_MAX
from ottla.client.group_consumer import GroupConsumer

FIELDS = "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"

WITHOUT_EFFECT = {
    "print-metrics": "The client has no metrics of Kafka's names.",
    "socket-buffer-size": "The kernel sizes the buffers of a connection.",
}


def main(arguments: list[str]) -> int:
    parser = ToolParser("kafka-consumer-perf-test", "This tool is used to verify the consumer performance.")
    parser.add_bootstrap(old_names=("--consumer.config",))
    parser.texts("topic", "include", "group")
    add_date_format(parser)
    parser.flags("from-latest", "print-metrics", "show-detailed-stats", "hide-header")
    parser.numbers("num-records", "messages", "fetch-size", "socket-buffer-size")
    parser.lists("command-property")
    parser.add_argument("--timeout", type=int64, default=10_000)
    parser.add_argument("--reporting-interval", type=int64, default=5_000)
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
    properties = options.client_properties
    name = options.group or properties.get("group.id") or f"perf-consumer-{cluster.world.rng.randrange(100_000)}"
    partition_bytes = options.fetch_size or int32(properties.get("max.partition.fetch.bytes", str(PARTITION_BYTES_MAX)))
    reset = topics.LATEST if options.from_latest else topics.EARLIEST
    start_ms, begin_ns = clock.wall_ms(), clock.mono_ns()
    joined_ns: int | None = None
    run = MeasuredRun(begin_ns, options.reporting_interval)

    def seen(taken: Taken) -> None:
        nonlocal joined_ns
        joined_ns = joined_ns or taken.at_ns
        run.add(taken)
        if options.show_detailed_stats and (ended := run.ended_window(taken.at_ns)):
            print(_window(run.every, ended, taken.at_ns, times_text(options, clock.wall_ms())), flush=True)

    names = [options.topic] if options.topic else await _included(cluster, options.include)
    async with GroupConsumer(cluster, name, names, reset=reset, partition_bytes_max=partition_bytes) as member:
        source, silent_s = records_of(member.fetch()), options.timeout / 1000
        if not await consume(cluster, source, seen, wanted=lambda: run.every.records < wanted, silent_s=silent_s):
            print(too_few(options))
        end_ns = clock.mono_ns()
    if not options.show_detailed_stats:
        took_ms = milliseconds(run.every, end_ns)
        joining_ms = took_ms if joined_ns is None else min((joined_ns - begin_ns) // 1_000_000, took_ms)
        print(f"{times_text(options, start_ms, clock.wall_ms())}, {_numbers(run.every, took_ms, joining_ms)}")
    return 0


async def _included(cluster: ClusterClient, text: str) -> list[str]:
    """Return the topics that match, without internal ones.

    Raises:
        CommandFailed: the text is no regular expression, or no topic matches it.
    """
    pattern = java_pattern(text)
    async with cluster.limit():
        found = (await cluster.metadata(None)).topics
    names = sorted(topic.name or "" for topic in found if not topic.is_internal)
    if matching := [name for name in names if pattern.fullmatch(name)]:
        return matching
    raise CommandFailed(f"no topic matches {text}")


def _window(every: Measured, window: Measured, now_ns: int, time: str) -> str:
    """Return the line of --show-detailed-stats for the end of a --reporting-interval."""
    seconds = window.seconds(now_ns)
    mib, count = f"{window.bytes / MIB / seconds:.4f}", f"{window.records / seconds:.4f}"
    total = f"{every.bytes / MIB:.4f}, {mib}, {every.records}, {count}"
    return f"{time}, 0, {total}, 0, {milliseconds(window, now_ns)}, {mib}, {count}"


def _numbers(measured: Measured, took_ms: int, joining_ms: int) -> str:
    seconds, fetching_ms = took_ms / 1000, max(1, took_ms - joining_ms)
    fetching = fetching_ms / 1000
    mib, count = measured.bytes / MIB, measured.records
    return (
        f"{mib:.4f}, {mib / seconds:.4f}, {count}, {count / seconds:.4f}, {joining_ms}, {fetching_ms}, "
        f"{mib / fetching:.4f}, {count / fetching:.4f}"
    )
