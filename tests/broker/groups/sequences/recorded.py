"""Apache Kafka's answers: to ninety random sequences of mixed kinds, in one file, and to requests that are written out."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from pathlib import Path

from tests.broker.groups.sequences.compare import Difference
from tests.broker.groups.sequences.step import Sequence, read, written

FILE = Path(__file__).with_name("kafka_answers.txt.gz")
REQUESTS = Path(__file__).with_name("requests")


def recorded() -> list[tuple[Sequence, list[str]]]:
    return list(read(gzip.decompress(FILE.read_bytes()).decode().splitlines()))


def record(compared: Iterable[Difference]) -> None:
    """Write the answers to the file. The same answers give the same bytes."""
    lines = [line for each in compared for line in written(each.sequence, each.kafka)]
    FILE.write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))


def recorded_requests() -> dict[Path, tuple[Sequence, list[str]]]:
    return {path: next(read(path.read_text().splitlines())) for path in sorted(REQUESTS.glob("*.txt"))}


def record_requests(compared: Iterable[Difference]) -> None:
    for path, each in zip(recorded_requests(), compared, strict=True):
        path.write_text("\n".join(written(each.sequence, each.kafka)) + "\n")
