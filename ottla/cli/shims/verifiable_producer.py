"""kafka-verifiable-producer: writes numbers, and says of each on standard output that it was acknowledged, as JSON lines."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys

from ottla.cli.client import topics
from ottla.cli.client.cluster import ClusterClient
from ottla.cli.client.producer import Producer
from ottla.cli.errors import CommandFailed
from ottla.cli.shims.exceptions import reason
from ottla.cli.shims.tool import TreeParser, connected, with_cluster
from ottla.protocol.records import NewRecord


def main(arguments: list[str]) -> int:
    parser = TreeParser("verifiable-producer", "This tool produces increasing integers to the specified topic.")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--max-messages", type=int, default=-1)
    parser.add_argument("--throughput", type=int, default=-1)
    parser.add_argument("--acks", type=int, choices=(0, 1, -1), default=-1)  # -1 is used always
    parser.add_argument("--command-config", "--producer.config", dest="command_config")
    parser.add_argument("--message-create-time", type=int, default=-1)
    parser.add_argument("--value-prefix", type=int)
    parser.add_argument("--repeating-keys", type=int)
    options = connected(parser.parse_args(arguments))
    try:
        return with_cluster(options, lambda cluster: _run(cluster, options), limited=False)
    except CommandFailed as failure:
        print(reason(failure), file=sys.stderr)
        return 1


async def _run(cluster: ClusterClient, options: argparse.Namespace) -> int:
    """Send one record after the other, so that the end of its partition shows its offset: no other producer should write meanwhile."""
    clock = cluster.world.clock

    def say(name: str, **facts: object) -> None:
        row = {"timestamp": clock.wall_ms(), "name": name, **facts}
        print(json.dumps(row, separators=(",", ":")), flush=True)

    producer = Producer(cluster, options.topic)
    async with cluster.limit():
        await producer.start()
    say("startup_complete")
    begin_ms, number, create_ms = clock.mono_ms(), 0, options.message_create_time
    while number != options.max_messages:
        value = str(number) if options.value_prefix is None else f"{options.value_prefix}.{number}"
        key = None if options.repeating_keys is None else str(number % options.repeating_keys)
        partition = number % producer.partitions
        time_ms = clock.wall_ms() if create_ms < 0 else create_ms + clock.mono_ms() - begin_ms
        await producer.send(NewRecord(key.encode() if key else None, value.encode(), time_ms), partition)
        async with cluster.limit():
            await producer.flush()
            ends = await topics.list_offsets(cluster, options.topic, topics.LATEST, [partition])
        facts = {"key": key, "value": value, "offset": ends[partition] - 1, "topic": options.topic}
        say("producer_send_success", **facts, partition=partition)
        number += 1
        if options.throughput > 0:
            await asyncio.sleep(max(0.0, number / options.throughput - (clock.mono_ms() - begin_ms) / 1000))
    say("shutdown_complete")
    rate = number * 1000 / max(1, clock.mono_ms() - begin_ms)
    totals = {"sent": number, "acked": producer.acknowledged, "target_throughput": options.throughput}
    say("tool_data", **totals, avg_throughput=rate)
    return 0
