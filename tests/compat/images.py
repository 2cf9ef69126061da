"""Random metadata records are replayed by Apache Kafka's `MetadataDelta` and by Ottla's: both images write the same snapshot.

The records are those of tests/controller/metadata/random_logs.py. Kafka gets each record in a delta of its own: a topic that comes
and goes within one delta leaves its configs in Kafka's image (docs/DIFFERENCES.md).
`python -m tests.compat.images` records what Kafka made of some logs, which `make test` replays.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ottla.protocol.internal_topics.metadata_records import decode_record
from tests.controller.metadata import random_logs
from tests.controller.metadata.images_of_kafka import RECORDED, RECORDED_LOGS, image_of, in_one_order, values_of
from tools.apache_kafka.programs import compiled, java_command

PROGRAM = random_logs.HERE / "java" / "Images.java"
JVM = "-Xmx256M -XX:+UseSerialGC"
LOGS = 5_000
#: Logs of fewer records say little, and are not recorded.
RECORDED_MIN = 15


class KafkaImages:
    """One JVM that replays log after log."""

    def __enter__(self) -> KafkaImages:
        command = java_command("Images", extra_classpath=str(compiled(PROGRAM)), jvm=JVM)
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()

    def image_of(self, values: Sequence[bytes], snapshot: Sequence[bytes] | None = None) -> list[bytes]:
        """Return the records of the image after these records, or after a snapshot that was loaded over it."""
        lines = [f"delta {value.hex()}" for value in values]
        if snapshot is not None:
            lines.append(" ".join(["load", *(value.hex() for value in snapshot)]))
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("\n".join([*lines, "write", ""]))
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        assert answer and not answer.startswith("failed"), f"Kafka {answer or 'ended'}"
        return [bytes.fromhex(word) for word in answer.split()]


def check(kafka: KafkaImages, log: list[Any], cut: int) -> None:
    """Check that three ways give one image: the log, Ottla's snapshot of it over what a node knew before, and the log in one
    delta.
    """
    values = values_of(log)
    ours = image_of(values)
    theirs, loaded = kafka.image_of(values), kafka.image_of(values[:cut], ours)
    _same(in_one_order(theirs), in_one_order(ours))
    _same(_without_logins(loaded), _without_logins(ours))


def _without_logins(values: Sequence[bytes]) -> list[str]:
    """Return the values without SCRAM users: some may be missing in Kafka's image if others go in the same snapshot
    (docs/DIFFERENCES.md).
    """
    return [text for text in in_one_order(values) if "UserScramCredentialRecord" not in text]


def _same(kafkas: Sequence[str], here: Sequence[str]) -> None:
    only_theirs, only_ours = [x for x in kafkas if x not in here], [x for x in here if x not in kafkas]
    assert kafkas == here, f"only in Kafka's image: {only_theirs}; only in ours: {only_ours}"


def compare(count: int = LOGS) -> None:
    """Compare the images of `count` logs. Raises AssertionError with the shortest log found whose images differ."""
    with KafkaImages() as kafka:

        @given(random_logs.logs(of_kafka=True), st.integers(0, 40))
        @settings(
            max_examples=count,
            deadline=None,
            database=None,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        )
        def all_same(log: list[Any], cut: int) -> None:
            check(kafka, log, cut)

        all_same()


def record(target: Path) -> None:
    """Record logs with each kind of record, and Kafka's images of them."""
    found: list[str] = []
    with KafkaImages() as kafka:

        @given(random_logs.logs(of_kafka=True))
        @settings(
            max_examples=20 * RECORDED_LOGS, deadline=None, database=None, phases=[Phase.generate], derandomize=True
        )
        def collect(log: list[Any]) -> None:
            if len(log) >= RECORDED_MIN and len(found) < 2 * RECORDED_LOGS:
                values = values_of(log)
                found.extend(" ".join(value.hex() for value in each) for each in (values, kafka.image_of(values)))

        collect()
    target.write_text("\n".join(found) + "\n")
    kinds = {type(decode_record(bytes.fromhex(word))[0]).__name__ for line in found[::2] for word in line.split()}
    print(f"{len(found) // 2} logs, {len(kinds)} types of records")


if __name__ == "__main__":
    record(RECORDED)
