"""The meaning of each error of the operating system for a log directory."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.storage.errors import DiskFull, OutOfResources, StorageFailure, failure_of
from ottla.storage.files import OsFiles

FULL = {"ENOSPC", "EDQUOT", "EFBIG"}
OUT_OF_RESOURCES = {"EMFILE", "ENFILE", "ENOMEM", "EAGAIN"}
MEANINGS: dict[str, type[StorageFailure]] = {
    name: DiskFull if name in FULL else OutOfResources if name in OUT_OF_RESOURCES else StorageFailure
    for name in errno.errorcode.values()
}
#: A missing file is a result for most calls.
FAILED = sorted(name for name in MEANINGS if name != "ENOENT")


def test_each_error_is_a_full_disk_or_a_shortage_of_the_process_or_a_failed_disk() -> None:
    found = {name: type(failure_of("path", OSError(getattr(errno, name), "x"))) for name in MEANINGS}
    assert found == MEANINGS
    assert {name for name, kind in found.items() if issubclass(kind, DiskFull)} == FULL | OUT_OF_RESOURCES


def calls(files: OsFiles, path: str) -> dict[str, Callable[[], object]]:
    mapped = files.map(path, 1 << 16, True)
    return {
        "map": lambda: files.map(path, 1 << 16, True),
        "ensure": lambda: mapped.ensure(8192),
        "write": lambda: mapped.write(0, b"x"),
        "mapped flush": mapped.flush,
        "pwrite": lambda: files.pwrite(path, 0, b"x"),
        "create": lambda: files.create(path),
        "sync_file": lambda: files.sync_file(path),
        "sync_dir": lambda: files.sync_dir(os.path.dirname(path)),
    }


@pytest.mark.parametrize("code", FAILED)
def test_a_file_that_cannot_be_opened_says_what_is_short(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(bytes(4096))
    made = calls(OsFiles(), str(tmp_path / "file"))

    def refused(*args: object, **kwargs: object) -> int:
        raise OSError(getattr(errno, code), "simulated")

    monkeypatch.setattr(os, "open", refused)
    for name, call in made.items():
        with pytest.raises(StorageFailure) as failure:
            call()
        assert failure.type is MEANINGS[code], name


@pytest.mark.parametrize("code", FAILED)
def test_a_failed_sync_is_always_a_failed_disk(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel may have dropped the dirty pages, also if there was no room for them."""
    (tmp_path / "file").write_bytes(bytes(4096))
    made = calls(OsFiles(), str(tmp_path / "file"))

    def failed(fd: int) -> None:
        raise OSError(getattr(errno, code), "simulated")

    monkeypatch.setattr(os, "fsync", failed)
    monkeypatch.setattr(os, "fdatasync", failed)
    for name in ("mapped flush", "sync_file", "sync_dir"):
        with pytest.raises(StorageFailure) as failure:
            made[name]()
        assert failure.type is StorageFailure, name
