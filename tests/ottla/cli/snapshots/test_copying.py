"""Copies of logs that are written meanwhile."""

from __future__ import annotations

from pathlib import Path

from ottla.cli.snapshots.copying import Copies, copy_directory
from ottla.storage.log.truncate import truncate_to
from tests.storage.logs_for_tests import append, batch, filled, open_at, read_all

LOG = "topic-0"


def copied(tmp_path: Path) -> bytes:
    return read_all(open_at(tmp_path / "copy" / LOG))


def bring(copies: Copies, tmp_path: Path, *, fenced: bool) -> None:
    copies.bring(str(tmp_path / "data"), str(tmp_path / "copy"), fenced=fenced)


def test_a_copy_has_all_batches_and_shares_the_sealed_segments_and_not_the_active_one(tmp_path: Path) -> None:
    log = filled(tmp_path / "data" / LOG)
    copy_directory(str(tmp_path / "data"), str(tmp_path / "copy"))
    for segment in log.segments:
        names = int((tmp_path / "data" / LOG / Path(segment.file.log_path).name).stat().st_nlink)
        assert names == (1 if segment is log.segments.active else 2)
    assert copied(tmp_path) == read_all(log)


def test_what_is_appended_and_rolled_between_the_copies_is_in_the_last_one(tmp_path: Path) -> None:
    log = filled(tmp_path / "data" / LOG)
    copies = Copies()
    for number in range(3):
        bring(copies, tmp_path, fenced=False)
        for _ in range(5 + 20 * (number == 1)):
            append(log, batch(fill=number))
    bring(copies, tmp_path, fenced=True)
    assert copied(tmp_path) == read_all(log)


def test_a_log_that_was_truncated_and_written_to_between_the_copies_is_copied_again(tmp_path: Path) -> None:
    log = filled(tmp_path / "data" / LOG, 4)
    copies = Copies()
    bring(copies, tmp_path, fenced=False)
    truncate_to(log, 1)
    for number in range(3):
        append(log, batch(fill=100 + number), epoch=5)
    bring(copies, tmp_path, fenced=True)
    assert copied(tmp_path) == read_all(log)


def test_a_batch_of_which_a_part_is_written_during_the_first_copy_is_whole_in_the_last_one(tmp_path: Path) -> None:
    log = filled(tmp_path / "data" / LOG, 8)
    path = Path(log.segments.active.file.log_path)
    whole, size = path.read_bytes(), log.segments.active.file.size
    torn = bytearray(whole)
    torn[size - 300 : size - 200] = bytes(
        100
    )  # two or three batches before the end: a follower appends several at once
    path.write_bytes(torn)
    copies = Copies()
    bring(copies, tmp_path, fenced=False)
    path.write_bytes(whole)
    bring(copies, tmp_path, fenced=True)
    assert copied(tmp_path) == read_all(log)


def test_a_topic_that_is_deleted_between_the_copies_is_not_in_the_last_one(tmp_path: Path) -> None:
    filled(tmp_path / "data" / LOG)
    filled(tmp_path / "data" / "gone-0")
    copies = Copies()
    bring(copies, tmp_path, fenced=False)
    (tmp_path / "data" / "gone-0").rename(tmp_path / "data" / f"gone-0.{'0' * 32}-delete")
    bring(copies, tmp_path, fenced=True)
    assert [each.name for each in (tmp_path / "copy").iterdir()] == [LOG]
