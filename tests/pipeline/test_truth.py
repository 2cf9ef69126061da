"""The truth file: what must follow from acknowledged records, and from records that may have been sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.needs import needs_packages

needs_packages("pyarrow")

from ottla.pipeline import truth
from ottla.pipeline.tables import finished_files
from ottla.pipeline.truth import Sent, WindowRow, expected


def sent(
    kind: str, event_id: str, offset: int, *, time_ms: int = 1000, page: str = "/", acknowledged: bool = True
) -> Sent:
    return Sent(kind, event_id, time_ms, "anna", page, 5, "events", 0, offset, acknowledged)


def test_a_duplicate_is_a_bronze_row_and_no_second_event() -> None:
    found = expected(
        [sent("good", "a", 0), sent("duplicate", "a", 1), sent("empty", "b", 2)], window_ms=1000, gap_ms=10
    )
    assert (len(found.bronze), found.event_ids, found.dead) == (3, {"a"}, {("events", 0, 2): "empty"})
    assert found.windows == {(1000, "/"): WindowRow(1, 5)}


def test_what_was_not_acknowledged_counts_only_where_it_was_seen() -> None:
    records = [sent("good", "a", -1, acknowledged=False)]
    assert not expected(records, window_ms=1000, gap_ms=10).windows
    assert expected(records, window_ms=1000, gap_ms=10, seen={"a"}).windows == {(1000, "/"): WindowRow(1, 5)}


def test_two_acknowledgements_of_one_position_are_noticed() -> None:
    with pytest.raises(AssertionError, match="position"):
        expected([sent("good", "a", 0), sent("good", "b", 0)], window_ms=1000, gap_ms=10)


def test_a_line_cut_by_a_kill_is_no_record(tmp_path: Path) -> None:
    path = tmp_path / "truth.jsonl"
    with path.open("w") as file:
        truth.write(file, sent("good", "a", 0))
        file.write('["good", "b", 10')
    assert [each.event_id for each in truth.read(path)] == ["a"]


def test_only_files_in_the_log_of_the_sink_are_read(tmp_path: Path) -> None:
    log = tmp_path / "_spark_metadata"
    assert finished_files(str(tmp_path)) == []
    log.mkdir()
    (log / "0").write_text('v1\n{"path":"file:///t/0.parquet"}')
    (log / "1.compact").write_text('v1\n{"path":"file:///t/0.parquet"}\n{"path":"file:///t/1.parquet"}')
    (log / "1").write_text('v1\n{"path":"file:///t/1.parquet"}')
    (log / "2").write_text('v1\n{"path":"file:///t/date%3D1/2%20.parquet"}')
    (log / ".3.tmp").write_text("v1")
    assert finished_files(str(tmp_path)) == ["/t/0.parquet", "/t/1.parquet", "/t/date=1/2 .parquet"]
