"""A producer that aborts a transaction, and commits another one after the table has passed the first: its rows are there."""

from __future__ import annotations

from pathlib import Path

from tests.needs import needs_packages

needs_packages("pyarrow", "pyiceberg", "deltalake", "obstore", "msgspec")

from struct import pack

from ottla.tables.layout import BytesShape, RowLayout
from ottla.tables.segment_source import SegmentSource
from ottla.tables.table import Owner
from tests.ottla.columns.test_batches import data, marker

OWNER = Owner("cluster", "topic-id", "t")


def test_rows_are_translated_in_two_files_as_in_one(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    log = [
        data(0, producer=7),
        marker(2, 7, committed=False),
        data(3, producer=7),
        marker(5, 7, committed=True),
        data(6),
    ]
    (folder / f"{0:020}.log").write_bytes(b"".join(log))
    (folder / f"{0:020}.txnindex").write_bytes(pack(">hqqqq", 0, 7, 0, 2, 3))
    source = SegmentSource(str(folder), OWNER, 0, RowLayout(BytesShape("key"), BytesShape("value")))
    assert source.translate(0, 8).rows == 4
    assert [source.translate(first, end).rows for first, end in ((0, 3), (3, 6), (6, 8))] == [0, 2, 2]
