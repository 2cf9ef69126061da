"""One segment of a log: `<base offset, 20 digits>.log` with its indexes. Appends, truncates, seals, flushes.

The last segment of a log is active: mapped writable and allocated ahead, the bytes beyond its `size` are zeros. All
others are sealed: exactly as long as their batches, and mapped on the first read. Files are as Apache Kafka writes
them: an index entry is added if more than index.interval.bytes were written since the last one, and maps the last
offset of a batch to the batch's start.

Appended batches are not validated here, and producer state and leader epochs are kept elsewhere.
"""

from __future__ import annotations

import logging
from struct import Struct

from ottla.protocol.records.batch import (
    BASE_OFFSET,
    LAST_OFFSET_DELTA,
    LENGTH,
    LOG_OVERHEAD_BYTES,
    MAX_TIMESTAMP,
    Header,
)
from ottla.storage.config import LogConfig
from ottla.storage.errors import DiskFull
from ottla.storage.files import Files
from ottla.storage.segment.indexed_segment import IndexedSegment
from ottla.storage.segment.mappings import Mappings
from ottla.storage.segment.segment_file import (
    INDEX_SUFFIX,
    SUFFIXES,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_path,
)
from ottla.storage.segment.txn_index import TransactionIndex

logger = logging.getLogger(__name__)

# The file is allocated ahead of the data: a small partition stays small, a busy one grows rarely (fallocate takes 10 us).
ALLOCATE_BYTES_MIN = 16 << 10
ALLOCATE_BYTES_MAX = 16 << 20
# Prefaulting (0.1-0.5 ms per MB of this thread) pays off for a segment that got this many bytes since it was opened.
BUSY_BYTES = 256 << 10
PREFAULT_BYTES = 1 << 20
# From this size on a system call costs less than the page faults of a copy into fresh mapped pages.
WRITE_BYTES_MIN = 8 << 10
OFFSET_LENGTH_EPOCH = Struct(">qii")
_STAMPED = OFFSET_LENGTH_EPOCH.size


class Segment(IndexedSegment):
    __slots__ = (
        "_is_filled",
        "allocated",
        "created_ms",
        "on_disk",
        "removed",
        "room",
        "trimmed",
        "txn_index",
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
        now_ms: int,
        suffix: str = "",
    ) -> None:
        super().__init__(files, mappings, directory, base_offset, config, size=size, active=active, suffix=suffix)
        self.created_ms = now_ms
        self.txn_index = TransactionIndex(self._named(TXN_INDEX_SUFFIX))
        self.trimmed = False  # True if it was trimmed since the last flush
        self.removed = False  # see `mark_removed`
        # An append may write up to this position without make_room; with 0 it must call make_room.
        self.room = 0
        # The length of the active segment's file, now and at its last sync: the file grows ahead of the batches.
        self.allocated, self.on_disk = size, -1
        # True once all bytes of the active segment's file behind its batches have blocks.
        self._is_filled = False

    # Appending

    def append(
        self,
        records: memoryview,
        base_offset: int,
        last_offset: int,
        leader_epoch: int,
        max_timestamp: int,
    ) -> int:
        """Copies one batch to the end, sets its offset and epoch, and returns its position. The caller has made room."""
        position = self.size
        size = len(records)
        end = position + size
        assert self._map is not None
        if size >= WRITE_BYTES_MIN and not records.readonly:
            # The fields are set in the receive buffer, which has no other reader.
            OFFSET_LENGTH_EPOCH.pack_into(records, 0, base_offset, size - LOG_OVERHEAD_BYTES, leader_epoch)
            self._map.write(position, records)
        else:
            buffer = self._map.buffer
            # The length is written last: if the process is killed before, the length is 0 and recovery ends the log there.
            buffer[position + _STAMPED : end] = records[_STAMPED:]
            OFFSET_LENGTH_EPOCH.pack_into(buffer, position, base_offset, size - LOG_OVERHEAD_BYTES, leader_epoch)
        self.size = end
        if position == 0:
            self._first_timestamp = max_timestamp
        if self.indexes.add(position, size, last_offset, max_timestamp):
            self.room = 0  # the next append calls make_room, and the log rolls
        return position

    def append_all(self, records: memoryview, headers: list[Header]) -> None:
        """Copies several batches that keep their offsets and epochs (replication, raft). The caller has made room."""
        position = self.size
        assert self._map is not None
        if len(records) >= WRITE_BYTES_MIN:
            self._map.write(position, records)
        else:
            self._map.buffer[position : position + len(records)] = records
        self.size = position + len(records)
        if position == 0:
            self._first_timestamp = headers[0][MAX_TIMESTAMP]
        for header in headers:
            size = header[LENGTH] + LOG_OVERHEAD_BYTES
            if self.indexes.add(position, size, header[BASE_OFFSET] + header[LAST_OFFSET_DELTA], header[MAX_TIMESTAMP]):
                self.room = 0
            position += size
        assert position == self.size

    def make_room(self, size: int) -> None:
        """Makes room for `size` bytes: maps, allocates and prefaults as needed.

        Raises:
            DiskFull: the disk has no space; nothing has changed.
        """
        assert self.active
        if self._map is None:
            self._open_map()
        self.load_indexes()
        self.largest_timestamp()
        mapped = self._map
        assert mapped is not None
        if not self._is_filled:
            mapped.fill_holes(self.size)
            self._is_filled = True
        end = self.size + size
        if end > mapped.size:
            step = min(max(mapped.size, ALLOCATE_BYTES_MIN), ALLOCATE_BYTES_MAX)
            if self._config.preallocate:
                step = self._config.segment_bytes
            ahead = max(end, min(self.size + step, self._config.segment_bytes))
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

    def length_is_synced(self, length: int) -> None:
        """The file had this length when it was synced."""
        self.on_disk = length

    @property
    def length_synced(self) -> bool:
        """Returns True if the file keeps its length in a power loss."""
        return self.on_disk == self.allocated

    def update_config(self, config: LogConfig) -> None:
        self._config = config
        self.indexes.update_config(config.index_interval_bytes)
        self.room = 0

    # Changing the end

    def truncate_to(self, offset: int) -> int:
        """Removes the batches that end at or after `offset` in memory; returns the new log end offset.

        If `offset` lies inside a batch, that is the batch's base offset. The file is not written: `erase` does that.
        """
        assert self.active
        position = self.position_of(offset)
        self.load_indexes()
        self.indexes.truncate_to(offset)
        if position is None or position == self.size:
            return offset
        end_offset = min(offset, self.offset_at(position))
        self.size = position
        self.cold.cut(position)
        self._hints.clear()
        self._first_timestamp = None if position else -1
        self.room = 0
        return end_offset

    def erase(self, end: int, end_offset: int) -> None:
        """Erases the truncated batches in the files and syncs.

        The bytes up to `end` become zeros but the file keeps its length: a reader's view must never lose its pages.
        The sync is for later appends. If a crash lost some of these zeros, and some of the batches written over them, then
        old and new batches of equal size would look like one log.
        """
        self.zero(self.size, end)
        self.txn_index.truncate_to(self._files, end_offset)
        self.flush()

    def seal(self, indexes_must_be_saved: bool = True) -> None:
        """Seals the segment against appends: the files are trimmed to their contents and the indexes completed.

        Raises:
            DiskFull: the disk has no room for the indexes, unless they may stay in memory.
        """
        assert self.active
        self.load_indexes()
        self.largest_timestamp()
        self.indexes.complete()
        if indexes_must_be_saved:
            self.indexes.save()
        self.trim()
        if self._save_indexes():
            self.indexes.unload()
        self.trimmed = True
        self.on_disk = -1
        self.active = False
        self.room = 0

    def seal_again(self) -> None:
        """Seals a sealed segment whose batches recovery has cut back."""
        self.active = True
        self.seal(indexes_must_be_saved=False)

    def reopen(self) -> None:
        """Makes a sealed segment active again, after the segments behind it were truncated."""
        self.unmap()
        self.active = True
        self.allocated, self.on_disk = 0, -1
        self.load_indexes()
        self.largest_timestamp()

    # Files

    def mark_removed(self) -> None:
        """Its files are renamed or unlinked: a flush that runs meanwhile skips it."""
        self.removed = True

    def create_file(self) -> None:
        """Creates the `.log` file. The first flush, or sealing, creates the index files: most of 10,000 logs have no index entry."""
        self._files.create(self.log_path)
        self.indexes.clear()

    def cut_back(self, size: int, end_offset: int, zeros: bool) -> None:
        """Truncates to the end of the valid batches in recovery: the bytes after it become zeros, or are trimmed by sealing."""
        assert size <= self.size
        end, self.size = self.size, size
        self.cold.cut(size)
        self._hints.clear()
        if size == end:
            return
        self.indexes.truncate_to(end_offset)
        if not self.active:
            self.unmap()
            self._files.truncate(self.log_path, size)
        elif not zeros:
            self.zero(size, end)
        if not zeros:
            self.sync_log()  # `erase` has the reason

    def flush(self) -> bool:
        """Syncs log and indexes. Appends may run meanwhile; the next flush syncs their batches.

        Returns True if the directory must be synced as well, because it has new entries.
        """
        saved = self._save_indexes()
        self.trimmed = False
        allocated = self.allocated
        self.sync_log()
        if self.allocated == allocated:
            self.on_disk = allocated
        names = saved and self.indexes.flush()
        return self.txn_index.flush(self._files) or names

    def unmap(self) -> None:
        super().unmap()
        self.room = 0
        self._hints.clear()
        if self.removed:
            self.indexes.unload()  # a running flush must not write them into the files of a new log of the same name
        elif not self.active and self.indexes.loaded and self._save_indexes():
            self.indexes.unload()

    def close(self, trim: bool) -> None:
        untouched = self._map is None and self._files.size(self.log_path) == self.size
        if self.active and trim and not (untouched and not self.indexes.loaded):
            self.seal()
            self.active = True  # only its files are sealed: the log may be opened again and continue
        self.unmap()

    def file_names(self) -> list[str]:
        return [self._named(suffix) for suffix in SUFFIXES]

    def change_suffix(self, suffix: str) -> None:
        """Renames the files, the log last: if a `.log.swap` exists, all of its indexes do, too."""
        self.unmap()
        old = {kind: self._named(kind) for kind in SUFFIXES}
        self._suffix = suffix
        for kind in reversed(SUFFIXES):
            if kind != TXN_INDEX_SUFFIX or self._files.exists(old[kind]):
                self._files.rename(old[kind], self._named(kind))
        self._name_indexes()

    def relocate(self, directory: str) -> None:
        """The files are in another directory from now on, because theirs was renamed while the segment was unmapped."""
        self.path = segment_path(directory, self.base_offset, "")
        self._name_indexes()

    def _name_indexes(self) -> None:
        self.indexes.offsets.path = self._named(INDEX_SUFFIX)
        self.indexes.times.path = self._named(TIME_INDEX_SUFFIX)
        self.txn_index.path = self._named(TXN_INDEX_SUFFIX)
