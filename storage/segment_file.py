"""The `.log` file of a segment and its mapping: opened when wanted, read without SIGBUS, zeroed, trimmed, synced.

A view of the mapping is handed to the network and must stay readable whatever becomes of the segment. So a file is never cut
below what a view that is still held may show: its batches are copied to another one instead, which takes its name.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from ottla.storage.cold import ColdBytes
from ottla.storage.config import NEVER, LogConfig
from ottla.storage.errors import NoAddressSpace, StorageFailure
from ottla.storage.files import Files, MappedFile
from ottla.storage.index import RELATIVE_OFFSET_MAX
from ottla.storage.mappings import Mappings
from ottla.storage.walk import WALK, DamagedLog, walk

logger = logging.getLogger(__name__)

LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX = ".log", ".index", ".timeindex", ".txnindex"
SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX = ".deleted", ".cleaned", ".swap"
assert SUFFIXES[0] == LOG_SUFFIX, "renamed last"

# Brought into memory at once by a walk over what may not be there.
REACH_BYTES = 64 << 10


def segment_path(directory: str, base_offset: int, suffix: str) -> str:
    return f"{directory}/{base_offset:020d}{suffix}"


class SegmentFile:
    """What `storage.segment.Segment` is made of."""

    __slots__ = (
        "_closed",
        "_config",
        "_damages",
        "_files",
        "_map",
        "_mappings",
        "_shown",
        "_suffix",
        "active",
        "base_offset",
        "cold",
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
        self.limit = base_offset + RELATIVE_OFFSET_MAX  # no offset beyond it; `Segments` lowers that of sealed ones
        self.path = segment_path(directory, base_offset, "")
        self._suffix = suffix  # `.cleaned` and `.swap` while compaction makes it
        self.size = size
        self.active = active
        self.cold = ColdBytes(size)
        self.recently_used = False
        self._damages: set[int] = set()  # positions already written into the node's log
        self._map: MappedFile | None = None
        # From there on the bytes were written by this process, to pages that are mapped: readers take them as they are.
        self.in_memory_from = NEVER
        self._closed: list[MappedFile] = []  # views of them are still held
        self._shown = 0  # views that are held may show this much, though less is left

    @property
    def log_path(self) -> str:
        return self._named(LOG_SUFFIX)

    def _named(self, kind: str) -> str:
        return self.path + kind + self._suffix

    # Reading

    def view(self) -> memoryview:
        """All bytes of the segment's batches; valid as long as anybody holds it, whatever becomes of the segment.

        What a process before this one wrote must be brought into memory first, with `reach`.
        """
        if self._map is None:
            self._open_map()
        self.recently_used = True
        return self._map.buffer  # type: ignore[union-attr]  # _open_map has just set it

    def reach(self, position: int, end: int | None = None) -> int:
        """Brings the bytes from `position` on into memory, and answers how far.

        Raises:
            StorageFailure: the disk cannot read them. Without this call that would kill the process (SIGBUS).
        """
        if position >= self.in_memory_from:
            return self.size
        if self._map is None:
            self._open_map()
        mapped = self._map
        assert mapped is not None
        if end is None:
            end = min(position + REACH_BYTES, self.size)
        mapped.populate(position, end)
        return end

    def walk(self, position: int) -> Iterator[tuple[int, int, int, int]]:
        """(position, end, base offset, last offset) of the batches from the one at `position` on; see `storage.walk`."""
        reach = None if position >= self.in_memory_from else self.reach
        return walk(self.view(), position, self.size, self.log_path, self.base_offset, self.limit, reach)

    def offset_behind(self, start: int, end: int) -> int:
        """Where a reader goes on that was given [start, end): whole batches, and another one follows."""
        if start >= self.in_memory_from:
            base: int = WALK.unpack_from(self.view(), end)[0]
            return base
        for _, following, _, last in self.walk(start):  # the batch at `end` may be damaged
            if following >= end:
                return last + 1
        raise AssertionError(f"no batch ends at byte {end}")

    def offset_at(self, position: int) -> int:
        """The base offset of the batch that starts at `position`."""
        self.reach(position)
        base: int = WALK.unpack_from(self.view(), position)[0]
        return base

    def checked_end(self, start: int, end: int) -> int:
        """How much of [start, end) may be given away: it is in memory, and what an earlier process wrote was checked.

        Raises:
            DamagedLog, StorageFailure
        """
        if start >= self.in_memory_from:
            return end
        self.reach(start, end)
        if self.cold.is_checked(start, end):
            return end
        try:
            return self.cold.check(self.view(), self.walk(start), start, end, self.log_path)
        except DamagedLog as damage:
            raise self._report(damage) from None

    def check(self, start: int, end: int) -> None:
        """One batch, unless it is known to be right.

        Raises:
            DamagedLog, StorageFailure
        """
        if not self.cold.is_checked(start, end):
            self.reach(start, end)
            self.cold.check(self.view(), self.walk(start), start, end, self.log_path)

    def _report(self, damage: DamagedLog) -> DamagedLog:
        """Once for each place: a consumer asks for it again and again."""
        if damage.position not in self._damages:
            self._damages.add(damage.position)
            logger.error("%s. Remedy: %s", damage.message, damage.remedy)
        return damage

    # The mapping

    def _open_map(self) -> None:
        capacity = max(self._config.segment_bytes, self.size) if self.active else 0
        try:
            self._map = self._files.map(self.log_path, capacity, self.active)
        except NoAddressSpace:
            self._mappings.shrink()  # each active log reserves segment.bytes
            self._map = self._files.map(self.log_path, capacity, self.active)
        if self._map.size < self.size:
            missing, self._map = self.size - self._map.size, None
            raise StorageFailure(self.log_path, f"the last {missing} bytes of the file have disappeared")
        if self.active:
            self.in_memory_from = self.size
        self._mappings.opened(self)  # type: ignore[arg-type]  # `unmap` is in Segment

    def _close_map(self) -> None:
        """Gives the mapping back; it ends when the last view of it is gone."""
        self.in_memory_from = NEVER
        mapped, self._map = self._map, None  # two threads may come here: a deleted log's worker, and the loop for room
        if mapped is not None:
            mapped.close()
            self._closed = [each for each in (*self._closed, mapped) if each.shown]
            self._mappings.closed(self)  # type: ignore[arg-type]  # `unmap` is in Segment

    # Changing

    def zero(self, start: int, end: int) -> None:
        if start < end:
            self.view()
            assert self._map is not None
            self._map.zero(start, end)

    def trim(self) -> None:
        """Cuts the file to its batches.

        Only after a truncation can a view show more than there is, and seldom is one held so long: the copy may cost a second.
        """
        self._close_map()
        if (self._files.size(self.log_path) or 0) <= self.size:
            return
        if self._shown > self.size and any(mapped.shown for mapped in self._closed):
            self._files.copy_start(self.log_path, self.size)
        else:
            self._files.truncate(self.log_path, self.size)
        self._shown = 0

    def rewrite(self, start: int) -> None:
        """Lets the next flush write the bytes from `start` on, even if the kernel takes them to be on the disk.

        They may be what a flush of the process before failed to write: the kernel reports that once, and then counts the
        pages as clean.
        """
        if start < self.size:
            mapped = self._map if self._map is not None and self.active else self._files.map(self.log_path, 0, True)
            mapped.touch(start, self.size)
            if mapped is not self._map:
                mapped.close()

    def settle_tail(self) -> None:
        """What lies behind the last batch is on the disk as it is here, when this returns: see `Segment.erase`."""
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
