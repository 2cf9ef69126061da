"""Copies of logs that are written meanwhile."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from ottla.local.snapshots import copying
from ottla.local.snapshots.copying import Copies, copy_directory
from ottla.storage import mapped_file
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


@pytest.mark.parametrize("file", ["roll", "epochs"])
def test_a_second_change_within_one_tick_of_the_kernels_clock_is_in_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    """The directory's time is the same after both changes: kernels before 6.13 have ticks of 1 to 10 ms."""
    log = filled(tmp_path / "data" / LOG)
    directory = tmp_path / "data" / LOG
    tick = directory.stat().st_mtime_ns - 10**9  # a time long ago stands for a copy that takes 50 ms
    os.utime(directory, ns=(tick, tick))
    copies, copy = Copies(), copying.copy_range

    def slow(*args: Any, **options: Any) -> None:
        copy(*args, **options)
        if len(log.segments) == segments and log.epochs.latest == 0:
            for number in range(20):
                append(log, batch(fill=number), epoch=1 if file == "epochs" else 0)
            log.flush()
            os.utime(directory, ns=(tick, tick))

    segments = len(log.segments)
    monkeypatch.setattr(copying, "copy_range", slow)
    bring(copies, tmp_path, fenced=False)
    os.utime(directory, ns=(tick, tick))
    bring(copies, tmp_path, fenced=True)
    assert copied(tmp_path) == read_all(log)
    assert (tmp_path / "copy" / LOG / "leader-epoch-checkpoint").read_bytes() == (
        directory / "leader-epoch-checkpoint"
    ).read_bytes()


@pytest.mark.parametrize("before", [0, 1], ids=["linked in the fence", "linked before it"])
def test_what_a_node_truncates_after_the_fence_stays_in_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    """The node is stopped after it has checked that its segment has one name, and before it writes to it."""
    log = filled(tmp_path / "data" / LOG)
    sealed = log.segments[1]
    whole = Path(sealed.file.log_path).read_bytes()
    copies, own = Copies(), mapped_file.own

    def stopped(path: str) -> None:
        own(path)
        if path == sealed.file.log_path:
            monkeypatch.undo()
            for number in range(before + 1):
                bring(copies, tmp_path, fenced=number == before)

    monkeypatch.setattr(mapped_file, "own", stopped)
    truncate_to(log, sealed.base_offset + 1)
    assert copies.of, "the node was stopped"
    assert (tmp_path / "copy" / LOG / Path(sealed.file.log_path).name).read_bytes() == whole


def test_a_file_system_without_links_has_copies_of_all_that_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled(tmp_path / "data" / LOG)

    def refused(source: str, target: str) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refused)
    copies = Copies()
    bring(copies, tmp_path, fenced=False)
    log.epochs.begin(3, log.log_end_offset)
    append(log, batch(fill=1), epoch=3)
    log.flush()
    bring(copies, tmp_path, fenced=True)
    assert copied(tmp_path) == read_all(log)
    assert b"3" in (tmp_path / "copy" / LOG / "leader-epoch-checkpoint").read_bytes()
