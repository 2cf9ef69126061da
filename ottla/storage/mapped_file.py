"""A file mapped into memory through the C library: growable in place, without a file descriptor of its own.

Python's `mmap` cannot do this: it keeps a duplicate descriptor per mapping, cannot map beyond the end of the file, and
cannot grow while views are out. Here the whole capacity is reserved as address space at once (a segment of 1 GB costs
nothing until it is touched) and the file grows below it, so views handed out stay valid, page tables stay filled, and
10,000 open logs hold no descriptors. The hazard: access to a page beyond the end of the file kills the process (SIGBUS).
So `ensure` must be called before every write, and a file is cut only after `cut_views` (truncation writes zeros). A page that
the disk cannot read has the same effect, so `populate` must be called before reads of cold bytes.

Files with a second name belong to a snapshot of the cluster as well (docs/SNAPSHOTS.md), and are never written. Whatever would write
to one gives the name a file of its own first (`own`): files that are mapped for writing call it, and so do writes at a position and
truncations. Other writes replace whole files. Recovery makes pages dirty by the bytes that they have (`Files.touch`), which changes no
file: so it copies none of the segments that it checks.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import sys
import weakref
from collections import OrderedDict
from contextlib import suppress
from threading import Lock
from types import TracebackType

from ottla.storage.errors import StorageFailure, failure_of

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
PROT_READ, PROT_WRITE, MAP_SHARED, MAP_FIXED = 1, 2, 1, 0x10
MADV_WILLNEED = 3
MADV_POPULATE_READ, MADV_POPULATE_WRITE = 22, 23  # Linux 5.14
FALLOC_FL_KEEP_SIZE, FALLOC_FL_ZERO_RANGE = 0x01, 0x10
MAP_FAILED = ctypes.c_void_p(-1).value
# It is far below the usual limit of 1,024 open files, and above the number of logs that get large writes at one time.
WRITE_DESCRIPTORS_MAX = 256
ZEROS = bytes(1 << 20)
#: The kernel reads no more than a device's largest request for one call of MADV_WILLNEED.
READ_AHEAD_STEP = 512 << 10

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_longlong]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
if sys.platform == "linux":
    _libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong]
_populate_works = sys.platform == "linux"


class WriteDescriptors:
    """LRU cache of the descriptors of files that get large writes."""

    def __init__(self, limit: int = WRITE_DESCRIPTORS_MAX) -> None:
        self.limit = limit
        self._open: OrderedDict[OsMappedFile, int] = OrderedDict()

    def of(self, file: OsMappedFile) -> int:
        fd = self._open.get(file)
        if fd is None:
            fd = self._open[file] = _open(file.path, os.O_WRONLY)
            if len(self._open) > self.limit:
                os.close(self._open.popitem(last=False)[1])
        else:
            self._open.move_to_end(file)
        return fd

    def close(self, file: OsMappedFile) -> None:
        fd = self._open.pop(file, None)
        if fd is not None:
            os.close(fd)


class OsMappedFile:
    """See `storage.files.MappedFile`."""

    __slots__ = ("_address", "_arrays", "_descriptors", "_prefaulted", "_writable", "buffer", "path", "size")

    def __init__(
        self, path: str, capacity: int, writable: bool, descriptors: WriteDescriptors, *, in_place: bool = False
    ) -> None:
        """Map a file. One that is written `in_place` keeps its other names: it is for `touch` alone."""
        self.path = path
        self._descriptors = descriptors
        self._writable = writable
        self._prefaulted = 0
        self._arrays: list[weakref.ref[ctypes.Array[ctypes.c_char]]] = []
        if writable and not in_place:
            own(path)
        with _Opened(path, os.O_RDWR if writable else os.O_RDONLY) as fd:
            self.size = os.fstat(fd).st_size
            self._map(fd, max(capacity, self.size))

    def ensure(self, size: int) -> None:
        """Make the file at least `size` bytes long with blocks behind every one of them.

        Raises:
            DiskFull: nothing has changed.
        """
        if size <= self.size:
            return
        assert self._writable
        with _Opened(self.path, os.O_RDWR) as fd:
            try:
                _allocate(fd, self.size, size)
                if size > len(self.buffer):
                    self._map(fd, size)
                    self._prefaulted = 0
            except OSError:
                # ext4 keeps the blocks of a failed allocation, which other files would then lack.
                with suppress(OSError):
                    os.ftruncate(fd, self.size)
                raise
        self.size = size

    def fill_holes(self, start: int) -> None:
        """Give the file blocks behind every byte from `start` on: a file that was restored from a copy may lack some.

        Raises:
            DiskFull: a write through the mapping would kill the process (SIGBUS).
        """
        if start >= self.size:
            return
        with _Opened(self.path, os.O_RDWR) as fd:
            _allocate(fd, start, self.size)

    def prefault(self, start: int, end: int) -> None:
        """Ask the kernel to put writable pages under [start, end): seven times cheaper than faulting one by one."""
        global _populate_works
        end = min(end, self.size)
        start = max(start, self._prefaulted) // PAGE_BYTES * PAGE_BYTES
        if not _populate_works or start >= end:
            return
        if _libc.madvise(self._address + start, end - start, MADV_POPULATE_WRITE) == 0:
            self._prefaulted = end
        elif ctypes.get_errno() == errno.EINVAL:
            _populate_works = False  # kernels before 5.14: ordinary page faults have the same effect, slower

    def populate(self, start: int, end: int) -> None:
        """Read the pages under [start, end) unless they are in memory.

        MADV_POPULATE_READ looks at each page also when all are mapped: 46 us per MB, a third of what the socket write costs.
        mincore takes 2 us per MB then, and 22 before the first access.

        Raises:
            StorageFailure: the disk cannot read them, and access to them would kill the process (SIGBUS).
        """
        begin, end = start // PAGE_BYTES * PAGE_BYTES, min(end, self.size)
        if begin >= end:
            return
        if _populate_works:
            if (
                self._first_missing(begin, end) >= end
                or _libc.madvise(self._address + begin, end - begin, MADV_POPULATE_READ) == 0
            ):
                return
            code = ctypes.get_errno()
            if code != errno.EINVAL:
                failed = code if code != errno.EFAULT else errno.EIO
                raise failure_of(self.path, OSError(failed, f"bytes {start} to {end} cannot be read"))
        self._read_through(begin, end)

    def in_memory_until(self, start: int, end: int) -> int:
        """Return the end of the part of [start, end), from `start` on, that the page cache has."""
        begin, end = start // PAGE_BYTES * PAGE_BYTES, min(end, self.size)
        if begin >= end or not _populate_works:
            return end
        return max(start, min(end, self._first_missing(begin, end)))

    def _first_missing(self, start: int, end: int) -> int:
        """Return where the first page begins that the page cache lacks. It is exact for files that this process may write (Linux 5.2)."""
        pages = bytearray(-(-(end - start) // PAGE_BYTES))
        if _libc.mincore(self._address + start, end - start, ctypes.byref(ctypes.c_char.from_buffer(pages))) != 0:
            return start
        missing = pages.find(0)
        return end if missing < 0 else start + missing * PAGE_BYTES

    def read_ahead(self, start: int, end: int) -> None:
        """Ask the kernel to read these pages, without waiting for the disk: 8 MB take 1.5 ms, for the pages alone."""
        if sys.platform != "linux":
            return
        begin, end = start // PAGE_BYTES * PAGE_BYTES, min(end, self.size)
        for position in range(begin, end, READ_AHEAD_STEP):
            _libc.madvise(self._address + position, min(READ_AHEAD_STEP, end - position), MADV_WILLNEED)

    def _read_through(self, start: int, end: int) -> None:
        """Populate the pages without madvise: a read brings them into the page cache, from where the mapping gets them."""
        with _Opened(self.path, os.O_RDONLY) as fd:
            for position in range(start, end, len(ZEROS)):
                os.pread(fd, min(len(ZEROS), end - position), position)

    def zero(self, start: int, end: int) -> None:
        """Overwrite [start, end) with zeros, from the end: after a crash the bytes before the first zeroed one are unchanged.

        If possible the file system does it without writing: 128 MiB took 113 ms through the mapping.
        """
        whole_from, whole_to = -(-start // PAGE_BYTES) * PAGE_BYTES, end // PAGE_BYTES * PAGE_BYTES
        if whole_to - whole_from > len(ZEROS) and self._deallocate(whole_from, whole_to):
            self._write_zeros(whole_to, end)
            end = whole_from
        self._write_zeros(start, end)

    def _write_zeros(self, start: int, end: int) -> None:
        while end > start:
            begin = max(start, end - len(ZEROS))
            self.write(begin, memoryview(ZEROS)[: end - begin])
            end = begin

    def _deallocate(self, start: int, end: int) -> bool:
        """Turn the blocks into unwritten ones, which read as zeros; return False if the file system does not support it."""
        if sys.platform != "linux":
            return False
        fd = self._descriptors.of(self)
        return bool(_libc.fallocate(fd, FALLOC_FL_KEEP_SIZE | FALLOC_FL_ZERO_RANGE, start, end - start) == 0)

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """Write through the kernel instead of the mapping, which shows it at once: the pages are the same.

        Large writes are several times cheaper so: no page fault, no zeroing of pages that are about to be overwritten,
        and large folios (on ext4 under Linux 6.18: 0.13 s of CPU per GB against 0.2-2 s through fresh mapped pages).
        """
        assert position + len(data) <= self.size, "`ensure` has allocated the blocks, so the disk cannot be full"
        fd = self._descriptors.of(self)
        try:
            written = os.pwrite(fd, data, position)
            while written < len(data):
                written += os.pwrite(fd, memoryview(data)[written:], position + written)
        except OSError as error:
            raise StorageFailure(self.path, error) from error

    def touch(self, start: int, end: int) -> None:
        """Make the pages under [start, end) dirty, as if their contents had just been written."""
        self.populate(start, end)
        buffer = self.buffer
        for position in range(start, end, PAGE_BYTES):
            buffer[position] = buffer[position]
        if start < end:
            buffer[end - 1] = buffer[end - 1]

    def flush(self) -> None:
        """Sync all bytes written so far. It releases the GIL while it waits."""
        with _Opened(self.path, os.O_RDWR) as fd:
            try:
                os.fdatasync(fd) if hasattr(os, "fdatasync") else os.fsync(fd)
            except OSError as error:
                raise StorageFailure(self.path, error) from error

    def close(self) -> None:
        """Drop the reference to the mapping. The kernel's mapping ends with the last view of it."""
        self._descriptors.close(self)
        self.buffer = memoryview(b"")
        self._address = 0

    def cut_views(self, size: int) -> None:
        """Put zeros of its own memory under the part that live views of this closed mapping show after `size`: then the file
        may be cut there.

        Raises:
            OutOfResources: nothing has changed.
        """
        for known in self._arrays:
            if (array := known()) is not None:
                start = -(-size // PAGE_BYTES) * PAGE_BYTES
                length = ctypes.sizeof(array) - start
                flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_FIXED
                if (
                    length > 0
                    and _libc.mmap(ctypes.addressof(array) + start, length, PROT_READ, flags, -1, 0) == MAP_FAILED
                ):
                    code = ctypes.get_errno()
                    raise failure_of(self.path, OSError(code, os.strerror(code)))

    @property
    def shown(self) -> bool:
        """Return True if a view of this closed mapping is still alive."""
        return any(array() is not None for array in self._arrays)

    def _map(self, fd: int, length: int) -> None:
        if length == 0:
            self.buffer, self._address = memoryview(b""), 0
            return
        protection = PROT_READ | PROT_WRITE if self._writable else PROT_READ
        address = _libc.mmap(None, length, protection, MAP_SHARED, fd, 0)
        if address == MAP_FAILED:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        array = (ctypes.c_char * length).from_address(address)
        # Views keep the array alive and the array keeps the mapping: munmap runs only after the last view is gone.
        weakref.finalize(array, _libc.munmap, address, length).atexit = False
        view = memoryview(array).cast("B")
        self._arrays = [known for known in self._arrays if known() is not None]
        self._arrays.append(weakref.ref(array))
        self.buffer, self._address = view if self._writable else view.toreadonly(), address


def _open(path: str, flags: int) -> int:
    try:
        return os.open(path, flags, 0o644)
    except OSError as error:
        raise failure_of(path, error) from error


class _Opened:
    """A descriptor for some calls. A failure of one of them means that nothing has changed.

    It is no generator: in 3.12.1 and 3.13.0 an exception that goes through one keeps the frames of all callers until the next collection, and
    with them the views of other mappings. Where address space is short, it is then not there for the second attempt.
    """

    __slots__ = ("_fd", "_path")

    def __init__(self, path: str, flags: int) -> None:
        self._path, self._fd = path, _open(path, flags)

    def __enter__(self) -> int:
        return self._fd

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        os.close(self._fd)
        if isinstance(error, OSError):
            raise failure_of(self._path, error) from error


def _allocate(fd: int, start: int, end: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, start, end - start)
        return
    zeros = bytes(min(end - start, 1 << 20))  # macOS has no posix_fallocate: real zeros reserve the blocks
    while start < end:
        start += os.pwrite(fd, zeros[: end - start], start)


def reserve(path: str, size: int) -> None:
    """Give a file blocks for `size` bytes, without a change of its length: a write up to there then finds room. It is created if missing.

    A file system without fallocate has no such promise, and the write itself may find it full.

    Raises:
        StorageFailure, DiskFull: nothing has changed.
    """
    own(path)
    with _Opened(path, os.O_CREAT | os.O_WRONLY) as fd:
        if sys.platform == "linux" and _libc.fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, size) != 0:
            code = ctypes.get_errno()
            if code not in (errno.EOPNOTSUPP, errno.ENOSYS):
                raise OSError(code, os.strerror(code))


#: The suffix of a copy that is being made: recovery removes it.
COPY_SUFFIX = ".own.tmp"
COPY_BYTES = 8 << 20
_copying = Lock()


def own(path: str) -> None:
    """Replace a file that has further names by a copy, which is on the disk before it takes this name. Others are left as they are.

    Raises:
        StorageFailure, DiskFull: nothing has changed.
    """
    if not _is_shared(path):
        return
    with _copying:  # a flush on another thread may need the same file
        if _is_shared(path):
            try:
                _copy(path, path + COPY_SUFFIX)
            except OSError as error:
                with suppress(OSError):
                    os.unlink(path + COPY_SUFFIX)
                raise failure_of(path, error) from error


def _is_shared(path: str) -> bool:
    try:
        return os.stat(path).st_nlink > 1
    except OSError:
        return False  # the call itself will raise the error


def _copy(path: str, new: str) -> None:
    with open(path, "rb") as shared, open(new, "wb") as copy:
        while piece := shared.read(COPY_BYTES):
            copy.write(piece)
        was = os.fstat(shared.fileno())
        copy.flush()
        os.fchmod(copy.fileno(), was.st_mode)
        os.utime(copy.fileno(), ns=(was.st_atime_ns, was.st_mtime_ns))
        os.fsync(copy.fileno())
    os.replace(new, path)
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
