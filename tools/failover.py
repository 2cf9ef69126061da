"""Kills the node that leads under load, and counts the lost records: `make failover`.

A stock client (confluent-kafka) writes 500 records a second with acks=all to three real nodes. The leader is killed with -9,
started again, and everything is read back and compared with the acknowledged records. Beside it, `ottla produce` writes lines
to another topic of the same leader, and `ottla consume --follow` prints them.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import Cluster

TOPIC = "orders"
RECORDS_PER_S = 500
LINES_TOPIC = "lines"
LINES_PER_S = 100
SECONDS_MAX = 60.0
#: A client logs a line for each connection that it loses; here connections are lost on purpose.
QUIET = {"log_level": 0}


class Writer(threading.Thread):
    """Writes until `finish`, whatever happens to the nodes, and remembers the time of each acknowledgement."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(name="writer")
        self.sent = 0
        self.acknowledged: set[int] = set()
        self.acknowledged_at: list[float] = []
        self.failed: set[str] = set()
        self._finished = threading.Event()
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 0, **QUIET}
        )

    def run(self) -> None:
        began = time.monotonic()
        while not self._finished.is_set():
            due = int((time.monotonic() - began) * RECORDS_PER_S)
            for _ in range(self.sent, due):
                self._producer.produce(TOPIC, str(self.sent), partition=0, on_delivery=self._delivered)
                self.sent += 1
            self._producer.poll(1 / RECORDS_PER_S)
        self._producer.flush(SECONDS_MAX)

    def finish(self) -> None:
        self._finished.set()
        self.join()

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed.add(str(error))
            return
        self.acknowledged.add(int(message.value()))
        self.acknowledged_at.append(time.monotonic())


class Commands(threading.Thread):
    """Pipes lines through `ottla produce` and `ottla consume --follow` until `finish`."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(name="commands")
        self.sent = 0
        self.received: list[int] = []
        self._finished = threading.Event()
        ottla = [sys.executable, "-m", "ottla"]
        where = [LINES_TOPIC, "-b", bootstrap]
        pipe = subprocess.PIPE
        self._consume = subprocess.Popen([*ottla, "consume", *where, "--follow"], stdout=pipe, stderr=pipe, text=True)
        self._produce = subprocess.Popen([*ottla, "produce", *where], stdin=pipe, stderr=pipe, text=True)
        self._reader = threading.Thread(target=self._read, name="reader")
        self._reader.start()

    def run(self) -> None:
        assert self._produce.stdin is not None
        while not self._finished.wait(1 / LINES_PER_S):
            self._produce.stdin.write(f"{self.sent}\n")
            self._produce.stdin.flush()
            self.sent += 1

    def _read(self) -> None:
        assert self._consume.stdout is not None
        self.received.extend(map(int, self._consume.stdout))

    def finish(self) -> bool:
        """End both commands. Return whether every line was acknowledged, and printed once and in order."""
        self._finished.set()
        self.join()
        _, said = self._produce.communicate(timeout=SECONDS_MAX)
        deadline = time.monotonic() + SECONDS_MAX
        while len(self.received) < self.sent and self._consume.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        self._consume.send_signal(signal.SIGINT)
        self._consume.wait(SECONDS_MAX)
        self._reader.join()
        same = self.received == list(range(self.sent))
        print(f"ottla produce: {said.strip()}")
        print(
            f"ottla consume --follow: {len(self.received)} of {self.sent} lines, {'each once and in order' if same else 'WRONG'}"
        )
        return same and self._produce.returncode == 0 and said.startswith(f"{self.sent} records acknowledged")


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing came of it within {SECONDS_MAX:.0f} s")
        time.sleep(0.01)


def read_all(bootstrap: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "judge", "enable.auto.commit": False, **QUIET})
    place = TopicPartition(TOPIC, 0, 0)
    consumer.assign([place])
    _, end = consumer.get_watermark_offsets(place, timeout=SECONDS_MAX)
    values: list[int] = []
    deadline = time.monotonic() + SECONDS_MAX
    while consumer.position([place])[0].offset < end and time.monotonic() < deadline:
        values += [int(message.value()) for message in consumer.consume(1000, 1.0) if message.error() is None]
    consumer.close()
    return values


def judge(writer: Writer, read: list[int]) -> bool:
    lost = writer.acknowledged - set(read)
    doubled = sum(count - 1 for count in Counter(read).values())
    disordered = sum(later < earlier for earlier, later in pairwise(read))
    gap = max(later - earlier for earlier, later in pairwise(writer.acknowledged_at))
    print(f"acknowledged {len(writer.acknowledged)} of {writer.sent}, read back {len(read)}", end=": ")
    print(f"{len(lost)} lost, {doubled} doubled, {disordered} out of order")
    print(f"longest time without an acknowledgement: {gap:.2f} s")
    for failure in sorted(writer.failed):
        print(f"refused: {failure}")
    return not (lost or doubled or disordered or writer.failed)


def main() -> int:
    arguments = argparse.ArgumentParser(description="Kill the leader under load and count what was lost.")
    arguments.add_argument("--seconds", type=float, default=2.0, help="of writing before and after (default 2)")
    seconds = arguments.parse_args().seconds
    began = time.monotonic()
    with Cluster(3, spoilable=False) as cluster:
        print(f"3 nodes ready in {time.monotonic() - began:.2f} s", flush=True)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
        admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result(SECONDS_MAX)
        cluster.wait_isr(TOPIC)
        leader = cluster.leaders(TOPIC)[0]
        replicas = [leader, *(node_id for node_id in cluster.nodes if node_id != leader)]
        lines = NewTopic(LINES_TOPIC, 1, replica_assignment=[replicas])
        admin.create_topics([lines])[LINES_TOPIC].result(SECONDS_MAX)
        writer, commands = Writer(cluster.bootstrap), Commands(cluster.bootstrap)
        writer.start()
        commands.start()
        try:
            kill_and_return(cluster, seconds)
        finally:
            writer.finish()
            followed = commands.finish()
        passed = judge(writer, read_all(cluster.bootstrap)) and followed
    return 0 if passed else 1


def kill_and_return(cluster: Cluster, seconds: float) -> None:
    zero = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - zero:5.2f} s  {text}", flush=True)

    say(f"writing {RECORDS_PER_S} records/s, acks=all, 3 replicas, min.insync.replicas=2")
    time.sleep(seconds)
    leader = cluster.leaders(TOPIC)[0]
    pid = cluster.pid(leader)
    cluster.kill(leader)
    say(f"kill -9 {pid}: node {leader}, which leads")
    wait_until(lambda: cluster.leaders(TOPIC).get(0, -1) not in (leader, -1))
    say(f"node {cluster.leaders(TOPIC)[0]} leads")
    time.sleep(seconds)
    cluster.start(leader)
    say(f"node {leader} runs again")
    cluster.wait_isr(TOPIC)
    say(f"node {leader} is in sync")
    time.sleep(seconds / 2)


if __name__ == "__main__":
    sys.exit(main())
