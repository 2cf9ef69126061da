"""kafka-verifiable-producer: it writes numbers, and prints a JSON line for each that is acknowledged."""

from __future__ import annotations

import argparse
import asyncio

from ottla.cli.shims.exceptions import exception_name, reason
from ottla.cli.shims.tool import TreeParser, connected, int64, run_for_long
from ottla.cli.shims.verifiable_events import print_event, text
from ottla.client.cluster import ClusterClient
from ottla.client.failures import Failure
from ottla.client.idempotence import SentBatch
from ottla.client.producer import ClusterProducer
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.record import NewRecord

#: Records are collected for at most this long before they are sent, so that a single record does not wait.
LINGER_MS = 50


WITHOUT_EFFECT = {"acks": "An idempotent producer waits for all replicas."}


def main(arguments: list[str]) -> int:
    parser = TreeParser(
        "verifiable-producer",
        'This tool produces increasing integers to the specified topic and prints JSON metadata to stdout on each "send"'
        " request, making externally visible which messages have been acked and which have not.",
    )
    parser.add_argument("--topic", required=True)
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--max-messages", type=int64, default=-1)
    parser.add_argument("--throughput", type=int64, default=-1)
    # ignored: an idempotent producer waits for all replicas
    parser.add_argument("--acks", type=int64, choices=(0, 1, -1), default=-1)
    parser.add_argument("--producer.config", dest="old_config")
    parser.add_argument("--command-config")
    parser.add_argument("--message-create-time", type=int64, default=-1)
    parser.add_argument("--value-prefix", type=int64)
    parser.add_argument("--repeating-keys", type=int64)
    if not arguments:
        parser.print_help()
        return 0
    options = connected(parser.take_old_config(parser.parse_args(arguments), "producer.config"))
    return run_for_long(options, lambda cluster: _run(cluster, options))


async def _run(cluster: ClusterClient, options: argparse.Namespace) -> int:
    clock = cluster.world.clock

    def acknowledged(partition: int, offset: int, batch: SentBatch) -> None:
        for number, record in enumerate(batch.records):
            facts = {"key": text(record.key), "value": text(record.value), "offset": offset + number}
            print_event(clock, "producer_send_success", **facts, topic=options.topic, partition=partition)

    producer = ClusterProducer(cluster, options.topic, on_acknowledged=acknowledged)
    async with cluster.limit():
        await producer.start()
    print_event(clock, "startup_complete")
    begin_ms, failed = clock.mono_ms(), None
    try:
        await _send_all(cluster, producer, options)
    except Failure as failure:
        failed = failure
        name = exception_name(failure.code or ErrorCode.REQUEST_TIMED_OUT)
        facts = {"exception": f"class {name}", "message": reason(failure), "topic": options.topic}
        print_event(clock, "producer_send_error", **facts)
    print_event(clock, "shutdown_complete")
    rate = producer.acknowledged * 1000 / max(1, clock.mono_ms() - begin_ms)
    totals = {"sent": producer.sent, "acked": producer.acknowledged, "target_throughput": options.throughput}
    print_event(clock, "tool_data", **totals, avg_throughput=rate)
    return 0 if failed is None else 1


async def _send_all(cluster: ClusterClient, producer: ClusterProducer, options: argparse.Namespace) -> None:
    clock = cluster.world.clock
    begin_ms = flushed_ms = clock.mono_ms()
    number, create_ms = 0, options.message_create_time
    while number != options.max_messages:
        value = str(number) if options.value_prefix is None else f"{options.value_prefix}.{number}"
        key = None if options.repeating_keys is None else str(number % options.repeating_keys).encode()
        time_ms = clock.wall_ms() if create_ms < 0 else create_ms + clock.mono_ms() - begin_ms
        await producer.send(NewRecord(key, value.encode(), time_ms))
        number += 1
        wait_ms = number * 1000 / options.throughput - (clock.mono_ms() - begin_ms) if options.throughput > 0 else 0
        if wait_ms > LINGER_MS or clock.mono_ms() - flushed_ms >= LINGER_MS:
            await producer.flush()
            flushed_ms = clock.mono_ms()
        if wait_ms > 0:
            await asyncio.sleep(wait_ms / 1000)
    await producer.flush()
