"""The effect of a client far above its quota on another client (goal G13): `python -m benchmarks.neighbour`.

The end-to-end p99 of messages at a steady rate, alone and beside a noisy client that is throttled by a quota of its client id:

    producer   sends ten times its producer_byte_rate, as far as its throttle times let it
    consumer   reads a topic again and again, without a pause of its own, with a consumer_byte_rate
    requests   asks for the metadata of all topics, without a pause, with a request_percentage

The noisy client is a process of its own and shares the machine's cores; `--unlimited` shows what it costs without a quota.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.turns import run_load
from ottla.protocol.api import ApiKey
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntryDataRequest,
    OpData,
)
from ottla.protocol.messages.shared_structs import EntityData
from ottla.testing import Cluster
from ottla.testing.connection import ClusterConnection

NOISY, QUIET = "noisy", "quiet"
BYTES_PER_SECOND = 1_000_000
QUOTAS = {
    "producer": ("producer_byte_rate", BYTES_PER_SECOND),
    "consumer": ("consumer_byte_rate", BYTES_PER_SECOND),
    "requests": ("request_percentage", 5.0),
}
TIMES = 10
RECORD_BYTES = 10_000
LOAD = {"topic": "quiet", "partitions": 1, "rate": 500, "seconds": 8}
ROUNDS = 3
SETTLE_SECONDS = 2.0
P99_RATIO_GOAL = 2


def produce(bootstrap: str, ended: threading.Event) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": bootstrap, "client.id": NOISY, "log_level": 2, "queue.buffering.max.kbytes": 65_536}
    )
    body, begin, sent = bytes(RECORD_BYTES), time.perf_counter(), 0
    while not ended.is_set():
        try:
            producer.produce("noise", body)
        except BufferError:
            producer.poll(0.01)
            continue
        sent += RECORD_BYTES
        producer.poll(max(0.0, begin + sent / (TIMES * BYTES_PER_SECOND) - time.perf_counter()))
    producer.purge()


def consume(bootstrap: str, ended: threading.Event) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "client.id": NOISY, "group.id": NOISY})
    consumer.assign([TopicPartition("noise", 0, 0)])
    count = 0
    while not ended.is_set():
        count += len(consumer.consume(1_000, 0.1))
        if count > 3_000:
            consumer.seek(TopicPartition("noise", 0, 0))
            count = 0
    consumer.close()


def ask(bootstrap: str, ended: threading.Event) -> None:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap, "client.id": NOISY})
    while not ended.is_set():
        admin.list_topics(timeout=30)


NOISES = {"producer": produce, "consumer": consume, "requests": ask}


@contextmanager
def noise(kind: str, bootstrap: str) -> Iterator[None]:
    """Run a noisy client in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.neighbour", "--child", kind, bootstrap]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
    try:
        time.sleep(SETTLE_SECONDS)  # a quota lets its first second pass at once
        yield
    finally:
        process.communicate("\n", timeout=60)


def set_quota(cluster: Cluster, key: str, value: float) -> None:
    host, _, port = cluster.address(1).rpartition(":")
    entity = [EntityData(entity_type="client-id", entity_name=NOISY)]
    entry = EntryDataRequest(entity=entity, ops=[OpData(key=key, value=value, remove=False)])
    with ClusterConnection(host, int(port), None) as connection:
        answer = connection.request(AlterClientQuotasRequest(entries=[entry]), ApiKey.ALTER_CLIENT_QUOTAS, 1)
    assert not answer.entries[0].error_code, answer


def measure(kind: str, unlimited: bool, options: dict[str, Any]) -> tuple[list[float], list[float]]:
    """Return the p99 of each round in ms: alone, and beside the noisy client."""
    alone, beside = [], []
    with Cluster(1, spoilable=False) as cluster:
        options = {**options, "bootstrap": cluster.bootstrap, "client": {"client.id": QUIET}}
        run_load("create", options)
        run_load("create", {**options, "topic": "noise"})
        if kind == "consumer":
            run_load("produce", {**options, "topic": "noise", "size": RECORD_BYTES, "count": 5_000})
        if not unlimited:
            set_quota(cluster, *QUOTAS[kind])
        for _ in range(ROUNDS):
            alone.append(run_load("end_to_end", options)["p99_ms"])
            with noise(kind, cluster.bootstrap):
                beside.append(run_load("end_to_end", options)["p99_ms"])
    return alone, beside


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.neighbour", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", choices=NOISES)
    parser.add_argument("--unlimited", action="store_true", help="without the quota")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        kind, bootstrap = args.child
        ended = threading.Event()
        threading.Thread(target=lambda: (sys.stdin.readline(), ended.set()), daemon=True).start()
        NOISES[kind](bootstrap, ended)
        return
    print("| noisy client | p99 of the other, alone | beside it | ratio of the medians |")
    for kind in [args.only] if args.only else NOISES:
        alone, beside = measure(kind, args.unlimited, dict(LOAD))
        ratio = statistics.median(beside) / statistics.median(alone)
        shown = [", ".join(f"{ms:.2f}" for ms in each) for each in (alone, beside)]
        print(f"| {kind} | {shown[0]} ms | {shown[1]} ms | {ratio:.2f}x (goal <= {P99_RATIO_GOAL}x) |", flush=True)


if __name__ == "__main__":
    main()
