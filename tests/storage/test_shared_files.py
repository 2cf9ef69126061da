"""Files with a second name, which belongs to a snapshot: a change affects only the log."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ottla.storage.errors import DiskFull
from ottla.storage.files import OsFiles
from ottla.storage.log.truncate import truncate_to
from ottla.storage.mapped_file import COPY_SUFFIX
from tests.storage.logs_for_tests import append, batch, filled, open_at, read_all


def shared(log_directory: Path, snapshot: Path) -> dict[str, bytes]:
    snapshot.mkdir()
    for file in log_directory.iterdir():
        os.link(file, snapshot / file.name)
    return {file.name: file.read_bytes() for file in snapshot.iterdir()}


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_a_log_that_is_truncated_inside_a_shared_segment_leaves_the_snapshot_as_it_was(tmp_path: Path) -> None:
    log = filled(tmp_path / "log")
    log.flush()
    kept = read_all(log)
    before = shared(tmp_path / "log", tmp_path / "snapshot")
    middle = log.segments[1].base_offset + 2
    truncate_to(log, middle)
    append(log, batch(fill=99))
    log.close()
    assert contents(tmp_path / "snapshot") == before
    assert read_all(open_at(tmp_path / "snapshot")) == kept


def test_a_log_of_shared_files_that_is_opened_after_a_crash_and_written_to_leaves_the_snapshot_as_it_was(
    tmp_path: Path,
) -> None:
    filled(tmp_path / "log").flush()
    before = shared(tmp_path / "log", tmp_path / "snapshot")
    log = open_at(tmp_path / "log")
    append(log, batch(fill=99))
    log.close()
    assert contents(tmp_path / "snapshot") == before
    assert read_all(open_at(tmp_path / "log")).endswith(bytes([99]) * 20 + b"\0")


def test_recovery_checks_shared_segments_that_are_whole_and_copies_none_of_them(tmp_path: Path) -> None:
    log = filled(tmp_path / "log")
    sealed = [segment.file.log_path for segment in list(log.segments)[:-1]]
    shared(tmp_path / "log", tmp_path / "snapshot")
    open_at(tmp_path / "log").close()
    assert len(sealed) > 1 and {os.stat(path).st_nlink for path in sealed} == {2}


def test_a_shared_file_for_whose_copy_the_disk_has_no_room_stays_shared_and_nothing_is_left_of_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other = tmp_path / "0.log", tmp_path / "other.log"
    path.write_bytes(b"records")
    os.link(path, other)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskFull):
        OsFiles().truncate(str(path), 0)
    assert path.read_bytes() == other.read_bytes() == b"records"
    assert not Path(str(path) + COPY_SUFFIX).exists()
