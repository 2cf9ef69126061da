"""Disks for faults: a small one that can be filled, and one whose image can be taken, as a power failure leaves it.

A power failure: the node is stopped dead (SIGSTOP), the image behind its file system is copied, the node is killed. The copy
holds what was written to the device, so nothing that only the page cache knew (`commit=300` keeps ext4 from syncing by
itself). Mounting it replays the file system's journal, as after a real failure.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

UNMOUNT_SECONDS_MAX = 30.0
IMAGE_BYTES = 512 << 20
SKIP_REASON = "needs root, mkfs.ext4 and loop mounts"


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")


@cache
def available() -> bool:
    """Return whether a disk image can be made, mounted and unmounted here."""
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        return False
    with tempfile.TemporaryDirectory() as directory:
        try:
            with ImageDisk(Path(directory), "probe", 16 << 20):
                return True
        except OSError:
            return False


class ImageDisk:
    """An ext4 file system in a file, mounted at `path`."""

    def __init__(self, directory: Path, name: str, size: int = IMAGE_BYTES) -> None:
        self.path = directory / name
        self._directory = directory
        self._size = size
        self._generation = 0

    @property
    def _image(self) -> Path:
        return self._directory / f"{self.path.name}-{self._generation}.img"

    def __enter__(self) -> ImageDisk:
        self.path.mkdir()
        with self._image.open("wb") as file:
            file.truncate(self._size)
        _run("mkfs.ext4", "-q", "-F", str(self._image))
        self._mount()
        return self

    def __exit__(self, *failure: object) -> None:
        self._unmount()

    def freeze(self) -> None:
        """Copy the image as it is now. Processes that write to the disk have to be stopped before."""
        copy = self._image.with_suffix(".copy")
        _run("cp", "--sparse=always", str(self._image), str(copy))

    def power_loss(self) -> None:
        """Go back to the copy that `freeze` made. Processes that have written have to be dead."""
        copy = self._image.with_suffix(".copy")
        self._unmount()
        self._image.unlink()
        self._generation += 1
        copy.rename(self._image)
        self._mount()

    def _mount(self) -> None:
        _run("mount", "-o", "loop,commit=300", str(self._image), str(self.path))

    def _unmount(self) -> None:
        """Unmount the disk, after a wait if necessary: a killed node's worker process ends when its pipe is closed, and may
        have a file open until then.
        """
        end = time.monotonic() + UNMOUNT_SECONDS_MAX
        while True:
            try:
                return _run("umount", str(self.path))
            except OSError as error:
                if "busy" not in str(error) or time.monotonic() > end:
                    raise
                time.sleep(0.05)


@contextmanager
def small_disk(path: Path, size: int) -> Iterator[Path]:
    """Mount a tmpfs of `size` bytes."""
    path.mkdir()
    _run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path))
    try:
        yield path
    finally:
        _run("umount", str(path))


def fill(path: Path, left: int = 0) -> Path:
    """Use up all the room except `left` bytes, with a file that can be removed again."""
    ballast = path / "ballast"
    with ballast.open("wb") as file:
        while True:
            usage = os.statvfs(path)
            try:
                os.posix_fallocate(file.fileno(), 0, max(1, usage.f_bavail * usage.f_frsize - left))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                os.ftruncate(file.fileno(), 0)  # a node has used some of the room meanwhile
            else:
                return ballast


needs_image_disks = pytest.mark.skipif(not available(), reason=SKIP_REASON)
