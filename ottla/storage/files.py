"""The only interface to the file system. `OsFiles` implements it; the simulator has an implementation with its own disk.

Paths are `str`. A failed call raises `StorageFailure` (`DiskFull` if there was no room and nothing was changed). A missing
file is a result (None, False), not a failure.

The node's mappings are limited (`Mappings`). A file that has a second name is never written: `mapped_file.own`.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from ottla.storage.errors import DiskFull, LogDirectoryLocked, StorageFailure, failure_of
from ottla.storage.mapped_file import OsMappedFile, WriteDescriptors, own, reserve


class MappedFile(Protocol):
    """Bytes of a file in memory. `buffer` may be longer than `size`; only bytes below `size` may be touched."""

    path: str
    buffer: memoryview
    size: int

    def ensure(self, size: int) -> None: ...
    def fill_holes(self, start: int) -> None: ...
    def prefault(self, start: int, end: int) -> None: ...
    def write(self, position: int, data: bytes | bytearray | memoryview) -> None: ...
    def touch(self, start: int, end: int) -> None: ...
    def flush(self) -> None: ...
    def populate(self, start: int, end: int) -> None: ...
    def in_memory_until(self, start: int, end: int) -> int: ...
    def read_ahead(self, start: int, end: int) -> None: ...
    def zero(self, start: int, end: int) -> None: ...
    def close(self) -> None: ...
    def cut_views(self, size: int) -> None: ...
    @property
    def shown(self) -> bool: ...


class FileLock(Protocol):
    def release(self) -> None: ...


class Files(Protocol):
    """Every file system call that Ottla makes for its data."""

    def map(self, path: str, capacity: int, writable: bool) -> MappedFile: ...
    def create(self, path: str) -> None: ...
    def read(self, path: str) -> bytes | None: ...
    def pread(self, path: str, offset: int, n: int) -> bytes: ...
    def pwrite(self, path: str, offset: int, data: bytes) -> None: ...
    def reserve(self, path: str, size: int) -> None: ...
    def write_atomic(self, path: str, data: bytes, sync: bool = True) -> None: ...
    def rename(self, source: str, target: str) -> None: ...
    def remove(self, path: str) -> None: ...
    def remove_tree(self, path: str) -> None: ...
    def list_dir(self, path: str) -> list[str]: ...
    def list_sizes(self, path: str) -> dict[str, int]: ...
    def exists(self, path: str) -> bool: ...
    def size(self, path: str) -> int | None: ...
    def modified_ms(self, path: str) -> int: ...
    def changed_ns(self, path: str) -> int: ...
    def truncate(self, path: str, size: int) -> None: ...
    def touch(self, path: str, start: int, end: int) -> None: ...
    def sync_file(self, path: str) -> None: ...
    def sync_dir(self, path: str) -> None: ...
    def make_dirs(self, path: str) -> None: ...
    def usable_bytes(self, path: str) -> tuple[int, int]: ...
    def lock(self, path: str) -> FileLock: ...


class OsFiles:
    """The files of the operating system."""

    def __init__(self) -> None:
        self._descriptors = WriteDescriptors()

    def __reduce__(self) -> tuple[type[OsFiles], tuple[()]]:
        return OsFiles, ()  # another process opens files of its own

    def map(self, path: str, capacity: int, writable: bool) -> MappedFile:
        return OsMappedFile(path, capacity, writable, self._descriptors)

    def create(self, path: str) -> None:
        with _writing(path):
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))

    def read(self, path: str) -> bytes | None:
        try:
            with _failing(path), open(path, "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def pread(self, path: str, offset: int, n: int) -> bytes:
        with _failing(path), open(path, "rb", buffering=0) as file:
            return os.pread(file.fileno(), n, offset)

    def pwrite(self, path: str, offset: int, data: bytes) -> None:
        own(path)
        with _writing(path):
            fd = os.open(path, os.O_CREAT | os.O_WRONLY, 0o644)
            try:
                view = memoryview(data)
                while view:
                    written = os.pwrite(fd, view, offset)
                    offset += written
                    view = view[written:]
            finally:
                os.close(fd)

    def reserve(self, path: str, size: int) -> None:
        """Give the file blocks for `size` bytes without a change of its length: see `mapped_file.reserve`."""
        reserve(path, size)

    def write_atomic(self, path: str, data: bytes, sync: bool = True) -> None:
        """Replace the file atomically: readers, and recovery after a crash, see the old content or the new one, never a mixture."""
        new = path + ".tmp"
        try:
            with _writing(new), open(new, "wb") as file:
                file.write(data)
                if sync:
                    file.flush()
                    os.fsync(file.fileno())
        except DiskFull:
            self.remove(new)
            raise
        self.rename(new, path)
        if sync:
            self.sync_dir(os.path.dirname(path))

    def rename(self, source: str, target: str) -> None:
        with _writing(source):
            os.replace(source, target)

    def remove(self, path: str) -> None:
        with suppress(FileNotFoundError), _failing(path):
            os.unlink(path)

    def remove_tree(self, path: str) -> None:
        with suppress(FileNotFoundError), _failing(path):  # loading it needs descriptors, too
            import shutil  # brings bz2 and lzma along, which command line tools never use

            shutil.rmtree(path)

    def list_dir(self, path: str) -> list[str]:
        with _failing(path):
            return sorted(os.listdir(path))

    def list_sizes(self, path: str) -> dict[str, int]:
        """Return names and sizes of the regular files of a directory."""
        with _failing(path), os.scandir(path) as entries:
            return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int | None:
        try:
            with _failing(path):
                return os.stat(path).st_size
        except FileNotFoundError:
            return None

    def modified_ms(self, path: str) -> int:
        with _failing(path):
            return os.stat(path).st_mtime_ns // 1_000_000

    def changed_ns(self, path: str) -> int:
        """Return the time of the last change of the contents, the rights or the owner."""
        with _failing(path):
            return os.stat(path).st_ctime_ns

    def touch(self, path: str, start: int, end: int) -> None:
        """Make these bytes dirty, as if they had just been written. A file with a second name keeps it: nothing changes in it."""
        mapped = OsMappedFile(path, 0, True, self._descriptors, in_place=True)
        mapped.touch(start, end)
        mapped.close()

    def truncate(self, path: str, size: int) -> None:
        own(path)
        with _failing(path):
            os.truncate(path, size)

    def sync_file(self, path: str) -> None:
        with _failing(path):
            _sync(path)

    def sync_dir(self, path: str) -> None:
        with _failing(path):
            _sync(path)

    def make_dirs(self, path: str) -> None:
        with _failing(path):
            os.makedirs(path, exist_ok=True)

    def usable_bytes(self, path: str) -> tuple[int, int]:
        """Return (total, usable) bytes of the volume that holds `path`."""
        with _failing(path):
            stat = os.statvfs(path)
        return stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize

    def lock(self, path: str) -> FileLock:
        """Lock Kafka's `.lock` file: one process per log directory. The kernel releases the lock when the process ends."""
        with _failing(path):
            fd = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # POSIX locks, as Java's FileChannel takes
        except OSError as error:
            os.close(fd)
            raise LogDirectoryLocked(f"{path} is held by another process") from error
        return _HeldLock(fd)


class _HeldLock:
    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class _failing:
    """Turns an OSError into a StorageFailure of this path; FileNotFoundError is passed on to the caller."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            raise failure_of(self.path, error) from error


class _writing(_failing):
    """Turns an OSError of a create or rename into a StorageFailure: FileNotFoundError then means that the directory, or its disk, is gone."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, FileNotFoundError):
            raise StorageFailure(self.path, error) from error
        super().__exit__(kind, error, trace)


@contextmanager
def private_file(data: bytes) -> Iterator[str]:
    """Yield a file that only this process reads, and that is gone afterwards: OpenSSL takes private keys from files only."""
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("private"), "wb", buffering=0) as memory:
            memory.write(data)
            yield f"/proc/self/fd/{memory.fileno()}"
    else:
        import tempfile

        with tempfile.NamedTemporaryFile() as file:  # readable by its owner only
            file.write(data)
            file.flush()
            yield file.name


def _sync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    except OSError as error:
        raise StorageFailure(path, error) from error
    finally:
        os.close(fd)


MAPPED_SEGMENTS_MAX = 8192


class Mapped(Protocol):
    """The file of a segment (`segment_file.SegmentFile`)."""

    recently_used: bool

    def unmap(self) -> None: ...


class Mappings:
    """The mapped files of a node, whose number is limited: 10,000 idle partitions must not exceed the kernel's map count (65,530).

    Beyond the limit the oldest is unmapped, unless it was used since the last check (second chance).

    If readers hold views of a mapping, it ends with the last of these.
    """

    __slots__ = ("_open", "limit")

    def __init__(self, limit: int = MAPPED_SEGMENTS_MAX) -> None:
        assert limit >= 1
        self.limit = limit
        self._open: OrderedDict[int, Mapped] = OrderedDict()

    def opened(self, file: Mapped) -> None:
        """Register a newly mapped file; others are unmapped to stay within the limit."""
        self._open[id(file)] = file
        file.recently_used = True
        while len(self._open) > self.limit:
            key, oldest = self._open.popitem(last=False)
            if oldest.recently_used and oldest is not file:
                oldest.recently_used = False
                self._open[key] = oldest
            elif oldest is file:
                self._open[key] = oldest  # it is checked again after all others have had their second chance
            else:
                oldest.unmap()

    def shrink(self) -> None:
        """Unmap half of the files, the oldest first, because there is no address space for another mapping."""
        for _ in range(max(len(self._open) // 2, 1)):
            if self._open:
                self._open.popitem(last=False)[1].unmap()

    def lift_limit(self) -> None:
        """Lift the limit: from now on no file is unmapped for another one's sake."""
        self.limit = sys.maxsize

    def closed(self, file: Mapped) -> None:
        self._open.pop(id(file), None)
