"""kafka-consumer-perf-test: how many records a second are read. The client is Python: it is the slower half."""

from __future__ import annotations

import argparse
import asyncio
import re
from datetime import datetime

from ottla.cli.errors import CommandFailed
from ottla.cli.shims.tool import ToolParser, given, int32, int64, run_for_long
from ottla.cli.shims.topic_filter import java_pattern
from ottla.client import topics
from ottla.client.cluster import ClusterClient
from ottla.client.consumer import PARTITION_BYTES_MAX
from ottla.client.group_consumer import GroupConsumer

MIB = 1024 * 1024
FIELDS = "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"

WITHOUT_EFFECT = {
    "print-metrics": "The client has no metrics of Kafka's names.",
    "socket-buffer-size": "The kernel sizes the buffers of a connection.",
}
#: The letters of Java's SimpleDateFormat, and what strftime has for each: SSS, the milliseconds, is not in strftime.
DATE_PARTS = {
    "yyyy": "%Y",
    "yy": "%y",
    "MM": "%m",
    "dd": "%d",
    "HH": "%H",
    "hh": "%I",
    "mm": "%M",
    "ss": "%S",
    "a": "%p",
}
DATE_FORMAT = "yyyy-MM-dd HH:mm:ss:SSS"


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
    start_ms, begin_ms = clock.wall_ms(), clock.mono_ms()
    count = size = 0
    joined_ms: int | None = None
    report = _Report(options, begin_ms)
    names = [options.topic] if options.topic else await _included(cluster, options.include)
    async with GroupConsumer(cluster, name, names, reset=reset, partition_bytes_max=partition_bytes) as member:
        fetched = member.fetch()
        while count < wanted:
            try:
                _, _, records, _ = await asyncio.wait_for(anext(fetched), options.timeout / 1000)
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
        times = (time_text(moment_ms, options.date_format) for moment_ms in (start_ms, clock.wall_ms()))
        print(f"{', '.join(times)}, {_numbers(count, size, took_ms, joining_ms)}")
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


class _Report:
    """The lines of --show-detailed-stats, one for each --reporting-interval."""

    def __init__(self, options: argparse.Namespace, now_ms: int) -> None:
        self.interval_ms = options.reporting_interval if options.show_detailed_stats else None
        self.date_format = options.date_format
        self.last = (now_ms, 0, 0)

    def maybe_print(self, now_ms: int, wall_ms: int, count: int, size: int) -> None:
        then_ms, old_count, old_size = self.last
        if self.interval_ms is None or now_ms - then_ms < self.interval_ms:
            return
        seconds = (now_ms - then_ms) / 1000
        rates = f"{(size - old_size) / MIB / seconds:.4f}", f"{(count - old_count) / seconds:.4f}"
        print(
            f"{time_text(wall_ms, self.date_format)}, 0, {size / MIB:.4f}, {rates[0]}, {count}, {rates[1]}, 0, {now_ms - then_ms}, {rates[0]}, {rates[1]}",
            flush=True,
        )
        self.last = (now_ms, count, size)


def add_date_format(parser: ToolParser) -> None:
    """Add --date-format, whose value is checked when it is parsed."""
    parser.add_argument("--date-format", default=DATE_FORMAT, type=date_format)


def date_format(text: str) -> str:
    """Return a pattern of SimpleDateFormat. ValueError: it has letters that are not in DATE_PARTS, or a quote."""
    for letters, _ in _runs(text):
        if letters not in DATE_PARTS and letters != "SSS":
            raise ValueError(f"Illegal pattern '{letters}'")
    if "'" in text:
        raise ValueError("a quoted text is not served here")
    return text


def _runs(pattern: str) -> list[tuple[str, str]]:
    """Return each run of one letter, with the text behind it."""
    return [(found[1], found[3]) for found in re.finditer(r"(([A-Za-z])\2*)([^A-Za-z]*)", pattern)]


def time_text(wall_ms: int, pattern: str = DATE_FORMAT) -> str:
    """Return the local time by a pattern of SimpleDateFormat, which `date_format` has checked."""
    moment = datetime.fromtimestamp(wall_ms / 1000)
    start = re.match(r"[^A-Za-z]*", pattern)
    written = "" if start is None else start[0]
    for letters, behind in _runs(pattern):
        written += f"{wall_ms % 1000:03d}" if letters == "SSS" else moment.strftime(DATE_PARTS[letters])
        written += behind
    return written


def _numbers(count: int, size: int, took_ms: int, joining_ms: int) -> str:
    seconds, fetching_ms = took_ms / 1000, max(1, took_ms - joining_ms)
    fetching = fetching_ms / 1000
    mib = size / MIB
    return (
        f"{mib:.4f}, {mib / seconds:.4f}, {count}, {count / seconds:.4f}, {joining_ms}, {fetching_ms}, "
        f"{mib / fetching:.4f}, {count / fetching:.4f}"
    )
