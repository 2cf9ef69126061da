"""A disk in memory that forgets, in a crash, what was not synced, and that can be full, broken or watched.

`tests.sim.inodes` says what a power loss leaves. A kill -9 (`crash(power=False)`) loses nothing: the kernel has the pages.

Faults can be set for the middle of an operation, counted in calls that change something:
    fail_after(n)    the n-th call from now on fails with EIO (a sync in the fsyncgate way); later ones work
    kill_after(n)    the process ends at the n-th call from now on: that call and all later ones raise `Killed`
    on_call          is called before every such call, and may do what another thread would do meanwhile
"""

from __future__ import annotations

import errno
import posixpath
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ottla.storage.errors import FULL, DiskFull, LogDirectoryLocked, StorageFailure
from tests.sim.inodes import Directory, Inode, Mapped, is_held, poison
from tests.sim.threads import Threads, before_each

CAPACITY_BYTES = 1 << 40


def is_full(failure: BaseException | None) -> bool:
    cause = failure.cause if isinstance(failure, StorageFailure) else failure
    return isinstance(cause, OSError) and cause.errno in FULL


class Killed(BaseException):
    """The process is gone. Nothing may catch this but the test that killed it."""


class SimMappedFile:
    """See `storage.files.MappedFile`. Views handed out stay valid when the file grows."""

    def __init__(self, disk: SimDisk, path: str, inode: Inode, capacity: int, writable: bool) -> None:
        self.path, self._disk, self._inode, self._writable = path, disk, inode, writable
        self._process = disk.process
        self.size = len(inode.data)
        self._window = max(capacity, self.size)
        self._mapped: list[bytearray] = []
        self._map()

    def ensure(self, size: int) -> None:
        if size <= self.size:
            return
        assert self._writable
        self._disk.changing("allocate", self.path, self._process)
        self._disk.check_room(self.path, size - self.size)
        # A bytearray with views out cannot be resized: a longer one takes its place and is what programs see from now on.
        self._inode.data = bytearray(self._inode.data).ljust(size, b"\0")
        self.size = size
        self._window = max(self._window, size)
        self._map()

    def fill_holes(self, start: int) -> None:
        return None

    def prefault(self, start: int, end: int) -> None:
        return None

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        assert position + len(data) <= self.size, "allocated by `ensure`"
        try:
            self._disk.changing("write", self.path, self._process)
        except Killed:
            cut = self._disk.torn(len(data))
            self._inode.data[position : position + cut] = data[:cut]
            raise
        self._inode.data[position : position + len(data)] = data

    def touch(self, start: int, end: int) -> None:
        self._inode.touch(start, end)

    def flush(self) -> None:
        self._disk.sync(self.path, self._inode, self._process)

    def populate(self, start: int, end: int) -> None:
        self._disk.reading(self.path, start, end)

    def in_memory_until(self, start: int, end: int) -> int:
        return end

    def read_ahead(self, start: int, end: int) -> None:
        return None

    def zero(self, start: int, end: int) -> None:
        self.write(start, bytes(end - start))

    def close(self) -> None:
        self.buffer = memoryview(b"")

    def cut_views(self, size: int) -> None:
        for mapped in self._inode.mapped:
            if any(mapped.data is mine for mine in self._mapped):
                mapped.end = min(mapped.end, size)

    @property
    def shown(self) -> bool:
        return any(is_held(data) for data in self._mapped)

    def _map(self) -> None:
        inode = self._inode
        data = inode.data
        if inode.unreadable and not self._writable:
            data = bytearray(data)  # the error that a process gets when it touches such a page
            for start, end in inode.unreadable:
                data[start:end] = poison(len(data[start:end]))
        self._mapped = [*(known for known in self._mapped if is_held(known)), data]
        inode.mapped = [*(known for known in inode.mapped if is_held(known.data)), Mapped(data, len(data))]
        view = memoryview(data)
        self.buffer = view if self._writable else view.toreadonly()


class SimDisk:
    """See `storage.files.Files`. Shared by the lives of one node: the crash is between them."""

    def __init__(self, rng: random.Random, now_ms: Callable[[], int], room_bytes: int = CAPACITY_BYTES) -> None:
        self._rng, self._now_ms = rng, now_ms
        self.room_bytes = room_bytes
        self.process = 0  # a counter of the crashes: calls of a process that has ended have no effect any more
        self.calls = 0
        self.fail_next_syncs = 0
        self.failed: str | None = None  # the call that `fail_after` let fail
        self.on_call: Callable[[str, str], None] | None = None
        self.on_killed: Callable[[], None] | None = None
        self.threads: Threads | None = None
        self._fail_in = self._kill_in = 0
        self.killed = False
        self._root = Directory()
        self._locks: set[str] = set()

    # -- faults ------------------------------------------------------------------------------------------------------

    def crash(self, power: bool) -> None:
        """The node ended abruptly; with `power`, the kernel's pages are lost, too."""
        self.process += 1
        self._locks.clear()
        self.disarm()
        self.killed = False
        for inode in self._root.files():
            inode.detach()
        if power:
            self._root.after_power_loss(self._rng)

    def kill(self) -> None:
        """Let every call raise `Killed` from now on, until `crash` makes room for the next process."""
        if self.killed:
            return
        self.killed = True
        for inode in self._root.files():
            inode.detach()
        if self.on_killed is not None:
            self.on_killed()

    def fail_after(self, calls: int) -> None:
        self._fail_in, self.failed = calls, None

    def kill_after(self, calls: int) -> None:
        self._kill_in = calls

    def disarm(self) -> None:
        self._fail_in = self._kill_in = 0
        self.on_call = None

    def changing(self, kind: str, path: str, process: int | None = None) -> None:
        """Note that a call is about to change something; faults strike here."""
        if self.killed or (process is not None and process != self.process):
            raise Killed
        self.calls += 1
        if self.on_call is not None:
            self.on_call(kind, path)
        if self._kill_in:
            self._kill_in -= 1
            if not self._kill_in:
                self.kill()
                raise Killed
        if self._fail_in:
            self._fail_in -= 1
            if not self._fail_in:
                self.failed = f"{kind} {path}"
                raise StorageFailure(path, OSError(errno.EIO, f"simulated failure of {kind}"))

    def torn(self, size: int) -> int:
        """Return how much of a write was done when the process died in it."""
        return self._rng.randint(0, size) if self._rng.random() < 0.5 else 0

    def check_room(self, path: str, more: int) -> None:
        if self.room_bytes < CAPACITY_BYTES and self.used_bytes() + more > self.room_bytes:
            raise DiskFull(path, OSError(errno.ENOSPC, "no space left on the simulated disk"))

    def sync(self, path: str, inode: Inode, process: int | None = None) -> None:
        try:
            self.changing("sync", path, process)
            if self.fail_next_syncs:
                self.fail_next_syncs -= 1
                raise StorageFailure(path, OSError(errno.EIO, "simulated failure of sync"))
        except StorageFailure:
            inode.fail_sync(self._rng)
            raise
        inode.sync()

    def used_bytes(self) -> int:
        return sum(len(inode.data) for inode in self._root.files())

    def tree(self, path: str = "/") -> dict[str, bytes]:
        """Every file below `path` and its content."""
        found: dict[str, bytes] = {}
        for name, node in self._directory(path).entries.items():
            below = posixpath.join(path, name)
            if isinstance(node, Inode):
                found[below] = bytes(node.data)
            else:
                found |= self.tree(below)
        return found

    # -- storage.files.Files -----------------------------------------------------------------------------------------

    def map(self, path: str, capacity: int, writable: bool) -> SimMappedFile:
        with _missing_is_failure(path):
            return SimMappedFile(self, path, self._must(path), capacity, writable)

    def touch(self, path: str, start: int, end: int) -> None:
        mapped = self.map(path, 0, True)
        mapped.touch(start, end)
        mapped.close()

    def create(self, path: str) -> None:
        directory, name = self._place(path)
        if name not in directory.entries:
            self.changing("create", path)
            directory.put(name, Inode(modified_ms=self._now_ms()))

    def read(self, path: str) -> bytes | None:
        inode = self._find(path)
        if inode is None:
            return None
        self.reading(path, 0, len(inode.data))
        return bytes(inode.data)

    def pread(self, path: str, offset: int, n: int) -> bytes:
        self.reading(path, offset, offset + n)
        return bytes(self._must(path).data[offset : offset + n])

    def pwrite(self, path: str, offset: int, data: bytes) -> None:
        self.create(path)
        inode = self._must(path)
        grown = offset + len(data) - len(inode.data)
        try:
            self.changing("write", path)
        except Killed:
            self._write(inode, offset, data[: self.torn(len(data))])
            raise
        if grown > 0:
            try:
                self.check_room(path, grown)
            except DiskFull:
                room = max(self.room_bytes - self.used_bytes(), 0)  # a write takes what there is
                self._write(inode, offset, data[: len(data) - grown + room])
                raise
        self._write(inode, offset, data)

    def _write(self, inode: Inode, offset: int, data: bytes) -> None:
        if offset + len(data) > len(inode.data):
            inode.data = bytearray(inode.data).ljust(offset + len(data), b"\0")
        inode.data[offset : offset + len(data)] = data
        inode.touch(offset, offset + len(data))
        inode.modified_ms = self._now_ms()

    def reserve(self, path: str, size: int) -> None:
        """Check only that there is space: the caller uses it in the same turn."""
        self.create(path)
        inode = self._must(path)
        self.changing("reserve", path)
        self.check_room(path, max(size - len(inode.data), 0))

    def write_atomic(self, path: str, data: bytes, sync: bool = True) -> None:
        new = path + ".tmp"
        directory, name = self._place(new)
        self.changing("create", new)
        inode = Inode(modified_ms=self._now_ms())
        directory.put(name, inode)
        try:
            self.changing("write", new)
            self.check_room(new, len(data))
        except DiskFull:
            self.remove(new)
            raise
        inode.data = bytearray(data)
        if sync:
            self.sync(new, inode)
        self.rename(new, path)
        if sync:
            self.sync_dir(posixpath.dirname(path))

    def rename(self, source: str, target: str) -> None:
        (old_dir, old), (new_dir, new) = self._place(source), self._place(target)
        if old not in old_dir.entries:
            raise FileNotFoundError(source)
        assert old_dir is new_dir, "only renames within a directory are atomic here"
        self.changing("rename", source)
        old_dir.rename(old, new)

    def remove(self, path: str) -> None:
        if self._node(path) is not None:  # neither the file nor its directory has to exist, as with the real call
            directory, name = self._place(path)
            self.changing("remove", path)
            directory.drop(name)

    def remove_tree(self, path: str) -> None:
        directory, name = self._place(path)
        if name in directory.entries:
            self.changing("remove tree", path)
            directory.drop(name)

    def list_dir(self, path: str) -> list[str]:
        return sorted(self._directory(path).entries)

    def list_sizes(self, path: str) -> dict[str, int]:
        entries = self._directory(path).entries.items()
        return {name: len(node.data) for name, node in entries if isinstance(node, Inode)}

    def exists(self, path: str) -> bool:
        return self._node(path) is not None

    def size(self, path: str) -> int | None:
        inode = self._find(path)
        return None if inode is None else len(inode.data)

    def modified_ms(self, path: str) -> int:
        return self._must(path).modified_ms

    def changed_ns(self, path: str) -> int:
        return self.modified_ms(path) * 1_000_000

    def truncate(self, path: str, size: int) -> None:
        inode = self._must(path)
        self.changing("truncate", path)
        inode.truncate(size)

    def sync_file(self, path: str) -> None:
        self.sync(path, self._must(path))

    def sync_dir(self, path: str) -> None:
        directory = self._directory(path)
        self.changing("sync directory", path)
        directory.sync()

    def make_dirs(self, path: str) -> None:
        directory, walked = self._root, ""
        for part in filter(None, path.split("/")):
            walked = f"{walked}/{part}"
            node = directory.entries.get(part)
            if node is None:
                self.changing("make directory", walked)
                node = Directory()
                directory.put(part, node)
            if not isinstance(node, Directory):
                raise StorageFailure(path, NotADirectoryError(errno.ENOTDIR, "not a directory", path))
            directory = node

    def usable_bytes(self, path: str) -> tuple[int, int]:
        return self.room_bytes, self.room_bytes - self.used_bytes()

    def lock(self, path: str) -> SimLock:
        if path in self._locks:
            raise LogDirectoryLocked(f"{path} is held by another process")
        self._locks.add(path)
        return SimLock(self._locks, path)

    # -- looking up --------------------------------------------------------------------------------------------------

    def _node(self, path: str) -> Inode | Directory | None:
        node: Inode | Directory | None = self._root
        for part in filter(None, path.split("/")):
            node = node.entries.get(part) if isinstance(node, Directory) else None
        return node

    def _directory(self, path: str) -> Directory:
        node = self._node(path)
        if not isinstance(node, Directory):
            raise FileNotFoundError(path)
        return node

    def _place(self, path: str) -> tuple[Directory, str]:
        if self.killed:
            raise Killed
        return self._directory(posixpath.dirname(path)), posixpath.basename(path)

    def reading(self, path: str, start: int, end: int) -> None:
        """Note that a read is about to take place; a damaged medium may fail."""
        inode = self._must(path)
        if any(bad_from < end and bad_to > start for bad_from, bad_to in inode.unreadable):
            raise StorageFailure(path, OSError(errno.EIO, f"simulated medium error in [{start}, {end})"))

    def _find(self, path: str) -> Inode | None:
        node = self._node(path)
        return node if isinstance(node, Inode) else None

    def _must(self, path: str) -> Inode:
        inode = self._find(path)
        if inode is None:
            raise FileNotFoundError(path)
        return inode


@contextmanager
def _missing_is_failure(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise StorageFailure(path, error) from error


@dataclass
class SimLock:
    """See `storage.files.FileLock`."""

    held: set[str]
    path: str

    def release(self) -> None:
        self.held.discard(self.path)


for _name in ("map", "create", "read", "pread", "pwrite", "reserve", "write_atomic", "rename", "remove", "remove_tree", "list_dir",
              "list_sizes", "exists", "size", "truncate", "sync_file", "sync_dir", "make_dirs"):  # fmt: skip
    setattr(SimDisk, _name, before_each(getattr(SimDisk, _name), lambda disk: disk.threads))
for _name in ("ensure", "write", "flush"):
    setattr(SimMappedFile, _name, before_each(getattr(SimMappedFile, _name), lambda mapped: mapped._disk.threads))
