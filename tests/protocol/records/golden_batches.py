"""Batches made by other implementations, and the records they were made from."""

from __future__ import annotations

from pathlib import Path

from ottla.protocol.records.record import Record

HERE = Path(__file__).parent
JAVA_PROGRAM = HERE / "java" / "RecordBatches.java"
TIME = 1_700_000_000_000

PLAIN_ROWS = [
    Record(0, TIME, b"key", b"value"),
    Record(1, TIME + 5, None, b"no key"),
    Record(2, TIME - 3, b"tombstone", None),
    Record(3, TIME + 70000, None, None),
    Record(4, TIME + 1, b"", b"", (("trace", b"abc"), ("none", None), ("", b""))),
]
LONG_ROWS = [Record(i, TIME + i, b"key-%d" % i, (b"v%d" % i) * 100) for i in range(300)]


def load(name: str) -> dict[str, bytes]:
    """Return the checked-in batches of one implementation by their names."""
    lines = (HERE / "golden" / f"{name}.txt").read_text().splitlines()
    return {label: bytes.fromhex(text) for label, text in (line.split() for line in lines)}


def moved(rows: list[Record], by: int) -> list[Record]:
    """Return the rows with offsets increased by `by`."""
    return [row._replace(offset=row.offset + by) for row in rows]
