"""One segment of a log: `<base offset, 20 digits>.log` with its indexes. Finds batches, appends, truncates, seals, flushes.

The last segment of a log is active: mapped writable and allocated ahead, the bytes beyond its batches are zeros. All
others are sealed: exactly as long as their batches, and mapped on the first read. Files are as Apache Kafka writes
them: an index entry is added if more than index.interval.bytes were written since the last one, and maps the last
offset of a batch to the batch's start.

Appended batches are not validated here, and producer state and leader epochs are kept elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from ottla.protocol.primitives import Buffer
from ottla.protocol.records.batch import (
    BASE_OFFSET,
    HEADER_BYTES,
    LAST_OFFSET_DELTA,
    LENGTH,
    LOG_OVERHEAD_BYTES,
    MAX_TIMESTAMP,
    MAX_TIMESTAMP_AT,
    Header,
)
from ottla.storage.log_config import LogConfig
from ottla.storage.segment.segment_file import SUFFIXES, TXN_INDEX_SUFFIX, WRITE_BYTES_MIN, SegmentFile, segment_path
from ottla.storage.segment.segment_indexes import INT64, SegmentIndexes
from ottla.storage.segment.txn_index import TransactionIndex
from ottla.storage.segment.walk import WALK, DamagedLog

HINTS_MAX = 64
OFFSET_LENGTH_EPOCH = Struct(">qii")
_STAMPED = OFFSET_LENGTH_EPOCH.size


class Segment:
    __slots__ = (
        "_first_timestamp",
        "base_offset",
        "created_ms",
        "file",
        "hints",
        "indexes",
        "removed",
        "trimmed",
        "txn_index",
    )

    def __init__(self, file: SegmentFile, now_ms: int = 0) -> None:
        self.file = file
        self.base_offset = file.base_offset
        self.created_ms = now_ms
        self.indexes = SegmentIndexes(file)
        self.txn_index = TransactionIndex(file.named(TXN_INDEX_SUFFIX))
        self.trimmed = False  # True if it was trimmed since the last flush
        self.removed = False  # see `mark_removed`
        self._first_timestamp: int | None = None
        #: The positions at which readers go on: those of the batches that contain these offsets, or will (`remember`).
        self.hints: dict[int, int] = {}

    # Finding

    def position_of(self, offset: int) -> int | None:
        """Return the position of the first batch that ends at or after `offset`; None if all batches end before it.

        Raises:
            DamagedLog, StorageFailure
        """
        hint = self.hints.get(offset)
        if hint is not None:
            return hint
        file = self.file
        if not file.size:
            return None
        try:
            for position, _, _, last in file.walk(self.indexes.position_for(offset)):
                if last >= offset:
                    if offset >= self.base_offset:  # else its place is in an earlier segment
                        self.remember(offset, position)
                    return position
        except DamagedLog as damage:
            raise file.report(damage) from None
        return None

    def end_of_slice(self, start: int, limit: int, bytes_max: int, min_one: bool, in_memory: int) -> int:
        """Return the end of the complete batches from `start` on that fit into `bytes_max` and end before `limit`.

        Bytes from `start` up to `in_memory` are known to be in memory.
        """
        wanted = start + bytes_max
        if wanted >= limit:
            return limit
        file = self.file
        if start >= file.in_memory_from:
            # The same walk as below, without the generator and its checks of an earlier process's bytes: it halves the time of a read.
            unpack, buffer = WALK.unpack_from, file.view()
            position = max(start, self.indexes.offsets.floor_position(wanted)[1])
            walked_to = min(wanted + HEADER_BYTES, file.size)
            if walked_to > in_memory:
                file.reach(position, walked_to)
            while (following := position + HEADER_BYTES) <= limit:
                after: int = position + unpack(buffer, position)[1] + LOG_OVERHEAD_BYTES
                if not following <= after <= limit:
                    break  # a damaged page was read back: the walk below raises with its position
                if after > wanted:
                    return after if position == start and min_one else position
                position = after
        try:
            for position, after, _, _ in file.walk(max(start, self.indexes.position_at(wanted))):
                if after > wanted:
                    return after if position == start and min_one else position
        except DamagedLog as damage:
            raise file.report(damage) from None
        return limit

    def from_offset(self, offset: int, headers_only: bool = False) -> Iterator[tuple[int, int, int, int]]:
        """Walk from the batch that contains `offset`, over checked batches only. Appends may run meanwhile.

        With `headers_only` the caller must `check` a batch before it reads more than the header.

        Raises:
            DamagedLog, StorageFailure
        """
        file = self.file
        position = self.position_of(offset)
        while position is not None and position < file.size:
            try:
                for batch in file.walk(position):
                    start, end = batch[:2]
                    if not headers_only:
                        file.check(start, end)
                    yield batch
                    position = end
            except DamagedLog as damage:
                if damage.position < file.size:
                    raise file.report(damage) from None
                return  # the rest was truncated meanwhile

    def remember(self, offset: int, position: int) -> None:
        """Cache that the batch which contains `offset`, one of this segment's, starts at `position`: a reader goes on there."""
        if len(self.hints) >= HINTS_MAX:
            self.hints.clear()
        self.hints[offset] = position

    def end_before(self, offset: int) -> int:
        """Return the offset after the last batch that ends before `offset`; the base offset if there is none."""
        end = self.base_offset
        if self.file.size:
            for _, _, _, last in self.file.walk(self.indexes.position_for(offset - 1)):
                if last >= offset:
                    break
                end = last + 1
        return end

    def first_timestamp(self) -> int:
        """Return the max timestamp of the first batch, or -1 if the segment is empty."""
        if self._first_timestamp is None:
            if self.file.size < HEADER_BYTES:
                return -1
            self.file.reach(0)
            self._first_timestamp = INT64.unpack_from(self.file.view(), MAX_TIMESTAMP_AT)[0]
        return self._first_timestamp

    # Appending

    def append(
        self,
        records: Buffer,
        size: int,
        base_offset: int,
        last_offset: int,
        leader_epoch: int,
        max_timestamp: int,
    ) -> int:
        """Copy one batch of `size` bytes to the end, set its offset and epoch, and return its position. The caller has made room."""
        file = self.file
        position = file.size
        end = position + size
        mapped = file.mapped
        assert mapped is not None
        if size >= WRITE_BYTES_MIN and not memoryview(records).readonly:
            # The fields are set in the receive buffer, which has no other reader.
            OFFSET_LENGTH_EPOCH.pack_into(records, 0, base_offset, size - LOG_OVERHEAD_BYTES, leader_epoch)
            mapped.write(position, records)
        else:
            buffer = mapped.buffer
            # The length is written last: if the process is killed before, the length is 0 and recovery ends the log there.
            buffer[position + _STAMPED : end] = records[_STAMPED:]
            OFFSET_LENGTH_EPOCH.pack_into(buffer, position, base_offset, size - LOG_OVERHEAD_BYTES, leader_epoch)
        file.size = end
        if not position:
            self._first_timestamp = max_timestamp
        indexes = self.indexes
        if (position > indexes.entry_from or max_timestamp > indexes.largest[0]) and indexes.add(
            position, last_offset, max_timestamp
        ):
            file.close_room()  # the next append calls make_room, and the log rolls
        return position

    def append_all(self, records: Buffer, size: int, headers: list[Header], max_timestamp: int) -> None:
        """Copy several batches that keep their offsets and epochs (replication, raft). The caller has made room."""
        file = self.file
        position = file.size
        end = position + size
        mapped = file.mapped
        assert mapped is not None
        if size >= WRITE_BYTES_MIN:
            mapped.write(position, records)
        else:
            mapped.buffer[position:end] = records
        file.size = end
        if not position:
            self._first_timestamp = headers[0][MAX_TIMESTAMP]
        indexes = self.indexes
        if end <= indexes.entry_from and max_timestamp <= indexes.largest[0]:
            return
        for header in headers:
            if indexes.add(position, header[BASE_OFFSET] + header[LAST_OFFSET_DELTA], header[MAX_TIMESTAMP]):
                file.close_room()
            position += header[LENGTH] + LOG_OVERHEAD_BYTES
        assert position == file.size

    def make_room(self, size: int) -> None:
        """Make room for `size` bytes in the file, and load the indexes.

        Raises:
            DiskFull: the disk has no space; nothing has changed.
        """
        assert self.file.active
        self.indexes.load()
        self.indexes.largest_timestamp()
        self.file.make_room(size)

    def update_config(self, config: LogConfig) -> None:
        self.file.update_config(config)
        self.indexes.update_config(config.index_interval_bytes)

    # Changing the end

    def truncate_to(self, offset: int) -> int:
        """Remove the batches that end at or after `offset` in memory; return the new log end offset.

        If `offset` lies inside a batch, that is the batch's base offset. The file is not written: `erase` does that.
        """
        assert self.file.active
        position = self.position_of(offset)
        self.indexes.load()
        self.indexes.truncate_to(offset)
        if position is None or position == self.file.size:
            return offset
        end_offset = min(offset, self.file.offset_at(position))
        self.file.cut(position)
        self.hints.clear()
        self._first_timestamp = None if position else -1
        return end_offset

    def erase(self, end: int, end_offset: int) -> None:
        """Erase the truncated batches in the files and sync.

        The bytes up to `end` become zeros but the file keeps its length: a reader's view must never lose its pages.
        The sync is for later appends. If a crash lost some of these zeros, and some of the batches written over them, then
        old and new batches of equal size would look like one log.
        """
        self.file.zero(self.file.size, end)
        self.txn_index.truncate_to(self.file.files, end_offset)
        self.flush()

    def seal(self, indexes_must_be_saved: bool = True) -> None:
        """Seal the segment against appends: the files are trimmed to their contents and the indexes completed.

        Raises:
            DiskFull: the disk has no room for the indexes, unless they may stay in memory.
        """
        assert self.file.active
        self.indexes.load()
        self.indexes.largest_timestamp()
        self.indexes.complete()
        if indexes_must_be_saved:
            self.indexes.save()
        self.file.trim()
        if self.indexes.save_or_keep():
            self.indexes.unload()
        self.trimmed = True
        self.file.seal()

    def seal_again(self) -> None:
        """Seal a sealed segment whose batches recovery has cut back."""
        self.file.stay_active()
        self.seal(indexes_must_be_saved=False)

    def reopen(self) -> None:
        """Make a sealed segment active again, after the segments after it were truncated."""
        self.unmap()
        self.file.reopen()
        self.indexes.load()
        self.indexes.largest_timestamp()

    # Files

    def mark_removed(self) -> None:
        """Mark the segment as removed, because its files are renamed or unlinked: a flush that runs meanwhile skips it."""
        self.removed = True

    def create_file(self) -> None:
        """Create the `.log` file. The first flush, or sealing, creates the index files: most of 10,000 logs have no index entry."""
        self.file.files.create(self.file.log_path)
        self.indexes.clear()

    def cut_back(self, size: int, end_offset: int, zeros: bool) -> None:
        """Truncate to the end of the valid batches in recovery: the bytes after it become zeros, or are trimmed by sealing."""
        file = self.file
        assert size <= file.size
        end = file.size
        file.cut(size)
        self.hints.clear()
        if size == end:
            return
        self.indexes.truncate_to(end_offset)
        if not file.active:
            self.unmap()
            file.files.truncate(file.log_path, size)
        elif not zeros:
            file.zero(size, end)
        if not zeros:
            file.sync()  # `erase` has the reason

    def flush(self) -> bool:
        """Sync log and indexes. Appends may run meanwhile; the next flush syncs their batches.

        Return True if the directory must be synced as well, because it has new entries.
        """
        saved = self.indexes.save_or_keep()
        self.trimmed = False
        self.file.flush()
        names = saved and self.indexes.flush()
        return self.txn_index.flush(self.file.files) or names

    def unmap(self) -> None:
        """Close the mapping, which ends with its last view. The next access opens it again."""
        self.file.unmap()
        self.hints.clear()
        if self.removed:
            self.indexes.unload()  # a running flush must not write them into the files of a new log of the same name
        elif not self.file.active and self.indexes.loaded and self.indexes.save_or_keep():
            self.indexes.unload()

    def close(self, trim: bool) -> None:
        file = self.file
        untouched = file.mapped is None and file.files.size(file.log_path) == file.size
        if file.active and trim and not (untouched and not self.indexes.loaded):
            self.seal()
            file.stay_active()  # only its files are sealed: the log may be opened again and continue
        self.unmap()

    def change_suffix(self, suffix: str) -> None:
        """Rename the files, the log last: if a `.log.swap` exists, all of its indexes do, too."""
        self.unmap()
        file = self.file
        old = {kind: file.named(kind) for kind in SUFFIXES}
        file.rename(file.path, suffix)
        for kind in reversed(SUFFIXES):
            if kind != TXN_INDEX_SUFFIX or file.files.exists(old[kind]):
                file.files.rename(old[kind], file.named(kind))
        self._name_indexes()

    def relocate(self, directory: str) -> None:
        """The files are in another directory from now on, because theirs was renamed while the segment was unmapped."""
        self.file.rename(segment_path(directory, self.base_offset, ""), self.file.suffix)
        self._name_indexes()

    def _name_indexes(self) -> None:
        self.indexes.rename()
        self.txn_index.rename(self.file.named(TXN_INDEX_SUFFIX))
