"""Messages at a steady rate, and the time from produce() to the consumer's poll() returning each of them.

The consumer is a process of its own, as it is for users: two threads of one process of Python also wait for each other's GIL.
`python -m benchmarks.end_to_end '{"bootstrap": ...}'` is that process.
"""

from __future__ import annotations

import json
import select
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from benchmarks.usage import ClientTime

Options = dict[str, Any]
#: The time before the first message that counts: until then the producer has found the leader and connected to it.
WARM_SECONDS = 1.0
#: The time for the consumer's first long poll, and for the last message.
SETTLE_SECONDS = 1.0
FLUSH_SECONDS_MAX = 60
#: The bytes of a message besides the time of its sending.
BODY = bytes(100)


@dataclass
class Received:
    """The messages in the order of their arrival, and the cores that both sides kept busy. The fields are known when the load
    has ended.
    """

    sent: int = 0
    #: The time at which each was sent, in ns of the monotonic clock, which all processes of the machine share.
    sent_ns: list[int] = field(default_factory=list)
    delays_ms: list[float] = field(default_factory=list)
    cores: float = 0.0


def end_to_end(o: Options) -> dict[str, float]:
    received = exchanged(o, lambda seconds: seconds >= WARM_SECONDS + o["seconds"])
    counted = sorted(received.delays_ms[int(o["rate"] * WARM_SECONDS) :])
    return {
        "p50_ms": counted[len(counted) // 2],
        "p99_ms": counted[int(len(counted) * 0.99)],
        "errors": received.sent - len(received.delays_ms),
        "client": received.cores,
    }


def exchanged(o: Options, has_ended: Callable[[float], bool]) -> Received:
    """Send messages at `rate` until `has_ended(seconds)`, and return what the consumer has received."""
    from confluent_kafka import Producer

    with receiving(o) as received:
        producer = Producer({"bootstrap.servers": o["bootstrap"], "acks": "all", "linger.ms": 0, **o["security"]})
        client = ClientTime()
        sent = 0
        while not has_ended(client.seconds):
            producer.produce(o["topic"], struct.pack("q", time.perf_counter_ns()) + BODY)
            sent += 1
            producer.poll(0)
            # Sleep here and not in poll(): it rounds a timeout below a millisecond down to 0, so that its loop would keep a
            # core busy.
            while (wait := sent / o["rate"] - client.seconds) > 0:
                time.sleep(wait)
        producer.flush(FLUSH_SECONDS_MAX)
        cores = client.cores
    received.sent, received.cores = sent, received.cores + cores
    return received


@contextmanager
def receiving(o: Options) -> Iterator[Received]:
    """Run a consumer that starts before the first message and stops after the last."""
    command = [sys.executable, "-m", "benchmarks.end_to_end", json.dumps(o)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    received = Received()
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n", "the consumer did not start"
    time.sleep(SETTLE_SECONDS)
    yield received
    time.sleep(SETTLE_SECONDS)
    out, _ = process.communicate("\n", timeout=60)
    received.sent_ns, received.delays_ms, received.cores = json.loads(out)


def receive(o: Options) -> Received:
    """Receive messages until standard input has a line."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({
        "bootstrap.servers": o["bootstrap"], "group.id": "bench-latency", "enable.auto.commit": False, "fetch.wait.max.ms": 500,
        **o["security"],
    })  # fmt: skip
    partitions = [TopicPartition(o["topic"], p) for p in range(o["partitions"])]
    for partition in partitions:
        partition.offset = consumer.get_watermark_offsets(partition, 10)[1]
    consumer.assign(partitions)
    print("started", flush=True)
    found, client = Received(), ClientTime()
    while not select.select([sys.stdin], [], [], 0)[0]:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            (sent_ns,) = struct.unpack_from("q", message.value())
            found.sent_ns.append(sent_ns)
            found.delays_ms.append((time.perf_counter_ns() - sent_ns) / 1e6)
    found.cores = client.cores
    consumer.close()
    return found


if __name__ == "__main__":
    found = receive(json.loads(sys.argv[1]))
    print(json.dumps([found.sent_ns, found.delays_ms, found.cores]), flush=True)
