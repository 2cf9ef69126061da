"""Files whose changes stay in memory: they show what a start would change on the disk, before anything is changed.

The code that opens and recovers logs runs on them as it is, so that a check in advance finds what the start will find, by the
same rules. A file that is mapped for writing is a private mapping: its changes end with the mapping.
"""

from __future__ import annotations

import mmap
import os

from ottla.storage.errors import StorageFailure, failure_of
from ottla.storage.files import FileLock, MappedFile, OsFiles

#: The size of a read that brings bytes of a mapping into memory.
READ_BYTES = 1 << 20


class PreviewFiles(OsFiles):
    """The files of the operating system, of which none is changed."""

    def __init__(self) -> None:
        super().__init__()
        self._written: dict[str, bytearray] = {}  # files with contents of their own
        self._cut: dict[str, int] = {}  # files that end earlier
        self._moved: dict[str, str] = {}  # new names of files and directories, and the names that they have on the disk
        self._gone: set[str] = set()  # names on the disk that are there no more

    # Names

    def _on_disk(self, path: str) -> str | None:
        """Return the name that the path has on the disk, or None if it was removed or renamed."""
        name, rest = path, ""
        while name:
            if name in self._moved:
                return self._moved[name] + rest
            if name in self._gone:
                return None
            name, slash, last = name.rpartition("/")
            rest = slash + last + rest
        return path

    def exists(self, path: str) -> bool:
        return path in self._written or ((disk := self._on_disk(path)) is not None and super().exists(disk))

    def list_dir(self, path: str) -> list[str]:
        disk = self._on_disk(path)
        names = (
            set() if disk is None else {name for name in super().list_dir(disk) if f"{path}/{name}" not in self._gone}
        )
        known = (*self._written, *self._moved)
        return sorted(names | {name.rpartition("/")[2] for name in known if name.rpartition("/")[0] == path})

    def list_sizes(self, path: str) -> dict[str, int]:
        disk = self._on_disk(path)
        if disk is None:
            raise FileNotFoundError(path)
        files = super().list_sizes(disk)
        found = {name: f"{path}/{name}" for name in self.list_dir(path)}
        return {
            name: self.size(file) or 0
            for name, file in found.items()
            if name in files or file in self._written or file in self._moved
        }

    # Reading files

    def read(self, path: str) -> bytes | None:
        if path in self._written:
            return bytes(self._written[path])
        disk = self._on_disk(path)
        data = None if disk is None else super().read(disk)
        return data if data is None else data[: self._cut.get(path, len(data))]

    def pread(self, path: str, offset: int, n: int) -> bytes:
        if path in self._written:
            return bytes(self._written[path][offset : offset + n])
        end = self._cut.get(path)
        return super().pread(self._on_disk(path) or path, offset, n if end is None else max(min(n, end - offset), 0))

    def size(self, path: str) -> int | None:
        if path in self._written:
            return len(self._written[path])
        disk = self._on_disk(path)
        size = None if disk is None else super().size(disk)
        return size if size is None else self._cut.get(path, size)

    def map(self, path: str, capacity: int, writable: bool) -> MappedFile:
        if path in self._written:
            return PrivateMapping(path, None, bytes(self._written[path]), capacity)
        return PrivateMapping(path, self._on_disk(path) or path, b"", capacity, self._cut.get(path))

    # The changes

    def touch(self, path: str, start: int, end: int) -> None:
        pass

    def create(self, path: str) -> None:
        if not self.exists(path):
            self._put(path, b"")

    def write_atomic(self, path: str, data: bytes, sync: bool = True) -> None:
        self._put(path, data)

    def pwrite(self, path: str, offset: int, data: bytes) -> None:
        kept = self.read(path) or b""
        if kept[offset : offset + len(data)] != data:
            self._put(path, kept[:offset].ljust(offset, b"\0") + data + kept[offset + len(data) :])

    def _put(self, path: str, data: bytes) -> None:
        self._written[path] = bytearray(data)
        self._cut.pop(path, None)

    def truncate(self, path: str, size: int) -> None:
        if path in self._written:
            del self._written[path][size:]
        else:
            self._cut[path] = size

    def rename(self, source: str, target: str) -> None:
        self.remove(target)
        if source in self._written:
            self._written[target] = self._written.pop(source)
        elif (disk := self._on_disk(source)) is not None:
            self._moved[target] = disk
            if source in self._cut:
                self._cut[target] = self._cut.pop(source)
        self._moved.pop(source, None)
        self._gone.add(source)

    def remove(self, path: str) -> None:
        if self.exists(path):
            self._written.pop(path, None)
            self._cut.pop(path, None)
            self._moved.pop(path, None)
            self._gone.add(path)

    remove_tree = remove

    def make_dirs(self, path: str) -> None:
        """Do nothing: a directory appears with its first file."""

    def sync_file(self, path: str) -> None:
        """Do nothing: nothing is written, so nothing is synced."""

    sync_dir = sync_file

    def lock(self, path: str) -> FileLock:
        """Lock the file if it exists: a directory without one is in use by no process."""
        return super().lock(path) if super().exists(path) else _NoLock()


class _NoLock:
    def release(self) -> None:
        """Do nothing: there is no file to unlock."""


class PrivateMapping:
    """See `storage.files.MappedFile`. It may be written, and the file stays as it is."""

    def __init__(self, path: str, disk: str | None, data: bytes, capacity: int, end: int | None = None) -> None:
        """Map the file `disk`, up to `end` if given, or memory that begins with `data`. Raises StorageFailure: the file cannot be read."""
        self.path, self._disk = path, disk
        if disk is None:
            self.size = len(data)
            memory = mmap.mmap(-1, max(capacity, self.size, 1))
            memory[: self.size] = data
            self.buffer = memoryview(memory)
            return
        try:
            with open(disk, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                self.buffer = memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY) if size else b"")
        except OSError as error:
            raise failure_of(path, error) from error
        self.size = size if end is None else min(size, end)

    @property
    def shown(self) -> bool:
        """Return False: views keep the memory, and the file is never cut under them."""
        return False

    def ensure(self, size: int) -> None:
        """Raise StorageFailure: nothing is appended in a preview."""
        if size > self.size:
            raise StorageFailure(self.path, "a preview appends nothing")

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        self.buffer[position : position + len(data)] = data

    def zero(self, start: int, end: int) -> None:
        """Hide the bytes from `start` to `end` by zeros."""
        for begin in range(start, end, READ_BYTES):
            count = min(READ_BYTES, end - begin)
            self.write(begin, bytes(count))

    def populate(self, start: int, end: int) -> None:
        """Read the bytes once, because an access that the disk cannot answer would kill the process.

        Raises:
            StorageFailure
        """
        if self._disk is None or start >= end:
            return
        try:
            with open(self._disk, "rb", buffering=0) as file:
                for begin in range(start, min(end, self.size), READ_BYTES):
                    os.pread(file.fileno(), min(READ_BYTES, end - begin), begin)
        except OSError as error:
            raise failure_of(self.path, error) from error

    def in_memory_until(self, start: int, end: int) -> int:
        return end

    def touch(self, start: int, end: int) -> None:
        """Read the bytes; they stay as they are."""
        self.populate(start, end)

    def close(self) -> None:
        """Drop the reference to the mapping, which is unmapped with its last view."""
        self.buffer = memoryview(b"")

    def fill_holes(self, start: int) -> None:
        """Do nothing: no byte gets a block."""

    def prefault(self, start: int, end: int) -> None:
        """Do nothing: few bytes are written."""

    read_ahead = prefault

    def flush(self) -> None:
        """Do nothing: the file has not changed."""

    def cut_views(self, size: int) -> None:
        """Do nothing: the file is not cut."""
