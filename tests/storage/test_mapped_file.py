"""Files that are mapped and, in large pieces, written by descriptors."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ottla.storage.errors import StorageFailure
from ottla.storage.mapped_file import PAGE_BYTES, WRITE_DESCRIPTORS_MAX, OsMappedFile, WriteDescriptors


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
    open_before = len(os.listdir("/proc/self/fd"))
    first = descriptors.of(files[0])
    for file in files[1:]:
        descriptors.of(file)
        assert descriptors.of(files[0]) == first, "it is used all the time"
    assert len(descriptors) == WRITE_DESCRIPTORS_MAX
    assert len(os.listdir("/proc/self/fd")) == open_before + WRITE_DESCRIPTORS_MAX
    for file in files:
        descriptors.close(file)
    assert len(os.listdir("/proc/self/fd")) == open_before


def test_pages_are_read_from_the_disk_when_one_of_them_is_not_in_memory(tmp_path: Path) -> None:
    path, size = tmp_path / "0.log", 64 * PAGE_BYTES
    path.write_bytes(b"")
    os.truncate(path, size)
    file = OsMappedFile(str(path), 0, False, WriteDescriptors())
    assert file.in_memory_until(0, size) == 0, "a hole has no pages yet"
    file.populate(0, size)
    assert file.in_memory_until(0, size) == size
    os.truncate(path, PAGE_BYTES)  # as pages that were evicted, and that the disk cannot read
    assert file.in_memory_until(0, PAGE_BYTES) == PAGE_BYTES
    with pytest.raises(StorageFailure, match="cannot be read"):
        file.populate(0, size)
