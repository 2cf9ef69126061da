"""A disk in memory that forgets, in a crash, what was not synced, and that can be full, slow to sync or broken.

What survives a power loss:
- of a file: the bytes of its last sync, and of every 4 KiB page changed since then any mixture of the old and the new
  512-byte sectors (pages reach the disk in any order, and may be torn);
- of a directory: the entries of its last sync, and any prefix of the creations, renames and removals since then
  (ext4 journals them in order).
A kill -9 (`crash(power=False)`) loses nothing: the kernel still has the pages.
After a failed sync the kernel forgets that the pages are dirty ("fsyncgate"): a second sync succeeds and saves nothing.
"""

from __future__ import annotations

import errno
import posixpath
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from storage.errors import DiskFull, LogDirectoryLocked, StorageFailure

PAGE_BYTES, SECTOR_BYTES = 4096, 512
CAPACITY_BYTES = 1 << 40


@dataclass(eq=False)
class Inode:
    """One file: `data` is what programs see, `durable` what the platters hold."""

    data: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    modified_ms: int = 0

    def sync(self) -> None:
        self.durable = bytes(self.data)

    def after_power_loss(self, rng: random.Random) -> None:
        """Leaves of the unsynced pages what chance brought to the disk."""
        new, old = self.data, self.durable
        size = rng.choice((len(old), len(new))) if len(old) != len(new) else len(new)
        kept = bytearray(old[:size].ljust(size, b"\0"))
        for page in range(0, size, PAGE_BYTES):
            if new[page : page + PAGE_BYTES] == kept[page : page + PAGE_BYTES]:
                continue
            fate = rng.random()
            for sector in range(page, min(page + PAGE_BYTES, size), SECTOR_BYTES):
                if fate < 0.4 or (fate < 0.6 and rng.random() < 0.5):  # the whole page, or a torn one
                    piece = new[sector : min(sector + SECTOR_BYTES, size)]
                    kept[sector : sector + len(piece)] = piece
        self.data = kept
        self.durable = bytes(kept)


@dataclass(eq=False)
class Directory:
    """Names of one directory: `entries` now, `durable` at its last sync, `journal` the changes since then."""

    entries: dict[str, Inode] = field(default_factory=dict)
    durable: dict[str, Inode] = field(default_factory=dict)
    journal: list[Callable[[dict[str, Inode]], None]] = field(default_factory=list)

    def change(self, step: Callable[[dict[str, Inode]], None]) -> None:
        step(self.entries)
        self.journal.append(step)

    def sync(self) -> None:
        self.durable, self.journal = dict(self.entries), []

    def after_power_loss(self, rng: random.Random) -> None:
        for step in self.journal[: rng.randint(0, len(self.journal))]:
            step(self.durable)
        self.entries, self.journal = dict(self.durable), []


class SimMappedFile:
    """See `storage.files.MappedFile`. Views handed out stay valid when the file grows."""

    def __init__(self, disk: SimDisk, path: str, inode: Inode, capacity: int, writable: bool) -> None:
        self.path, self._disk, self._inode, self._writable = path, disk, inode, writable
        self.size = len(inode.data)
        self._window = max(capacity, self.size)
        self._map()

    @property
    def capacity(self) -> int:
        return self._window

    def ensure(self, size: int) -> None:
        if size <= self.size:
            return
        self._disk.check_room(self.path, size - self.size)
        # A bytearray with views out cannot be resized: a longer one takes its place and is what programs see from now on.
        self._inode.data = bytearray(self._inode.data).ljust(size, b"\0")
        self.size = size
        self._window = max(self._window, size)
        self._map()

    def prefault(self, start: int, end: int) -> None:
        return None

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        assert position + len(data) <= self.size
        self._inode.data[position : position + len(data)] = data

    def flush(self) -> None:
        self._disk.sync(self.path, self._inode)

    def close(self, trim_to: int | None = None) -> None:
        if trim_to is not None and trim_to != self.size:
            self._inode.data = bytearray(self._inode.data[:trim_to])
            self.size = trim_to
        self.buffer = memoryview(b"")

    def _map(self) -> None:
        view = memoryview(self._inode.data)
        self.buffer = view if self._writable else view.toreadonly()


class SimDisk:
    """See `storage.files.Files`. Shared by the lives of one node: the crash is between them."""

    def __init__(self, rng: random.Random, now_ms: Callable[[], int], room_bytes: int = CAPACITY_BYTES) -> None:
        self._rng, self._now_ms = rng, now_ms
        self.room_bytes = room_bytes
        self.fail_next_syncs = 0
        self._directories: dict[str, Directory] = {"/": Directory()}
        self._locks: set[str] = set()

    # -- faults ------------------------------------------------------------------------------------------------------

    def crash(self, power: bool) -> None:
        """The node ended without a word; with `power` lost, so did the kernel's pages."""
        self._locks.clear()
        if not power:
            return
        for directory in self._directories.values():
            directory.after_power_loss(self._rng)
        for inode in {id(i): i for d in self._directories.values() for i in d.entries.values()}.values():
            inode.after_power_loss(self._rng)

    def check_room(self, path: str, more: int) -> None:
        if self.used_bytes() + more > self.room_bytes:
            raise DiskFull(path, OSError(errno.ENOSPC, "no space left on the simulated disk"))

    def sync(self, path: str, inode: Inode) -> None:
        if self.fail_next_syncs:
            self.fail_next_syncs -= 1
            inode.durable = bytes(inode.durable)  # the dirty pages are forgotten, not saved
            raise StorageFailure(path, OSError(errno.EIO, "simulated fsync failure"))
        inode.sync()

    def used_bytes(self) -> int:
        return sum(len(inode.data) for directory in self._directories.values() for inode in directory.entries.values())

    # -- storage.files.Files -----------------------------------------------------------------------------------------

    def map(self, path: str, capacity: int, writable: bool) -> SimMappedFile:
        return SimMappedFile(self, path, self._must(path), capacity, writable)

    def create(self, path: str) -> None:
        directory, name = self._place(path)
        if name not in directory.entries:
            inode = Inode(modified_ms=self._now_ms())
            directory.change(lambda entries: entries.__setitem__(name, inode))

    def read(self, path: str) -> bytes | None:
        inode = self._find(path)
        return None if inode is None else bytes(inode.data)

    def pread(self, path: str, offset: int, n: int) -> bytes:
        return bytes(self._must(path).data[offset : offset + n])

    def pwrite(self, path: str, offset: int, data: bytes) -> None:
        self.create(path)
        inode = self._must(path)
        grown = offset + len(data) - len(inode.data)
        if grown > 0:
            self.check_room(path, grown)
            inode.data = bytearray(inode.data).ljust(offset + len(data), b"\0")
        inode.data[offset : offset + len(data)] = data
        inode.modified_ms = self._now_ms()

    def write_atomic(self, path: str, data: bytes, sync: bool = True) -> None:
        new = path + ".tmp"
        directory, name = self._place(new)
        self.check_room(new, len(data))
        inode = Inode(bytearray(data), modified_ms=self._now_ms())
        directory.change(lambda entries: entries.__setitem__(name, inode))
        if sync:
            self.sync(new, inode)
        self.rename(new, path)
        if sync:
            self.sync_dir(posixpath.dirname(path))

    def rename(self, source: str, target: str) -> None:
        if source in self._directories:
            for path in [p for p in self._directories if p == source or p.startswith(source + "/")]:
                self._directories[target + path[len(source) :]] = self._directories.pop(path)
            return
        (old_dir, old), (new_dir, new) = self._place(source), self._place(target)
        inode = self._must(source)
        assert old_dir is new_dir, "only renames within a directory are atomic here"

        def step(entries: dict[str, Inode]) -> None:
            entries.pop(old, None)
            entries[new] = inode

        old_dir.change(step)

    def remove(self, path: str) -> None:
        directory, name = self._place(path)
        if name in directory.entries:
            directory.change(lambda entries: entries.pop(name, None) and None)

    def remove_tree(self, path: str) -> None:
        for name in [p for p in self._directories if p == path or p.startswith(path + "/")]:
            del self._directories[name]

    def list_dir(self, path: str) -> list[str]:
        below = {
            p[len(path) + 1 :].split("/")[0]
            for p in self._directories
            if p.startswith(path.rstrip("/") + "/") and p != "/"
        }
        return sorted({*self._directory(path).entries, *below})

    def list_sizes(self, path: str) -> dict[str, int]:
        return {name: len(inode.data) for name, inode in self._directory(path).entries.items()}

    def exists(self, path: str) -> bool:
        return path in self._directories or self._find(path) is not None

    def size(self, path: str) -> int | None:
        inode = self._find(path)
        return None if inode is None else len(inode.data)

    def modified_ms(self, path: str) -> int:
        return self._must(path).modified_ms

    def truncate(self, path: str, size: int) -> None:
        inode = self._must(path)
        inode.data = bytearray(inode.data[:size]).ljust(size, b"\0")

    def sync_file(self, path: str) -> None:
        self.sync(path, self._must(path))

    def sync_dir(self, path: str) -> None:
        self._directory(path).sync()

    def make_dirs(self, path: str) -> None:
        parts = path.strip("/").split("/")
        for i in range(1, len(parts) + 1):
            self._directories.setdefault("/" + "/".join(parts[:i]), Directory())

    def usable_bytes(self, path: str) -> tuple[int, int]:
        return self.room_bytes, self.room_bytes - self.used_bytes()

    def lock(self, path: str) -> SimLock:
        if path in self._locks:
            raise LogDirectoryLocked(f"{path} is held by another process")
        self._locks.add(path)
        return SimLock(self._locks, path)

    # -- looking up --------------------------------------------------------------------------------------------------

    def _directory(self, path: str) -> Directory:
        directory = self._directories.get(path.rstrip("/") or "/")
        if directory is None:
            raise FileNotFoundError(path)
        return directory

    def _place(self, path: str) -> tuple[Directory, str]:
        return self._directory(posixpath.dirname(path)), posixpath.basename(path)

    def _find(self, path: str) -> Inode | None:
        directory = self._directories.get(posixpath.dirname(path))
        return None if directory is None else directory.entries.get(posixpath.basename(path))

    def _must(self, path: str) -> Inode:
        inode = self._find(path)
        if inode is None:
            raise FileNotFoundError(path)
        return inode


@dataclass
class SimLock:
    """See `storage.files.FileLock`."""

    held: set[str]
    path: str

    def release(self) -> None:
        self.held.discard(self.path)
