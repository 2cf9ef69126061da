"""Segment files as a source: the states that a running node, or damage, leaves in them. It runs without Spark."""

from __future__ import annotations

from pathlib import Path
from struct import pack

import pytest

from tests.needs import needs_packages

needs_packages("pyspark", "pyarrow")

from ottla.columns.batches import ColumnsError
from ottla.spark.options import ConnectorOptions
from ottla.spark.ranges import Range
from ottla.spark.segments import SegmentReader
from tests.ottla.columns.test_batches import data, marker

OPTIONS = {"subscribe": "t", "kafka.isolation.level": "read_committed"}
SPACE_AHEAD = bytes(16 << 10)


def read(folder: Path, *batches: bytes, start: int = 0, end: int = 100, **files: bytes) -> list[int]:
    """Return the base offsets of the batches with rows, from a log with one segment and further files by their suffixes."""
    log = folder / "t-0" / f"{0:020d}.log"
    log.parent.mkdir()
    log.write_bytes(b"".join(batches))
    for suffix, contents in files.items():
        log.with_suffix(f".{suffix}").write_bytes(contents)
    options = ConnectorOptions({**OPTIONS, "segments": f"segments://{folder}"})
    return [batch.base_offset for batch in SegmentReader(str(folder), Range("t", 0, start, end), options).batches()]


def test_what_was_allocated_ahead_is_not_read(tmp_path: Path) -> None:
    assert read(tmp_path, data(0), data(2), SPACE_AHEAD) == [0, 2]


def test_the_index_leads_to_the_batch_and_ends_where_its_zeros_begin(tmp_path: Path) -> None:
    broken = b"\xff" * len(data(0))  # this file is not read
    index = pack(">ii", 3, len(data(0))) + bytes(64)
    assert read(tmp_path, broken, data(2), SPACE_AHEAD, start=3, index=index) == [2]


def test_the_damage_behind_whole_batches_is_named_with_its_offset(tmp_path: Path) -> None:
    with pytest.raises(ColumnsError, match=r"t-0 at offset 2 is damaged: .*read another replica"):
        read(tmp_path, data(0), b"\xff" * 100, SPACE_AHEAD)


def test_a_node_may_be_writing_an_entry_of_an_aborted_transaction(tmp_path: Path) -> None:
    entries = pack(">hqqqq", 0, 7, 0, 2, 3) + b"\0\0\0"
    batches = data(0, producer=7), marker(2, 7, committed=False), data(3)
    assert read(tmp_path, *batches, txnindex=entries) == [3]


def test_a_damaged_index_of_aborted_transactions_ends_the_read(tmp_path: Path) -> None:
    with pytest.raises(ColumnsError, match=r"txnindex: entry 0 is not valid.*read another replica"):
        read(tmp_path, data(0, producer=7), marker(2, 7, committed=False), txnindex=pack(">hqqqq", 9, 7, 0, 2, 3))


def test_a_producer_that_has_aborted_before_the_range_is_read_again(tmp_path: Path) -> None:
    """The marker lies below the range, so that nothing in it would end the transaction."""
    entries = pack(">hqqqq", 0, 7, 0, 2, 3)
    later = data(3, producer=7), marker(5, 7, committed=True)
    assert read(tmp_path, data(0, producer=7), marker(2, 7, committed=False), *later, start=3, txnindex=entries) == [3]
