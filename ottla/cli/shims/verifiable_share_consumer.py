"""kafka-verifiable-share-consumer: it reads a topic as a member of a share group, and prints each step as a JSON line."""

from __future__ import annotations

import argparse

from ottla.cli.shims.exceptions import message
from ottla.cli.shims.tool import TreeParser, connected, int64, run_for_long
from ottla.cli.shims.verifiable_events import print_event, text
from ottla.client.cluster import ClusterClient
from ottla.client.configs import alter_configs
from ottla.client.share_consumer import AcquiredRecords, ShareConsumer

STRATEGY = "share.auto.offset.reset"


WITHOUT_EFFECT = {"acknowledgement-mode": "Each poll is acknowledged, and the result is awaited, before the next one."}


def main(arguments: list[str]) -> int:
    parser = TreeParser(
        "verifiable-share-consumer",
        "This tool creates a share group and consumes messages from a specific topic and emits share consumer events"
        " (e.g. share consumer startup, received messages, and offsets acknowledged) as JSON objects to STDOUT.",
    )
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group-id", required=True)
    parser.add_argument("--max-messages", type=int64, default=-1)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--acknowledgement-mode", default="auto", choices=("auto", "sync", "async"))
    parser.add_argument("--offset-reset-strategy", default="")
    parser.add_argument("--command-config")
    if not arguments:
        parser.print_help()
        return 0
    options = connected(parser.parse_args(arguments))
    return run_for_long(options, lambda cluster: _run(cluster, options))


async def _run(cluster: ClusterClient, options: argparse.Namespace) -> int:
    clock = cluster.world.clock
    print_event(clock, "startup_complete")
    if strategy := options.offset_reset_strategy.lower():
        await alter_configs(cluster, "group", options.group_id, {STRATEGY: strategy})
        print_event(clock, "offset_reset_strategy_set", offsetResetStrategy=strategy)
    done = 0
    async with ShareConsumer(cluster, options.group_id, [options.topic]) as member:
        while options.max_messages < 0 or done < options.max_messages:
            acquired = await member.poll()
            if not acquired:
                continue
            _print_consumed(cluster, acquired, options.verbose)
            results = await member.acknowledge(acquired)
            wrong = next((code for _, code in results.values() if code), 0)
            rows = [_summary(*place, offsets) for place, (offsets, _) in results.items()]
            facts = {"count": len(acquired), "partitions": rows, "success": not wrong}
            print_event(clock, "offsets_acknowledged", **facts, **({"error": message(wrong)} if wrong else {}))
            done += 0 if wrong else len(acquired)
    print_event(clock, "shutdown_complete")
    return 0


def _summary(topic: str, partition: int, offsets: list[int]) -> dict[str, object]:
    return {"topic": topic, "partition": partition, "count": len(offsets), "offsets": sorted(offsets)}


def _print_consumed(cluster: ClusterClient, acquired: list[AcquiredRecords], verbose: bool) -> None:
    offsets: dict[tuple[str, int], list[int]] = {}
    for row in acquired:
        offsets.setdefault((row.topic, row.partition), []).append(row.record.offset)
        if verbose:
            key, value = text(row.record.key), text(row.record.value)
            facts = {"topic": row.topic, "partition": row.partition, "offset": row.record.offset}
            print_event(cluster.world.clock, "record_data", key=key, value=value, **facts)
    rows = [_summary(*place, numbers) for place, numbers in offsets.items()]
    print_event(cluster.world.clock, "records_consumed", count=len(acquired), partitions=rows)
