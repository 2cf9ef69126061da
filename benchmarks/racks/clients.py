"""Stock clients in a rack: a steady small load, and a consumer that reads from the nearest replica (KIP-392).

Each is a process of its own, `python -m benchmarks.racks.clients load|read OPTIONS`, with confluent-kafka; it ends, and prints what it
has seen, when a line comes on its standard input.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

from benchmarks.racks.network import RackNetwork

Options = dict[str, Any]
VALUE_BYTES = 100
#: The time after which an unacknowledged record counts as lost, and is not waited for any longer. A request that was on its way to a broker
#: that is cut off gets no answer, and librdkafka sends it again after socket.timeout.ms, 60 s.
MESSAGE_SECONDS_MAX = 120
END_SECONDS_MAX = MESSAGE_SECONDS_MAX + 30
POLL_SECONDS = 0.1


class Client:
    """The process of a client, which begins at once."""

    def __init__(self, network: RackNetwork, rack: int, name: str, options: Options) -> None:
        command = [sys.executable, "-m", "benchmarks.racks.clients", name, json.dumps(options)]
        with network.inside(rack):
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def figures(self) -> Any:
        """End the client. Return its measurements."""
        said, _ = self._process.communicate("\n", timeout=END_SECONDS_MAX)
        if self._process.returncode:
            raise RuntimeError(f"a client ended with {self._process.returncode}")
        return json.loads(said.splitlines()[-1])

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def has_ended(wait_s: float = 0) -> bool:
    return bool(select.select([sys.stdin], [], [], wait_s)[0])


def load(o: Options) -> dict[str, Any]:
    """Write `rate` records a second, each to the next partition. Return for each record the time when it was due (ns of the
    monotonic clock), and the ms until its acknowledgement, None if it had none; and how many failed by each error.
    """
    producer = Producer(
        {
            "bootstrap.servers": o["bootstrap"],
            "acks": "all",
            "linger.ms": 0,
            "message.timeout.ms": MESSAGE_SECONDS_MAX * 1000,
            "sticky.partitioning.linger.ms": 0,
            "log_level": 2,
        }
    )
    sent_ns: list[int] = []
    delays_ms: list[float | None] = []
    failures = Counter[str]()

    def acknowledged(number: int) -> Callable[[KafkaError | None, Message], None]:
        def when_done(error: KafkaError | None, _: Message) -> None:
            if error is None:
                delays_ms[number] = (time.monotonic_ns() - sent_ns[number]) / 1e6
            else:
                failures[error.name()] += 1

        return when_done

    places = [(topic, partition) for partition in range(o["partitions"]) for topic in o["topics"]]
    due = time.monotonic()
    while not has_ended():
        while (left := due - time.monotonic()) > 0:
            producer.poll(left)
        number = len(sent_ns)
        topic, partition = places[number % len(places)]
        sent_ns.append(int(due * 1e9))
        delays_ms.append(None)
        producer.produce(topic, bytes(VALUE_BYTES), partition=partition, on_delivery=acknowledged(number))
        producer.poll(0)
        due += 1 / o["rate"]
    producer.flush(MESSAGE_SECONDS_MAX)
    return {"sent_ns": sent_ns, "delays_ms": delays_ms, "failures": failures}


def read(o: Options) -> dict[str, Any]:
    """Read all partitions of the topics. Return for each second the time (ns of the monotonic clock), the number of records so
    far, and how many partitions are read from each broker.
    """
    looks: list[tuple[int, int, dict[str, int]]] = []
    count = 0

    def looked(text: str) -> None:
        topics = json.loads(text)["topics"].values()
        wanted = (each for topic in topics for each in topic["partitions"].values() if each["fetch_state"] == "active")
        looks.append((time.monotonic_ns(), count, dict(Counter(str(each["broker"]) for each in wanted))))

    consumer = Consumer(
        {
            "bootstrap.servers": o["bootstrap"],
            "group.id": "readers",
            "client.rack": o["rack"],
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "statistics.interval.ms": 1000,
            "stats_cb": looked,
            "log_level": 2,
        }
    )
    consumer.assign(
        [TopicPartition(topic, number, OFFSET_BEGINNING) for topic in o["topics"] for number in range(o["partitions"])]
    )
    while not has_ended():
        count += sum(not message.error() for message in consumer.consume(1000, POLL_SECONDS))
    consumer.close()
    return {"looks": looks}


CLIENTS: dict[str, Callable[[Options], Any]] = {"load": load, "read": read}

if __name__ == "__main__":
    print(json.dumps(CLIENTS[sys.argv[1]](json.loads(sys.argv[2]))), flush=True)
