"""Files on a disk that is full or slow, if a test wants that. Their contents are real."""

from __future__ import annotations

import errno
import os
import time

from ottla.storage.errors import failure_of
from ottla.storage.files import OsFiles
from ottla.storage.mapped_file import OsMappedFile, WriteDescriptors

#: A call may take this many bytes of a full disk, if a file has been truncated meanwhile.
BLOCK_BYTES = 4096


class Disk:
    """The state of the disk below all files of the node."""

    def __init__(self) -> None:
        self.full = False
        self.slow_ms = 0
        self._freed = 0

    def free(self, count: int) -> None:
        """Take note that a file was truncated by this many bytes: they are free now, even on a full disk."""
        self._freed = self._freed + max(0, count) if self.full else 0

    def allocate(self, path: str) -> None:
        """Take a block for the file. Raises DiskFull if there is no room for another one."""
        if not self.full:
            self._freed = 0
        elif self._freed >= BLOCK_BYTES:
            self._freed -= BLOCK_BYTES
        else:
            raise failure_of(path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path))

    def flush(self) -> None:
        """Flush on the thread that waits for the disk."""
        if self.slow_ms:
            time.sleep(self.slow_ms / 1000)


class SpoiledFiles(OsFiles):
    """The operating system's files, on that disk."""

    def __init__(self, disk: Disk) -> None:
        super().__init__()
        self._disk = disk

    def map(self, path: str, capacity: int, writable: bool) -> OsMappedFile:
        return _SpoiledMapping(path, capacity, writable, self._descriptors, self._disk)

    def create(self, path: str) -> None:
        self._disk.allocate(path)
        super().create(path)

    def pwrite(self, path: str, offset: int, data: bytes) -> None:
        self._disk.allocate(path)
        super().pwrite(path, offset, data)

    def truncate(self, path: str, size: int) -> None:
        before = self.size(path) or 0
        super().truncate(path, size)
        self._disk.free(before - size)

    def reserve(self, path: str, size: int) -> None:
        self._disk.allocate(path)
        super().reserve(path, size)

    def write_atomic(self, path: str, data: bytes, sync: bool = True) -> None:
        self._disk.allocate(path)
        if sync:
            self._disk.flush()
        super().write_atomic(path, data, sync)

    def sync_file(self, path: str) -> None:
        self._disk.flush()
        super().sync_file(path)

    def usable_bytes(self, path: str) -> tuple[int, int]:
        total, usable = super().usable_bytes(path)
        return total, 0 if self._disk.full else usable


class _SpoiledMapping(OsMappedFile):
    __slots__ = ("_disk",)

    def __init__(self, path: str, capacity: int, writable: bool, descriptors: WriteDescriptors, disk: Disk) -> None:
        super().__init__(path, capacity, writable, descriptors)
        self._disk = disk

    def ensure(self, size: int) -> None:
        if size > self.size:
            self._disk.allocate(self.path)
        super().ensure(size)

    def flush(self) -> None:
        self._disk.flush()
        super().flush()
