"""The `.log` file of a segment and its mapping: opened on demand, read without SIGBUS, zeroed, trimmed, synced.

The network sends views of the mapping, which must stay readable after the segment is truncated or deleted. So before a file is
cut, live views get memory of their own behind the cut.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from ottla.storage.config import NEVER, LogConfig
from ottla.storage.errors import OutOfResources, StorageFailure
from ottla.storage.files import Files, MappedFile
from ottla.storage.segment.cold import ColdBytes
from ottla.storage.segment.index import RELATIVE_OFFSET_MAX
from ottla.storage.segment.mappings import Mappings
from ottla.storage.segment.walk import WALK, DamagedLog, walk

logger = logging.getLogger(__name__)

LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX = ".log", ".index", ".timeindex", ".txnindex"
SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX = ".deleted", ".cleaned", ".swap"
assert SUFFIXES[0] == LOG_SUFFIX, "renamed last"

# A walk over cold bytes populates this many at a time.
REACH_BYTES = 64 << 10
# A read takes so many cold bytes, and the kernel reads ahead meanwhile: 50 MB of one Fetch stopped the event loop for 167 ms.
COLD_READ_BYTES = 256 << 10
READ_AHEAD_BYTES = 8 << 20


def segment_path(directory: str, base_offset: int, suffix: str) -> str:
    return f"{directory}/{base_offset:020d}{suffix}"


class SegmentFile:
    """The base class of `storage.segment.indexed_segment.IndexedSegment`: the file and its mapping."""

    __slots__ = (
        "_closed",
        "_config",
        "_damages",
        "_files",
        "_map",
        "_mappings",
        "_suffix",
        "active",
        "base_offset",
        "cold",
        "fresh_from",
        "in_memory_from",
        "limit",
        "path",
        "recently_used",
        "size",
    )

    def __init__(
        self,
        files: Files,
        mappings: Mappings,
        directory: str,
        base_offset: int,
        config: LogConfig,
        *,
        size: int,
        active: bool,
        suffix: str,
    ) -> None:
        self._files, self._mappings, self._config = files, mappings, config
        self.base_offset = base_offset
        self.limit = (
            base_offset + RELATIVE_OFFSET_MAX
        )  # the highest possible offset; `Segments` lowers it for sealed segments
        self.path = segment_path(directory, base_offset, "")
        self._suffix = suffix  # `.cleaned` or `.swap` during compaction
        self.size = size
        self.active = active
        self.cold = ColdBytes(size)
        self.recently_used = False
        self._damages: set[int] = set()  # positions of damage that has been logged
        self._map: MappedFile | None = None
        # Bytes from this position on were written by this process to mapped pages: readers need not check them.
        self.in_memory_from = NEVER
        # Bytes from this position on were written so lately that they are in memory: readers need not populate them either.
        self.fresh_from = NEVER
        self._closed: list[MappedFile] = []  # closed mappings with live views

    @property
    def log_path(self) -> str:
        return self._named(LOG_SUFFIX)

    def _named(self, kind: str) -> str:
        return self.path + kind + self._suffix

    # Reading

    def view(self) -> memoryview:
        """Returns a view of all batches. It stays valid as long as a reference to it exists, even if the segment is deleted.

        Bytes that an earlier process wrote must be brought into memory first, with `reach`.
        """
        if self._map is None:
            self._open_map()
        self.recently_used = True
        return self._map.buffer  # type: ignore[union-attr]  # _open_map has just set it

    def reach(self, position: int, end: int | None = None) -> int:
        """Brings bytes from `position` on into memory; returns the end of the part in memory.

        Raises:
            StorageFailure: the disk cannot read them. Without this call, access would kill the process (SIGBUS).
        """
        if position >= self.fresh_from:
            return self.size
        if self._map is None:
            self._open_map()
        mapped = self._map
        assert mapped is not None
        if end is None:
            end = min(position + REACH_BYTES, self.size)
        mapped.populate(position, end)
        return end

    def in_memory_until(self, position: int, size: int) -> int:
        """Returns the end of those of `size` bytes from `position` on that are in memory, so that no read of them waits for the disk.

        If it is not all, the kernel reads ahead for the next read.
        """
        if self._map is None:
            self._open_map()
        mapped = self._map
        assert mapped is not None
        end = min(position + size, self.size)
        reached = mapped.in_memory_until(position, end)
        if reached < end:
            mapped.read_ahead(reached, min(reached + READ_AHEAD_BYTES, self.size))
        return reached

    def walk(self, position: int) -> Iterator[tuple[int, int, int, int]]:
        """Yields (position, end, base offset, last offset) of the batches from the one at `position` on; see `storage.segment.walk`."""
        reach = None if position >= self.fresh_from else self.reach
        return walk(self.view(), position, self.size, self.log_path, self.base_offset, self.limit, reach)

    def offset_behind(self, start: int, end: int) -> int:
        """Returns the offset where a reader continues after [start, end), which are complete batches; another batch follows.

        `checked_end` has brought these batches into memory.
        """
        if start >= self.in_memory_from:
            if end < self.fresh_from:
                self.reach(end)
            base: int = WALK.unpack_from(self.view(), end)[0]
            return base
        # The batch at `end` is not looked at: it may be damaged.
        *_, (*_, last) = walk(self.view(), start, end, self.log_path, self.base_offset, self.limit)
        return last + 1

    def offset_at(self, position: int) -> int:
        """Returns the base offset of the batch that starts at `position`."""
        self.reach(position)
        base: int = WALK.unpack_from(self.view(), position)[0]
        return base

    def checked_end(self, start: int, end: int, in_memory: int) -> int:
        """Returns the end of the part of [start, end) that may be served: it is in memory, and cold bytes are checked.

        Bytes up to `in_memory` are known to be there: to ask the kernel twice takes a tenth of what a consumer's read costs.

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
            raise self._report(damage) from None

    def check(self, start: int, end: int) -> None:
        """Checks one batch, unless it is known to be valid.

        Raises:
            DamagedLog, StorageFailure
        """
        if not self.cold.is_checked(start, end):
            self.reach(start, end)
            self.cold.check(self.view(), self.walk(start), start, end, self.log_path)

    def age(self) -> None:
        """From now on readers look whether what was written until now is still in memory: the kernel may have written and dropped it."""
        if self._map is not None and self.active:
            self.fresh_from = self.size

    def _report(self, damage: DamagedLog) -> DamagedLog:
        """Logs the damage once per position: consumers retry the same fetch."""
        if damage.position not in self._damages:
            self._damages.add(damage.position)
            logger.error("%s. Remedy: %s", damage.message, damage.remedy)
        return damage

    # The mapping

    def _open_map(self) -> None:
        capacity = max(self._config.segment_bytes, self.size) if self.active else 0
        try:
            self._map = self._files.map(self.log_path, capacity, self.active)
        except OutOfResources:
            self._mappings.shrink()  # each active log reserves segment.bytes
            self._map = self._files.map(self.log_path, capacity, self.active)
        if self._map.size < self.size:
            missing, self._map = self.size - self._map.size, None
            raise StorageFailure(self.log_path, f"the last {missing} bytes of the file have disappeared")
        if self.active:
            self.in_memory_from = self.fresh_from = self.size
        self._mappings.opened(self)

    def unmap(self) -> None:
        """Closes the mapping, which ends with its last view. The next access opens it again."""
        self._close_map()

    def _close_map(self) -> None:
        """Closes the mapping, which ends with its last view."""
        self.in_memory_from = self.fresh_from = NEVER
        mapped, self._map = (
            self._map,
            None,
        )  # two threads may call this: a deleted log's worker, and the event loop for room
        if mapped is not None:
            mapped.close()
            self._closed = [each for each in (*self._closed, mapped) if each.shown]
            self._mappings.closed(self)

    # Changing

    def zero(self, start: int, end: int) -> None:
        if start < end:
            self.view()
            assert self._map is not None
            self._map.zero(start, end)

    def trim(self) -> None:
        """Trims the file to its batches. A live view from before a truncation may end later."""
        self._close_map()
        if (self._files.size(self.log_path) or 0) <= self.size:
            return
        for mapped in self._closed:
            mapped.cut_views(self.size)
        self._files.truncate(self.log_path, self.size)

    def rewrite(self, start: int) -> None:
        """Makes the bytes from `start` on dirty, so that the next flush writes them.

        An fsync of an earlier process may have failed for them: the kernel reports that once, and then counts the pages
        as clean.
        """
        if start < self.size:
            mapped = self._map if self._map is not None and self.active else self._files.map(self.log_path, 0, True)
            mapped.touch(start, self.size)
            if mapped is not self._map:
                mapped.close()

    def settle_tail(self) -> None:
        """Syncs the zeros after the last batch: see `Segment.erase`."""
        self.view()
        mapped = self._map
        assert mapped is not None
        mapped.touch(self.size, mapped.size)
        self.sync_log()

    def sync_log(self) -> None:
        mapped = self._map
        if mapped is not None and self.active:
            mapped.flush()
        else:
            self._files.sync_file(self.log_path)
