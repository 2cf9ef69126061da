"""kafka-e2e-latency: the time that single records take from a producer to a consumer."""

from __future__ import annotations

import argparse
import sys
from random import Random

from ottla.cli.load.measured import Durations
from ottla.cli.load.writing import NotReceived, RoundTrip, Workload, latency
from ottla.cli.shims.exceptions import reason
from ottla.cli.shims.tool import TIMEOUT_MS, ToolParser, Unusable, opened, with_cluster
from ottla.client import topics
from ottla.client.cluster import ClusterClient
from ottla.client.consumer import places_of
from ottla.client.failures import Failure
from ottla.protocol.records.record import NewRecord

#: The positional arguments of earlier versions, which Kafka's tool still takes.
PLACES = ("bootstrap-server", "topic", "num-records", "producer-acks", "record-size", "command-config")
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
    rng, took = Random(0), Durations()
    headers = tuple(
        (_bytes(rng, options.record_header_key_size).decode(), _bytes(rng, options.record_header_size))
        for _ in range(options.num_headers or 0)
    )
    key = _bytes(rng, options.record_key_size) if options.record_key_size else None

    def make(number: int, wall_ms: int) -> NewRecord:
        return NewRecord(key, _bytes(rng, options.record_size), wall_ms, headers)

    def seen(trip: RoundTrip) -> None:
        if [record.value for record in trip.received] != [trip.sent.value]:
            raise Unusable("The message read did not match the message sent, or was not alone")
        if trip.number % PROGRESS_RECORDS == 0:
            print(f"{trip.number}\t{trip.received_ms}")
        took.add(trip.received_ms)

    async with opened(options) as reader:
        async with cluster.limit():
            ends = places_of(options.topic, await topics.list_offsets(cluster, options.topic, topics.LATEST))
        try:
            await latency(cluster, reader, options.topic, ends, Workload(options.num_records, make), seen)
        except NotReceived:
            raise Unusable(f"poll() timed out before finding a result (timeout:[{TIMEOUT_MS}ms])") from None
    print(f"Avg latency: {took.mean_ms:.4f} ms")
    p50, p99, p999 = (int(took.percentile_ms(part)) for part in (0.5, 0.99, 0.999))
    print(f"Percentiles: 50th = {p50}, 99th = {p99}, 99.9th = {p999}")
    return 0
