"""Apache Kafka's answers to ninety sequences of mixed kinds, in a file."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from pathlib import Path

from tests.broker.groups.sequences.compare import Difference
from tests.broker.groups.sequences.step import Sequence, read, written

FILE = Path(__file__).with_name("kafka_answers.txt.gz")


def recorded() -> list[tuple[Sequence, list[str]]]:
    return list(read(gzip.decompress(FILE.read_bytes()).decode().splitlines()))


def record(compared: Iterable[Difference]) -> None:
    """The same bytes for the same answers."""
    lines = [line for each in compared for line in written(each.sequence, each.kafka)]
    FILE.write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))
