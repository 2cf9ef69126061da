"""kafka-e2e-latency: how long single records take from a producer to a consumer."""

from __future__ import annotations

import argparse
import asyncio
import sys
from random import Random

from ottla.cli.shims.exceptions import reason
from ottla.cli.shims.tool import ToolParser, Unusable, with_cluster
from ottla.client import topics
from ottla.client.cluster import ClusterClient
from ottla.client.consumer import Consumer, places_of
from ottla.client.failures import Failure
from ottla.client.producer import ClusterProducer
from ottla.protocol.records.record import NewRecord

#: The arguments of earlier versions, by their places, which Kafka still takes.
PLACES = ("bootstrap-server", "topic", "num-records", "producer-acks", "record-size", "command-config")
POLL_TIMEOUT_S = 60
PROGRESS_RECORDS = 1000


def main(arguments: list[str]) -> int:
    if arguments and not any(word.startswith("-") for word in arguments) and len(arguments) in (5, 6):
        arguments = [word for pair in zip(PLACES, arguments, strict=False) for word in (f"--{pair[0]}", pair[1])]
    parser = ToolParser("kafka-e2e-latency", "This tool measures end-to-end latency.")
    parser.add_bootstrap()
    parser.texts("topic", "producer-acks")
    parser.numbers("num-records", "record-size", "record-key-size", "num-headers")
    parser.numbers("record-header-key-size", "record-header-size")
    options = parser.parse(arguments)
    parser.require(options, "topic", "num-records", "producer-acks", "record-size")
    try:
        if options.producer_acks not in ("1", "all"):
            raise Unusable("Latency testing requires synchronous acknowledgement. Please use '1' or 'all'.")
        return with_cluster(options, lambda cluster: _run(cluster, options), limited=False)
    except Unusable as wrong:
        print(wrong, file=sys.stderr)
    except Failure as failure:
        print(reason(failure), file=sys.stderr)
    return 1


def _bytes(rng: Random, size: int | None) -> bytes:
    return bytes([rng.randrange(65, 91)]) * (size or 0)


async def _run(cluster: ClusterClient, options: argparse.Namespace) -> int:
    producer = ClusterProducer(cluster, options.topic)
    async with cluster.limit():
        await producer.start()
        ends = await topics.list_offsets(cluster, options.topic, topics.LATEST)
    consumer = Consumer(cluster, places_of(options.topic, ends))
    clock, rng, delays_ns = cluster.world.clock, Random(0), []
    fetched = consumer.fetch()
    headers = tuple(
        (_bytes(rng, options.record_header_key_size).decode(), _bytes(rng, options.record_header_size))
        for _ in range(options.num_headers or 0)
    )
    key = _bytes(rng, options.record_key_size) if options.record_key_size else None
    for number in range(options.num_records):
        value = _bytes(rng, options.record_size)
        begin_ns = clock.mono_ns()
        await producer.send(NewRecord(key, value, clock.wall_ms(), headers))
        await producer.flush()
        try:
            _, _, records, _ = await asyncio.wait_for(anext(fetched), POLL_TIMEOUT_S)
        except TimeoutError:
            raise Unusable(f"poll() timed out before finding a result (timeout:[{POLL_TIMEOUT_S * 1000}ms])") from None
        took_ns = clock.mono_ns() - begin_ns
        if [record.value for record in records] != [value]:
            raise Unusable("The message read did not match the message sent, or was not alone")
        if number % PROGRESS_RECORDS == 0:
            print(f"{number}\t{took_ns / 1e6}")
        delays_ns.append(took_ns)
    delays_ns.sort()
    print(f"Avg latency: {sum(delays_ns) / len(delays_ns) / 1e6:.4f} ms")
    p50, p99, p999 = (delays_ns[int(len(delays_ns) * part)] // 1_000_000 for part in (0.5, 0.99, 0.999))
    print(f"Percentiles: 50th = {p50}, 99th = {p99}, 99.9th = {p999}")
    return 0
