"""The loads, each run in a process of its own: `python -m benchmarks.loads NAME '{"bootstrap": ...}'` prints one JSON line."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import cycle, islice
from typing import Any

from benchmarks import raw
from benchmarks.end_to_end import end_to_end
from benchmarks.usage import ClientTime

Options = dict[str, Any]

#: librdkafka stops fetching when its queue is full, and by default looks again after 1 s: its own pauses would be the measured rate, and
#: more of them the faster the server is.
QUEUE_BACKOFF_MS = 10
#: The different bodies of a load of text.
BODIES = 1_000


def create(o: Options) -> dict[str, float]:
    """Create a topic and wait until its leaders are known."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": o["bootstrap"], **security(o)})
    topic = NewTopic(o["topic"], o["partitions"], o.get("replication", 1), config=o.get("configs", {}))
    admin.create_topics([topic])[o["topic"]].result(30)
    while True:
        found = admin.list_topics(o["topic"], 10).topics[o["topic"]]
        if len(found.partitions) == o["partitions"] and all(p.leader >= 0 for p in found.partitions.values()):
            return {}
        time.sleep(0.05)


def security(o: Options) -> dict[str, str]:
    """Return the settings for TLS with the authority of `ca`, or the client's own settings."""
    given: dict[str, str] = o.get("client", {})
    return {"security.protocol": "SSL", "ssl.ca.location": o["ca"]} if "ca" in o else given


def produce(o: Options) -> dict[str, float]:
    from confluent_kafka import Producer

    size, count = o["size"], o["count"]
    producer = Producer({
        "bootstrap.servers": o["bootstrap"], "acks": "all", "linger.ms": o.get("linger_ms", 5), "batch.size": o.get("batch", 65536),
        "queue.buffering.max.messages": 200_000, "queue.buffering.max.kbytes": 400_000, "partitioner": "random",
        "compression.type": o.get("compression", "none"), "enable.idempotence": o.get("idempotence", False), **security(o),
    })  # fmt: skip
    bodies, failed = (
        varied(o["varied"]) if "varied" in o else texts(size) if "compression" in o else [os.urandom(size)],
        0,
    )

    def delivered(error: object, _message: object) -> None:
        nonlocal failed
        failed += error is not None

    client = ClientTime()
    for body in islice(cycle(bodies), count):
        while True:
            try:
                producer.produce(o["topic"], body, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.01)
    left = producer.flush(120)
    took, cores = client.seconds, client.cores
    return {
        "records_per_s": count / took,
        "mb_per_s": count * size / took / 1e6,
        "errors": failed + left,
        "bytes": count * size,
        "client": cores,
    }


def varied(count: int) -> list[bytes]:
    """Yield different values of 1,000 bytes, for which a columnar file cannot make a dictionary."""
    from benchmarks.topic_tables.kinds import json_order

    chance = random.Random(count)
    return [json_order(chance) for _ in range(count)]


def texts(size: int) -> list[bytes]:
    """Return bodies that compress as events do, to about a quarter. They differ: 64 equal ones would be a batch of 500 bytes, and a Fetch would
    get a whole partition.
    """
    chance = random.Random(size)

    def event() -> str:
        number, sensor, value = chance.randrange(10**5), chance.randrange(97), chance.randrange(10**3)
        return f'{{"id":{number},"name":"sensor-{sensor}","value":{value}}}'

    return ["".join(event() for _ in range(size // 30 + 1)).encode()[:size] for _ in range(BODIES)]


def consume(o: Options) -> dict[str, float]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({
        "bootstrap.servers": o["bootstrap"], "group.id": f"bench-{time.time()}", "enable.auto.commit": False,
        "auto.offset.reset": "earliest", "fetch.max.bytes": 50 << 20, "max.partition.fetch.bytes": 1 << 20,
        "queued.max.messages.kbytes": 200_000, "fetch.queue.backoff.ms": QUEUE_BACKOFF_MS, **security(o),
    })  # fmt: skip
    consumer.assign([TopicPartition(o["topic"], p, 0) for p in range(o["partitions"])])
    got = size = 0
    client = None
    deadline = time.monotonic() + 120
    while got < o["count"] and time.monotonic() < deadline:
        messages = consumer.consume(min(10_000, o["count"] - got), 1.0)
        if messages and client is None:
            client = ClientTime()
        for message in messages:
            if message.error() is None:
                got += 1
                size += len(message.value())
    assert client is not None, "no message came"
    took, cores = client.seconds, client.cores
    consumer.close()
    return {
        "records_per_s": got / took,
        "mb_per_s": size / took / 1e6,
        "errors": o["count"] - got,
        "bytes": size,
        "client": cores,
    }


def latency(o: Options) -> dict[str, float]:
    return end_to_end({**o, "security": security(o)})


def one_record(o: Options) -> dict[str, float]:
    from confluent_kafka.admin import AdminClient

    metadata = AdminClient({"bootstrap.servers": o["bootstrap"]}).list_topics(o["topic"], 10)
    brokers = metadata.brokers
    partitions = metadata.topics[o["topic"]].partitions
    leaders = [(brokers[partitions[p].leader].host, brokers[partitions[p].leader].port) for p in range(o["partitions"])]
    return raw.one_in_flight(leaders, o["topic"], o["connections"], o["seconds"])


def fan_out(o: Options) -> dict[str, float]:
    """Read one partition with several consumers over raw sockets."""
    from confluent_kafka.admin import AdminClient

    metadata = AdminClient({"bootstrap.servers": o["bootstrap"]}).list_topics(o["topic"], 10)
    leader = metadata.brokers[metadata.topics[o["topic"]].partitions[0].leader]
    address = (leader.host, leader.port)
    return raw.fan_out(address, raw.topic_id(address, o["topic"]), o["connections"], o["seconds"])


def java_produce(o: Options) -> dict[str, float]:
    """Run kafka-producer-perf-test.sh, the Java client as its users measure it."""
    props = [f"bootstrap.servers={o['bootstrap']}", "acks=all", "linger.ms=5", "batch.size=65536"]
    client = ClientTime()
    line = last_line(
        "kafka-producer-perf-test", "--topic", o["topic"], "--num-records", str(o["count"]), "--record-size", str(o["size"]),
        "--throughput", "-1", "--producer-props", *props,
    )  # fmt: skip
    found = re.search(r"records sent, ([0-9.]+) records/sec", line)
    assert found, line
    per_s = float(found[1])
    return {"mb_per_s": per_s * o["size"] / 1e6, "bytes": o["count"] * o["size"], "errors": 0, "client": client.cores}


def java_consume(o: Options) -> dict[str, float]:
    """Run kafka-consumer-perf-test.sh on the records that the producer's run has written."""
    client = ClientTime()
    line = last_line(
        "kafka-consumer-perf-test", "--bootstrap-server", o["bootstrap"], "--topic", o["topic"], "--messages", str(o["count"]),
        "--hide-header", "--group", f"bench-{time.time()}",
    )  # fmt: skip
    # start, end, MB, MB/s, records, records/s, rebalance ms, fetch ms, fetch MB/s, fetch records/s
    columns = [column.strip() for column in line.split(",")]
    records, fetch_records_per_s = float(columns[4]), float(columns[9])
    return {
        "mb_per_s": fetch_records_per_s * o["size"] / 1e6,
        "bytes": records * o["size"],
        "errors": max(0, o["count"] - records),
        "client": client.cores,
    }


def last_line(tool: str, *args: str) -> str:
    from tools.apache_kafka import TOOLS, java_command

    command = java_command(TOOLS[tool], *args, jvm="-Xmx1G -XX:+UseG1GC", quick=False)
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=200)
    return done.stdout.strip().splitlines()[-1]


def null_one_record(o: Options) -> dict[str, float]:
    """Send Produces of one record to the null server at `port`."""
    return raw.one_in_flight([("127.0.0.1", o["port"])], "t", o["connections"], o["seconds"])


def null_fan_out(o: Options) -> dict[str, float]:
    """Send Fetches of several consumers to the null server at `port`."""
    return raw.fan_out(("127.0.0.1", o["port"]), bytes(16), o["connections"], o["seconds"])


def transactions(o: Options) -> dict[str, float]:
    """Run one producer with one transaction after the other, each with a record for every partition."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": o["bootstrap"], "transactional.id": o["topic"], "linger.ms": 0})
    producer.init_transactions(60)
    count, client = 0, ClientTime()
    while client.seconds < o["seconds"]:
        producer.begin_transaction()
        for partition in range(o["partitions"]):
            producer.produce(o["topic"], b"x" * 100, partition=partition)
        producer.commit_transaction(60)
        count += 1
    return {"per_s": count / client.seconds, "requests": count, "errors": 0, "client": client.cores}


LOADS: dict[str, Callable[[Options], dict[str, float]]] = {
    "create": create,
    "produce": produce,
    "consume": consume,
    "end_to_end": latency,
    "fan_out": fan_out,
    "java_consume": java_consume,
    "java_produce": java_produce,
    "null_fan_out": null_fan_out,
    "null_one_record": null_one_record,
    "one_record": one_record,
    "transactions": transactions,
}

if __name__ == "__main__":
    print(json.dumps(LOADS[sys.argv[1]](json.loads(sys.argv[2]))), flush=True)
