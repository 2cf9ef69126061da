"""Applications of Kafka Streams that count words in a streams group while they and brokers are killed: each word counts exactly once.

Nothing is cached by the application, so each word's counts in the output are 1, 2, 3 and so on: a record that was counted twice, or
not at all, leaves a gap or a repetition. Only committed records are read. `make chaos` runs it on three nodes:

    .venv/bin/python -m tests.chaos.word_counts [--cycles 3]    a kill -9 of a broker and one of an application in each cycle
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing.cluster import Cluster
from tools.apache_kafka import java_command, missing
from tools.apache_kafka.jars import streams_classpath
from tools.apache_kafka.programs import compiled

SOURCE = Path(__file__).with_name("WordCount.java")
#: Settings by which killed members are gone after 6 s instead of 45, and a new group waits for 1 s.
QUICK = {
    "group_streams_min_session_timeout_ms": "6000",
    "group_streams_session_timeout_ms": "6000",
    "group_streams_min_heartbeat_interval_ms": "500",
    "group_streams_heartbeat_interval_ms": "500",
    "group_streams_initial_rebalance_delay_ms": "1000",
}
RUNNING_SECONDS_MAX = 120
CHECK_SECONDS_MAX = 240
WORDS = [f"word{index}" for index in range(20)]


class WordCounts:
    """An input topic, an output topic, and the applications that read and write them."""

    def __init__(
        self,
        bootstrap: str,
        name: str,
        directory: Path,
        partitions: int = 4,
        replicas: int = 1,
        settings: Mapping[str, Any] = {},
    ) -> None:
        self.bootstrap, self.name, self.directory = bootstrap, name, directory
        self.input, self.output = f"{name}-in", f"{name}-out"
        self.sent: Counter[str] = Counter()
        self.applications: list[subprocess.Popen[Any]] = []
        self._chance = Random(name)
        self._delivered = 0
        self._errors: list[Any] = []
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, **settings}
        )
        topics = [NewTopic(topic, partitions, replicas) for topic in (self.input, self.output)]
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for future in admin.create_topics(topics).values():
            future.result(30)

    def start(self, threads: int = 2) -> subprocess.Popen[Any]:
        """Start one more instance, with a state directory and a log of its own."""
        number = len(self.applications)
        state, log = self.directory / f"state{number}", self.directory / f"app{number}.log"
        command = java_command(
            "WordCount", self.bootstrap, self.name, self.input, self.output, str(state), str(threads),
            extra_classpath=f"{compiled(SOURCE, streams_classpath())}:{streams_classpath()}", jvm="-Xmx256M -XX:+UseSerialGC",
        )  # fmt: skip
        with open(log, "w") as output:
            self.applications.append(subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT))
        return self.applications[-1]

    def wait_until_running(self, number: int) -> None:
        deadline = time.monotonic() + RUNNING_SECONDS_MAX
        while "RUNNING" not in self.log(number).split():
            assert time.monotonic() < deadline, self.log(number)
            time.sleep(0.2)

    def log(self, number: int) -> str:
        return (self.directory / f"app{number}.log").read_text()

    def send(self, lines: int) -> None:
        for _ in range(lines):
            words = self._chance.choices(WORDS, k=4)
            self._producer.produce(
                self.input, " ".join(words).encode(), str(len(self.sent)).encode(), on_delivery=self._on_delivery
            )
            self.sent.update(words)
            self._producer.poll(0)

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is not None:
            self._errors.append(error)

    def flush(self) -> None:
        assert self._producer.flush(120) == 0, "the input was not written"
        assert not self._errors, self._errors

    def read(self, seconds: float) -> dict[str, list[int]]:
        """Return the counts of each word once all are there, or those that are there after this time."""
        settings = {
            "bootstrap.servers": self.bootstrap,
            "group.id": f"{self.name}-check",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
        consumer = Consumer(settings)
        consumer.subscribe([self.output])
        counts: dict[str, list[int]] = {}
        wanted, read = sum(self.sent.values()), 0
        deadline = time.monotonic() + seconds
        while read < wanted and time.monotonic() < deadline:
            for message in consumer.consume(1_000, 1.0):
                if message.error() is None:
                    counts.setdefault((message.key() or b"").decode(), []).append(int(message.value() or b"0"))
                    read += 1
        for message in consumer.consume(1_000, 2.0):  # output that should not be there
            if message.error() is None:
                counts.setdefault((message.key() or b"").decode(), []).append(int(message.value() or b"0"))
        consumer.close()
        return counts

    def check(self, seconds: float) -> None:
        counts = self.read(seconds)
        wrong = {word: seen for word, seen in counts.items() if seen != list(range(1, self.sent[word] + 1))}
        assert not wrong, {word: seen[-5:] for word, seen in wrong.items()}
        assert {word: len(seen) for word, seen in counts.items()} == dict(self.sent)

    def stop(self) -> None:
        for application in self.applications:
            application.terminate()
        for application in self.applications:
            try:
                application.wait(30)
            except subprocess.TimeoutExpired:
                application.kill()


def run(cycles: int, directory: Path) -> int:
    """Run three nodes and two applications; return the number of counted words."""
    with Cluster(3, **QUICK) as cluster:
        counts = WordCounts(cluster.bootstrap, "words", directory, replicas=3)
        try:
            for _ in range(2):
                counts.start()
            counts.send(500)
            for cycle in range(cycles):
                counts.wait_until_running(len(counts.applications) - 1)
                node = 1 + cycle % 3
                cluster.kill(node)
                counts.send(500)
                counts.applications[-2].kill()
                counts.start()
                cluster.restart(node)
                counts.send(500)
            counts.flush()
            counts.check(CHECK_SECONDS_MAX)
            return sum(counts.sent.values())
        finally:
            counts.stop()


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.chaos.word_counts", description=__doc__)
    parser.add_argument("--cycles", type=int, default=3)
    cycles = parser.parse_args().cycles
    if reason := missing():
        print(f"Kafka Streams is left out: {reason}")
        return 0
    with tempfile.TemporaryDirectory() as directory:
        words = run(cycles, Path(directory))
    print(f"{words} words counted exactly once through {cycles} kills of brokers and {cycles} of applications")
    return 0


if __name__ == "__main__":
    sys.exit(main())
