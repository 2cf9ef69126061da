"""Files that are mapped and, in large pieces, written by descriptors."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import pytest

from ottla.storage import mapped_file
from ottla.storage.errors import StorageFailure
from ottla.storage.log.truncate import truncate_to
from ottla.storage.log_config import LogConfig
from ottla.storage.mapped_file import PAGE_BYTES, WRITE_DESCRIPTORS_MAX, OsMappedFile, WriteDescriptors
from tests.storage.logs_for_tests import NOW_MS, append, batch, descriptors_below, open_at, read_all


def mapped_files(tmp_path: Path, count: int, descriptors: WriteDescriptors) -> list[OsMappedFile]:
    files = []
    for number in range(count):
        path = tmp_path / f"{number}.log"
        path.write_bytes(b"")
        files.append(OsMappedFile(str(path), 4096, True, descriptors))
    return files


def test_the_descriptors_for_large_writes_are_bounded_and_the_one_used_longest_ago_is_closed(tmp_path: Path) -> None:
    descriptors = WriteDescriptors()
    files = mapped_files(tmp_path, WRITE_DESCRIPTORS_MAX + 2, descriptors)
    open_before = descriptors_below(tmp_path)
    first = descriptors.of(files[0])
    for file in files[1:]:
        descriptors.of(file)
        assert descriptors.of(files[0]) == first, "it is used all the time"
    assert len(descriptors._open) == WRITE_DESCRIPTORS_MAX
    assert descriptors_below(tmp_path) == open_before + WRITE_DESCRIPTORS_MAX
    for file in files:
        descriptors.close(file)
    assert descriptors_below(tmp_path) == open_before


def test_pages_are_read_from_the_disk_when_one_of_them_is_not_in_memory(tmp_path: Path) -> None:
    path, size = tmp_path / "0.log", 64 * PAGE_BYTES
    path.write_bytes(b"")
    os.truncate(path, size)
    file = OsMappedFile(str(path), 0, False, WriteDescriptors())
    assert file.in_memory_until(0, size) == 0, "a hole has no pages yet"
    file.populate(0, size)
    assert file.in_memory_until(0, size) == size
    os.truncate(path, PAGE_BYTES)  # as with pages that were evicted, and that the disk cannot read
    assert file.in_memory_until(0, PAGE_BYTES) == PAGE_BYTES
    with pytest.raises(StorageFailure, match="cannot be read"):
        file.populate(0, size)


def test_on_a_kernel_without_the_call_for_it_a_read_of_the_file_brings_its_pages_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Linux before 5.14, and on other systems, the mapping shows the page cache."""
    path, size = tmp_path / "0.log", (2 << 20) + 3 * PAGE_BYTES
    path.write_bytes(bytes(size))
    file = OsMappedFile(str(path), 4 << 20, False, WriteDescriptors())
    monkeypatch.setattr(mapped_file, "_populate_works", False)
    assert file.in_memory_until(0, 4 << 20) == size, "it is not known, so no read is divided"
    read, read_from = os.pread, []

    def noted(descriptor: int, count: int, position: int) -> bytes:
        data = read(descriptor, count, position)
        read_from.extend(range(position, position + len(data), PAGE_BYTES))
        return data

    monkeypatch.setattr(os, "pread", noted)
    file.populate(PAGE_BYTES + 1, 2 * PAGE_BYTES)
    assert read_from == [PAGE_BYTES]
    read_from.clear()
    file.populate(PAGE_BYTES, 4 << 20)
    assert read_from == list(range(PAGE_BYTES, size, PAGE_BYTES))

    def broken(*_: int) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "pread", broken)
    with pytest.raises(StorageFailure, match="Input/output error"):
        file.populate(0, size)
    file.populate(size, size + 1)


def readable(view: memoryview) -> bool:
    """The kernel returns EFAULT where this process would otherwise be killed by SIGBUS."""
    with tempfile.TemporaryFile() as target:
        try:
            return os.pwrite(target.fileno(), view, 0) == len(view)
        except OSError as error:
            assert error.errno == errno.EFAULT
            return False


def test_a_file_is_cut_below_the_views_that_a_slow_reader_holds_without_a_copy(tmp_path: Path) -> None:
    log = open_at(tmp_path, LogConfig(segment_bytes=1 << 20))
    for number in range(20):
        append(log, batch(size=1000, fill=number))
    answer = memoryview(log.read(15, max_bytes=1 << 20).records)
    kept = read_all(log)[: 2 * len(answer) // 5]
    truncate_to(log, 2)
    path, inode = log.segments.active.file.log_path, os.stat(log.segments.active.file.log_path).st_ino
    assert log.roll(NOW_MS) == 2
    found = os.stat(path)
    assert (found.st_size, found.st_ino) == (len(kept), inode)
    assert readable(answer) and bytes(answer) == bytes(len(answer))
    assert read_all(log) == kept
    assert read_all(open_at(tmp_path)) == kept


def test_only_what_is_cut_leaves_a_view(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(b"x" * 4 * PAGE_BYTES)
    file = OsMappedFile(str(path), 0, True, WriteDescriptors())
    view = file.buffer[:]
    file.close()
    file.cut_views(PAGE_BYTES + 1)
    os.truncate(path, PAGE_BYTES + 1)
    assert readable(view)
    assert bytes(view[: PAGE_BYTES + 1]) == b"x" * (PAGE_BYTES + 1) and not any(view[PAGE_BYTES + 1 :])
    os.truncate(path, 0)
    assert not readable(view[:1])
