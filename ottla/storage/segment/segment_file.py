"""The `.log` file of a segment and its mapping: opened on demand, read without SIGBUS, allocated ahead, zeroed, trimmed, synced.

The network sends views of the mapping, which must stay readable after the segment is truncated or deleted. So before a file is
cut, live views get memory of their own after the cut.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from ottla.storage.errors import DiskFull, OutOfResources, StorageFailure
from ottla.storage.files import Files, MappedFile, Mappings
from ottla.storage.log_config import NEVER, LogConfig
from ottla.storage.segment.index import RELATIVE_OFFSET_MAX
from ottla.storage.segment.walk import WALK, ColdBytes, DamagedLog, walk

logger = logging.getLogger(__name__)

LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX = ".log", ".index", ".timeindex", ".txnindex"
SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX = ".deleted", ".cleaned", ".swap"
assert SUFFIXES[0] == LOG_SUFFIX, "renamed last"

# A walk over cold bytes populates this many at a time.
REACH_BYTES = 64 << 10
# A read takes this many cold bytes, and the kernel reads ahead meanwhile: 50 MB of one Fetch stopped the event loop for 167 ms.
COLD_READ_BYTES = 256 << 10
READ_AHEAD_BYTES = 8 << 20
# The file is allocated ahead of the data: a small partition stays small, a busy one grows rarely (fallocate takes 10 us).
ALLOCATE_BYTES_MIN = 16 << 10
ALLOCATE_BYTES_MAX = 16 << 20
# Prefaulting (0.1-0.5 ms per MB of this thread) pays off for a segment that got this many bytes since it was opened.
BUSY_BYTES = 256 << 10
PREFAULT_BYTES = 1 << 20
# From this size on a system call costs less than the page faults of a copy into fresh mapped pages.
WRITE_BYTES_MIN = 8 << 10


def segment_path(directory: str, base_offset: int, suffix: str) -> str:
    return f"{directory}/{base_offset:020d}{suffix}"


class SegmentFile:
    """The file and its mapping. The bytes below `size` are batches; those after them, in an active segment, are zeros."""

    __slots__ = (
        "_closed",
        "_damages",
        "_is_filled",
        "_mappings",
        "active",
        "allocated",
        "base_offset",
        "cold",
        "config",
        "files",
        "fresh_from",
        "in_memory_from",
        "limit",
        "mapped",
        "on_disk",
        "path",
        "recently_used",
        "room",
        "size",
        "suffix",
    )

    def __init__(
        self,
        files: Files,
        mappings: Mappings,
        directory: str,
        base_offset: int,
        config: LogConfig,
        *,
        size: int = 0,
        active: bool = True,
        suffix: str = "",
    ) -> None:
        self.files, self._mappings, self.config = files, mappings, config
        self.base_offset = base_offset
        self.limit = (
            base_offset + RELATIVE_OFFSET_MAX
        )  # the highest possible offset; `Segments` lowers it for sealed segments
        self.path = segment_path(directory, base_offset, "")
        self.suffix = suffix  # `.cleaned` or `.swap` during compaction
        self.size = size
        self.active = active
        self.cold = ColdBytes(size)
        self.recently_used = False
        self._damages: set[int] = set()  # positions of damage that has been logged
        self.mapped: MappedFile | None = None
        self._closed: list[MappedFile] = []  # closed mappings with live views
        # Bytes from this position on were written by this process to mapped pages: readers need not check them.
        self.in_memory_from = NEVER
        # Bytes from this position on were written so lately that they are in memory: readers need not populate them either.
        self.fresh_from = NEVER
        # An append may write up to this position without make_room; with 0 it must call make_room.
        self.room = 0
        # The length of the active segment's file, now and at its last sync: the file grows ahead of the batches.
        self.allocated, self.on_disk = size, -1
        # True once all bytes of the active segment's file after its batches have blocks.
        self._is_filled = False

    @property
    def log_path(self) -> str:
        return self.named(LOG_SUFFIX)

    def named(self, kind: str) -> str:
        return self.path + kind + self.suffix

    def names(self) -> list[str]:
        """Return the names that the segment's files have, if they exist."""
        return [self.named(suffix) for suffix in SUFFIXES]

    def rename(self, path: str, suffix: str) -> None:
        """The files have another name from now on."""
        self.path, self.suffix = path, suffix

    def limit_to(self, offset: int) -> None:
        """Limit the offsets: none in the file is higher than this one."""
        self.limit = offset

    # Reading

    def view(self) -> memoryview:
        """Return a view of all batches. It stays valid as long as a reference to it exists, even if the segment is deleted.

        Bytes that an earlier process wrote must be brought into memory first, with `reach`.
        """
        mapped = self.mapped or self._map()
        self.recently_used = True
        return mapped.buffer

    def reach(self, position: int, end: int | None = None) -> int:
        """Bring bytes from `position` on into memory; return the end of the part in memory.

        Raises:
            StorageFailure: the disk cannot read them. Without this call, access would kill the process (SIGBUS).
        """
        if position >= self.fresh_from:
            return self.size
        mapped = self.mapped or self._map()
        if end is None:
            end = min(position + REACH_BYTES, self.size)
        mapped.populate(position, end)
        return end

    def in_memory_until(self, position: int, size: int) -> int:
        """Return the end of those of `size` bytes from `position` on that are in memory, so that no read of them waits for the disk.

        If it is not all, the kernel reads ahead for the next read.
        """
        mapped = self.mapped or self._map()
        end = min(position + size, self.size)
        reached = mapped.in_memory_until(position, end)
        if reached < end:
            mapped.read_ahead(reached, min(reached + READ_AHEAD_BYTES, self.size))
        return reached

    def walk(self, position: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield (position, end, base offset, last offset) of the batches from the one at `position` on; see `storage.segment.walk`."""
        reach = None if position >= self.fresh_from else self.reach
        return walk(self.view(), position, self.size, self.log_path, self.base_offset, self.limit, reach)

    def offset_behind(self, start: int, end: int, in_memory: int) -> int:
        """Return the offset where a reader continues after [start, end), which are complete batches; another batch follows.

        `checked_end` has brought these batches into memory, and bytes up to `in_memory` are known to be there.
        """
        if start >= self.in_memory_from:
            if end + WALK.size > in_memory:
                self.reach(end)
            base: int = WALK.unpack_from(self.view(), end)[0]
            return base
        # The batch at `end` is not looked at: it may be damaged.
        *_, (*_, last) = walk(self.view(), start, end, self.log_path, self.base_offset, self.limit)
        return last + 1

    def offset_at(self, position: int) -> int:
        """Return the base offset of the batch that starts at `position`."""
        self.reach(position)
        base: int = WALK.unpack_from(self.view(), position)[0]
        return base

    def checked_end(self, start: int, end: int, in_memory: int) -> int:
        """Return the end of the part of [start, end) that may be served: it is in memory, and cold bytes are checked.

        Bytes up to `in_memory` are known to be there.

        Raises:
            DamagedLog, StorageFailure
        """
        if start >= self.fresh_from:
            return end
        if in_memory < end:
            self.reach(start, end)
        if start >= self.in_memory_from:
            return end
        if self.cold.is_checked(start, end):
            return end
        try:
            return self.cold.check(self.view(), self.walk(start), start, end, self.log_path)
        except DamagedLog as damage:
            raise self.report(damage) from None

    def check(self, start: int, end: int) -> None:
        """Check one batch, unless it is known to be valid.

        Raises:
            DamagedLog, StorageFailure
        """
        if not self.cold.is_checked(start, end):
            self.reach(start, end)
            self.cold.check(self.view(), self.walk(start), start, end, self.log_path)

    def age(self) -> None:
        """Let readers check whether the bytes written until now are still in memory: the kernel may have written and dropped
        them.
        """
        if self.mapped is not None and self.active:
            self.fresh_from = self.size

    def report(self, damage: DamagedLog) -> DamagedLog:
        """Log the damage once per position: consumers retry the same fetch."""
        if damage.position not in self._damages:
            self._damages.add(damage.position)
            logger.error("%s. Remedy: %s", damage.message, damage.remedy)
        return damage

    # The mapping

    def _map(self) -> MappedFile:
        capacity = max(self.config.segment_bytes, self.size) if self.active else 0
        try:
            mapped = self.files.map(self.log_path, capacity, self.active)
        except OutOfResources:
            self._mappings.shrink()  # each active log reserves segment.bytes
            mapped = self.files.map(self.log_path, capacity, self.active)
        if mapped.size < self.size:
            missing = self.size - mapped.size
            raise StorageFailure(self.log_path, f"the last {missing} bytes of the file have disappeared")
        self.mapped = mapped
        if self.active:
            self.in_memory_from = self.fresh_from = self.size
        self._mappings.opened(self)
        return mapped

    def unmap(self) -> None:
        """Close the mapping, which ends with its last view. The next access opens it again."""
        self.in_memory_from = self.fresh_from = NEVER
        self.room = 0
        # Two threads may call this: a deleted log's worker, and the event loop for room.
        mapped, self.mapped = self.mapped, None
        if mapped is not None:
            mapped.close()
            self._closed = [each for each in (*self._closed, mapped) if each.shown]
            self._mappings.closed(self)

    # Growing

    def make_room(self, size: int) -> None:
        """Make room for `size` bytes: map, allocate and prefault as needed.

        Raises:
            DiskFull: the disk has no space; nothing has changed.
        """
        mapped = self.mapped or self._map()
        if not self._is_filled:
            mapped.fill_holes(self.size)
            self._is_filled = True
        end = self.size + size
        if end > mapped.size:
            step = min(max(mapped.size, ALLOCATE_BYTES_MIN), ALLOCATE_BYTES_MAX)
            if self.config.preallocate:
                step = self.config.segment_bytes
            ahead = max(end, min(self.size + step, self.config.segment_bytes))
            try:
                mapped.ensure(ahead)
            except DiskFull:
                if ahead == end:
                    raise
                mapped.ensure(end)  # without allocation ahead, to use the last bytes of a disk
        self.room = self.allocated = mapped.size
        if self.size - self.in_memory_from >= BUSY_BYTES and size < WRITE_BYTES_MIN:
            ahead = min(end + PREFAULT_BYTES, mapped.size)
            mapped.prefault(self.size, ahead)
            self.room = ahead

    def close_room(self) -> None:
        """The next append calls `make_room`."""
        self.room = 0

    def update_config(self, config: LogConfig) -> None:
        self.config = config
        self.room = 0

    # Cutting

    def cut(self, size: int) -> None:
        """The batches end at `size` from now on. The file is not written."""
        self.size = size
        self.cold.cut(size)
        self.room = 0

    def zero(self, start: int, end: int) -> None:
        if start < end:
            mapped = self.mapped or self._map()
            mapped.zero(start, end)

    def trim(self) -> None:
        """Trim the file to its batches. A live view from before a truncation may end later."""
        self.unmap()
        if (self.files.size(self.log_path) or 0) <= self.size:
            return
        for mapped in self._closed:
            mapped.cut_views(self.size)
        self.files.truncate(self.log_path, self.size)

    def seal(self) -> None:
        """The trimmed file gets no more appends."""
        self.on_disk = -1
        self.active = False

    def stay_active(self) -> None:
        """The file may get appends although it is sealed: the log is opened again, or sealed again by recovery."""
        self.active = True

    def reopen(self) -> None:
        """The unmapped file gets appends again."""
        self.active = True
        self.allocated, self.on_disk = 0, -1

    def rewrite(self, start: int) -> None:
        """Make the bytes from `start` on dirty, so that the next flush writes them.

        An fsync of an earlier process may have failed for them: the kernel reports that once, and then counts the pages
        as clean.
        """
        if start >= self.size:
            return
        if self.mapped is not None and self.active:
            self.mapped.touch(start, self.size)
        else:
            self.files.touch(self.log_path, start, self.size)

    def settle_tail(self) -> None:
        """Sync the zeros after the last batch: see `Segment.erase`."""
        mapped = self.mapped or self._map()
        mapped.touch(self.size, mapped.size)
        self.sync()

    # Syncing

    def sync(self) -> None:
        mapped = self.mapped
        if mapped is not None and self.active:
            mapped.flush()
        else:
            self.files.sync_file(self.log_path)

    def flush(self) -> None:
        """Sync the batches. Appends may run meanwhile, and make the file longer."""
        allocated = self.allocated
        self.sync()
        if self.allocated == allocated:
            self.on_disk = allocated

    def length_is_synced(self, length: int) -> None:
        """The file had this length when it was synced."""
        self.on_disk = length

    @property
    def length_synced(self) -> bool:
        """Return True if the file keeps its length in a power loss."""
        return self.on_disk == self.allocated
