"""kafka-share-consumer-perf-test: how many records a second a share group reads. The client is Python: it is the slower half."""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import dataclass, field

from ottla.cli.shims.consumer_perf_test import MIB, add_date_format, time_text
from ottla.cli.shims.tool import ToolParser, deprecated, int64, run_for_long
from ottla.client.cluster import ClusterClient
from ottla.client.share_consumer import ShareConsumer

HEADER = "start.time, end.time, data.consumed.in.MB, MB.sec, nMsg.sec, data.consumed.in.nMsg, fetch.time.ms"
CLIENT_ID = "perf-share-consumer-client"


WITHOUT_EFFECT = {
    "print-metrics": "The client has no metrics of Kafka's names.",
    "fetch-size": "A ShareFetch has no limit for one partition since its version 1.",
    "socket-buffer-size": "The kernel sizes the buffers of a connection.",
}


@dataclass
class _Member:
    """The progress of one consumer, and what it was at its last report."""

    client_id: str
    records: int = 0
    size: int = 0
    reported: tuple[int, int, int] = field(default=(0, 0, 0))


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
    members = [_Member(client_id) for client_id in ids]
    start_ms, begin_ms = clock.wall_ms(), clock.mono_ms()
    await asyncio.gather(*(_consume(cluster, options, members, number, wanted) for number in range(len(members))))
    took_ms, end_ms = max(1, clock.mono_ms() - begin_ms), clock.wall_ms()
    if options.show_consumer_stats:
        for number, member in enumerate(members, 1):
            who = f"Share consumer {number} having client id {member.client_id} consumption metrics- "
            print(who + _numbers(options, start_ms, end_ms, member.records, member.size, took_ms))
    records, size = sum(row.records for row in members), sum(row.size for row in members)
    if records < wanted:
        print(
            f"WARNING: Exiting before consuming the expected number of records: timeout ({options.timeout} ms) exceeded. "
            "You can use the --timeout option to increase the timeout."
        )
    print(_numbers(options, start_ms, end_ms, records, size, took_ms))
    return 0


async def _consume(
    cluster: ClusterClient, options: argparse.Namespace, members: list[_Member], number: int, wanted: int
) -> None:
    clock, row = cluster.world.clock, members[number]
    last_ms = clock.mono_ms()
    row.reported = (last_ms, 0, 0)
    async with ShareConsumer(cluster, options.group, [options.topic]) as consumer:
        while sum(member.records for member in members) < wanted and clock.mono_ms() - last_ms <= options.timeout:
            acquired = await consumer.poll()
            if acquired:
                last_ms = clock.mono_ms()
            row.records += len(acquired)
            row.size += sum(len(found.record.key or b"") + len(found.record.value or b"") for found in acquired)
            if options.show_detailed_stats:
                _report(cluster, options, row, number + 1)
            if acquired:
                await consumer.acknowledge(acquired)


def _report(cluster: ClusterClient, options: argparse.Namespace, row: _Member, number: int) -> None:
    now_ms, wall_ms = cluster.world.clock.mono_ms(), cluster.world.clock.wall_ms()
    then_ms, records, size = row.reported
    took_ms = now_ms - then_ms
    if took_ms < options.reporting_interval:
        return
    rates = (row.size - size) / MIB / took_ms * 1000, (row.records - records) / took_ms * 1000
    print(
        f"{_times(options, wall_ms - took_ms, wall_ms)}, {row.size / MIB:.4f}, {rates[0]:.4f}, {rates[1]:.4f},"
        f" {row.records}, {took_ms} for share consumer {number}",
        flush=True,
    )
    row.reported = (now_ms, row.records, row.size)


def _times(options: argparse.Namespace, *moments_ms: int) -> str:
    return ", ".join(time_text(moment_ms, options.date_format) for moment_ms in moments_ms)


def _numbers(options: argparse.Namespace, start_ms: int, end_ms: int, records: int, size: int, took_ms: int) -> str:
    seconds, mib = took_ms / 1000, size / MIB
    return f"{_times(options, start_ms, end_ms)}, {mib:.4f}, {mib / seconds:.4f}, {records / seconds:.4f}, {records}, {took_ms}"
