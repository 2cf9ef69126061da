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
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.usage import ClientTime

Options = dict[str, Any]
#: What is sent before does not count: it waits until the producer has found the leader and connected to it.
WARM_SECONDS = 1.0
#: For the consumer's first long poll, and for the last message.
SETTLE_SECONDS = 1.0
#: The bytes beside the time of sending.
BODY = bytes(100)


def end_to_end(o: Options) -> dict[str, float]:
    from confluent_kafka import Producer

    with (receiving_thread if o.get("one_process") else receiving_process)(o) as delays_ms:
        producer = Producer({"bootstrap.servers": o["bootstrap"], "acks": "all", "linger.ms": 0, **o["security"]})
        client = ClientTime()
        begin, sent = time.perf_counter(), 0
        while time.perf_counter() - begin < WARM_SECONDS + o["seconds"]:
            producer.produce(o["topic"], struct.pack("q", time.perf_counter_ns()) + BODY)
            sent += 1
            producer.poll(0)
            # Not in poll(): it rounds a timeout below a millisecond down to none, so that a loop of it keeps a core busy.
            while (wait := begin + sent / o["rate"] - time.perf_counter()) > 0:
                time.sleep(wait)
        producer.flush(10)
        cores = client.cores
    counted = sorted(delays_ms[int(o["rate"] * WARM_SECONDS) :])
    return {
        "p50_ms": counted[len(counted) // 2],
        "p99_ms": counted[int(len(counted) * 0.99)],
        "p999_ms": counted[int(len(counted) * 0.999)],
        "errors": sent - len(delays_ms),
        "client": cores,
    }


def receive(o: Options, started: Callable[[], object], ended: Callable[[], bool]) -> list[float]:
    """The delays in ms of the messages that come until it has ended, in their order."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({
        "bootstrap.servers": o["bootstrap"], "group.id": "bench-latency", "enable.auto.commit": False, "fetch.wait.max.ms": 500,
        **o["security"],
    })  # fmt: skip
    partitions = [TopicPartition(o["topic"], p) for p in range(o["partitions"])]
    for partition in partitions:
        partition.offset = consumer.get_watermark_offsets(partition, 10)[1]
    consumer.assign(partitions)
    started()
    delays_ms = []
    while not ended():
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            delays_ms.append((time.perf_counter_ns() - struct.unpack_from("q", message.value())[0]) / 1e6)
    consumer.close()
    return delays_ms


@contextmanager
def receiving_process(o: Options) -> Iterator[list[float]]:
    """The list is filled at the end."""
    command = [sys.executable, "-m", "benchmarks.end_to_end", json.dumps(o)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    delays_ms: list[float] = []
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n", "the consumer did not start"
    time.sleep(SETTLE_SECONDS)
    yield delays_ms
    time.sleep(SETTLE_SECONDS)
    out, _ = process.communicate("\n", timeout=60)
    delays_ms += json.loads(out)


@contextmanager
def receiving_thread(o: Options) -> Iterator[list[float]]:
    delays_ms: list[float] = []
    started, ended = threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: delays_ms.extend(receive(o, started.set, ended.is_set)))
    thread.start()
    started.wait(60)
    time.sleep(SETTLE_SECONDS)
    yield delays_ms
    time.sleep(SETTLE_SECONDS)
    ended.set()
    thread.join()


def main() -> None:
    def ended() -> bool:
        return bool(select.select([sys.stdin], [], [], 0)[0])

    found = receive(json.loads(sys.argv[1]), lambda: print("started", flush=True), ended)
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
