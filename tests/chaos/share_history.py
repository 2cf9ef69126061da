"""A share group while brokers fail: Apache Kafka's verifiable consumer, and a count of what reached it."""

from __future__ import annotations

import json
import subprocess
import threading
import time

from confluent_kafka import Producer

from tests.broker.share.member import set_group
from tests.broker.wire import Wire
from tests.chaos.history import FLUSH_SECONDS_MAX, IMPATIENT, PARTITIONS, create_topic
from tools.apache_kafka.programs import TOOLS, java_command

TOPIC, GROUP = "jobs", "workers"


class VerifiableConsumer:
    """The process of a consumer. `values` has what it has printed so far."""

    def __init__(self, bootstrap: str, mode: str, values: set[str], topic: str = TOPIC) -> None:
        command = java_command(
            TOOLS["kafka-verifiable-share-consumer"], "--bootstrap-server", bootstrap, "--topic", topic, "--group-id", GROUP,
            "--acknowledgement-mode", mode, "--verbose", jvm="-Xmx256M -XX:+UseSerialGC",
        )  # fmt: skip
        self._values = values
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = json.loads(line)
            if event["name"] == "record_data":
                self._values.add(event["value"])

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(30)
        self._thread.join(30)


class ShareGroup:
    """A consumer, and the records that are sent to it: each has to reach it at least once."""

    topic = TOPIC

    def __init__(self, bootstrap: str, port: int, host: str = "127.0.0.1") -> None:
        """Take the address of a running node, for the group's settings."""
        create_topic(bootstrap, 3, self.topic, min_insync_replicas="2")
        with Wire(port, host) as wire:
            set_group(wire, GROUP, share_auto_offset_reset="earliest")
        self.values: set[str] = set()
        self._sent = 0
        self._failed: list[str] = []
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0, **IMPATIENT}
        )
        self._consumer = VerifiableConsumer(bootstrap, "sync", self.values)

    def send(self, count: int) -> None:
        for number in range(self._sent, self._sent + count):
            self._producer.produce(
                self.topic,
                str(number),
                partition=number % PARTITIONS,
                on_delivery=lambda error, message: self._failed.append(str(error)) if error else None,
            )
            self._producer.poll(0)
        self._sent += count

    def stop(self, seconds: float) -> list[str]:
        """Stop, and return the records that did not reach the group within this time."""
        left = self._producer.flush(FLUSH_SECONDS_MAX)
        deadline = time.monotonic() + seconds
        expected = {str(number) for number in range(self._sent)}
        while not expected <= self.values and time.monotonic() < deadline:
            time.sleep(0.1)
        self.kill()
        missing = sorted(expected - self.values, key=int)
        problems = [f"failed: {text}" for text in self._failed[:5]]
        problems += [f"{left} records of the share group neither acknowledged nor refused"] if left else []
        return problems + (
            [f"{len(missing)} of {self._sent} did not reach the share group, like {missing[:3]}"] if missing else []
        )

    def kill(self) -> None:
        self._consumer.stop()
