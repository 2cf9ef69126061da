"""A segment whose batches are found through its indexes: by offset, by position in the file, by timestamp.

A crash or a disk may have damaged an index file, so each entry is checked against the log before it is used. Indexes that
cannot be read, or do not match the log, are rebuilt from it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from struct import Struct

from ottla.protocol.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC, MAX_TIMESTAMP_AT
from ottla.storage.config import LogConfig
from ottla.storage.errors import CorruptFile, DiskFull
from ottla.storage.files import Files
from ottla.storage.segment.mappings import Mappings
from ottla.storage.segment.segment_file import INDEX_SUFFIX, TIME_INDEX_SUFFIX, SegmentFile
from ottla.storage.segment.segment_indexes import SegmentIndexes, TimestampAndOffset
from ottla.storage.segment.walk import WALK, DamagedLog

logger = logging.getLogger(__name__)

HINTS_MAX = 64
INT64 = Struct(">q")
OFFSET_MAX = 2**63 - 1


class IndexedSegment(SegmentFile):
    """The base class of `storage.segment.segment.Segment`; its own base is `SegmentFile`."""

    __slots__ = ("_first_timestamp", "_hints", "indexes")

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
        super().__init__(files, mappings, directory, base_offset, config, size=size, active=active, suffix=suffix)
        self.indexes = SegmentIndexes(
            files,
            self._named(INDEX_SUFFIX),
            self._named(TIME_INDEX_SUFFIX),
            base_offset,
            config.segment_index_bytes,
            config.index_interval_bytes,
        )
        self._first_timestamp: int | None = None
        self._hints: dict[int, int] = {}

    # Finding

    def position_of(self, offset: int) -> int | None:
        """Returns the position of the first batch that ends at or after `offset`; None if all batches end before it.

        Raises:
            DamagedLog, StorageFailure
        """
        hint = self._hints.get(offset)
        if hint is not None:
            return hint
        if not self.size:
            return None
        try:
            for position, _, _, last in self.walk(self._indexed(self.indexes.entry_for, offset)):
                if last >= offset:
                    return position
        except DamagedLog as damage:
            raise self._report(damage) from None
        return None

    def end_of_slice(self, start: int, limit: int, bytes_max: int, min_one: bool) -> int:
        """Returns the end of the complete batches from `start` on that fit into `bytes_max` and end before `limit`."""
        wanted = start + bytes_max
        if wanted >= limit:
            return limit
        if start >= self.in_memory_from:
            # The same walk as below, without the generator and its checks of an earlier process's bytes: it halves the time of a read.
            unpack, buffer = WALK.unpack_from, self.view()
            position = max(start, self.indexes.offsets.floor_position(wanted)[1])
            if position < self.fresh_from:
                self.reach(position, min(wanted + HEADER_BYTES, self.size))
            while (following := position + HEADER_BYTES) <= limit:
                after: int = position + unpack(buffer, position)[1] + LOG_OVERHEAD_BYTES
                if not following <= after <= limit:
                    break  # a damaged page was read back: the walk below raises with its position
                if after > wanted:
                    return after if position == start and min_one else position
                position = after
        try:
            for position, after, _, _ in self.walk(max(start, self._indexed(self.indexes.entry_at, wanted, self.size))):
                if after > wanted:
                    return after if position == start and min_one else position
        except DamagedLog as damage:
            raise self._report(damage) from None
        return limit

    def from_offset(self, offset: int, headers_only: bool = False) -> Iterator[tuple[int, int, int, int]]:
        """Walks from the batch that contains `offset`, over checked batches only. Appends may run meanwhile.

        With `headers_only` the caller must `check` a batch before it reads more than the header.

        Raises:
            DamagedLog, StorageFailure
        """
        position = self.position_of(offset)
        while position is not None and position < self.size:
            try:
                for batch in self.walk(position):
                    start, end = batch[:2]
                    if not headers_only:
                        self.check(start, end)
                    yield batch
                    position = end
            except DamagedLog as damage:
                if damage.position < self.size:
                    raise self._report(damage) from None
                return  # the rest was truncated meanwhile

    def remember(self, offset: int, position: int) -> None:
        """Caches that the batch at `offset` starts at `position`, for a reader's next read."""
        if len(self._hints) >= HINTS_MAX:
            self._hints.clear()
        self._hints[offset] = position

    def last_offset(self) -> int | None:
        """Returns the last offset in the segment, or None if it is empty."""
        last = None
        if self.size:
            for batch in self.walk(self._indexed(self.indexes.entry_for, OFFSET_MAX)):
                last = batch[3]
        return last

    def end_before(self, offset: int) -> int:
        """Returns the offset after the last batch that ends before `offset`; the base offset if there is none."""
        end = self.base_offset
        if self.size:
            for _, _, _, last in self.walk(self._indexed(self.indexes.entry_for, offset - 1)):
                if last >= offset:
                    break
                end = last + 1
        return end

    def largest_timestamp(self) -> TimestampAndOffset:
        """Returns the largest max timestamp of all batches, and the last offset of the first batch that has it."""
        indexes = self.indexes
        largest = indexes.largest
        if largest is not None:
            return largest
        if not self.active and not indexes.loaded:
            largest = self._largest_on_disk()
        if largest is None:
            self.load_indexes()
            largest = self._find_largest()
            if not self.active:
                indexes.unload()
        indexes.found_largest(largest)
        return largest

    def _largest_on_disk(self) -> TimestampAndOffset | None:
        found = self.indexes.last_timestamp_on_disk()
        return found if found is not None and self._has_timestamp(*found) else None

    def _find_largest(self) -> TimestampAndOffset:
        """Walks from the last time index entry on. A sealed segment's last entry is the result already."""
        timestamp, offset = self.indexes.times.last()
        if timestamp >= 0 and not self._has_timestamp(timestamp, offset):
            self._remake_indexes(CorruptFile(self.indexes.times.path, "its last entry does not match the log"))
            timestamp, offset = self.indexes.times.last()
        largest = TimestampAndOffset(timestamp, offset if timestamp >= 0 else -1)
        for position, _, _, last in self.walk(self._indexed(self.indexes.entry_for, offset)):
            latest = INT64.unpack_from(self.view(), position + MAX_TIMESTAMP_AT)[0]
            if latest > largest.timestamp:
                largest = TimestampAndOffset(latest, last)
        return largest

    def offset_before(self, timestamp: int) -> int:
        """Returns an offset at or before the first record whose timestamp is at least `timestamp`.

        Raises:
            DamagedLog, StorageFailure
        """
        for attempt in (1, 2):
            try:
                found, offset = self.indexes.time_entry(timestamp)
                if found < 0 or attempt == 2 or self._has_timestamp(found, offset):
                    return offset
                error = CorruptFile(self.indexes.times.path, "an entry does not match the log")
            except CorruptFile as damage:
                error = damage
            self._remake_indexes(error)
        return self.base_offset

    def _has_timestamp(self, timestamp: int, offset: int) -> bool:
        position = self.position_of(offset)
        if position is None or position == self.size:
            return False
        found: int = INT64.unpack_from(self.view(), position + MAX_TIMESTAMP_AT)[0]
        return found == timestamp

    def _indexed(self, find: Callable[..., tuple[int, int]], *arguments: int) -> int:
        """Returns the position in an entry of the offset index after a check that a batch begins there."""
        for attempt in (1, 2):
            try:
                last, position = find(*arguments)
                if position >= self.in_memory_from and self.indexes.loaded:
                    return position  # an entry of this process
                if not position or attempt == 2 or self._fits(position, last):
                    return position
                error = CorruptFile(self.indexes.offsets.path, f"its entry for byte {position} does not match the log")
            except CorruptFile as damage:
                error = damage
            self._remake_indexes(error)
        return 0

    def _fits(self, position: int, last_offset: int) -> bool:
        """Returns True if a batch begins at `position` and ends at or before `last_offset`: one entry of Kafka's may cover several batches."""
        if position + HEADER_BYTES > self.size:
            return False
        self.reach(position)
        base, length, magic, delta = WALK.unpack_from(self.view(), position)
        following = position + length + LOG_OVERHEAD_BYTES
        in_order: bool = self.base_offset <= base <= base + delta <= last_offset
        return in_order and magic == MAGIC and position + HEADER_BYTES <= following <= self.size

    def first_timestamp(self) -> int:
        """Returns the max timestamp of the first batch, or -1 if the segment is empty."""
        if self._first_timestamp is None:
            if self.size == 0:
                return -1
            if self.size < HEADER_BYTES:
                return -1
            self.reach(0)
            self._first_timestamp = INT64.unpack_from(self.view(), MAX_TIMESTAMP_AT)[0]
        return self._first_timestamp

    # The indexes

    def load_indexes(self) -> None:
        """Reads the index files unless they are in memory; rebuilds them if they are damaged."""
        if not self.indexes.loaded:
            try:
                self.indexes.read(self.size)
            except CorruptFile as error:
                self._remake_indexes(error)
                if not self.indexes.loaded:
                    self.indexes.read(self.size)

    def _remake_indexes(self, error: CorruptFile) -> None:
        """Rebuilds the indexes from the log. If the log is damaged too, they end at the damage."""
        logger.warning("%s: rebuilt from the log", error)
        self.indexes.clear()
        try:
            for position, following, _, last in self.walk(0):
                timestamp = INT64.unpack_from(self.view(), position + MAX_TIMESTAMP_AT)[0]
                self.indexes.add(position, following - position, last, timestamp)
        except DamagedLog as damage:
            self._report(damage)
            # The largest timestamp of a part would let retention remove the segment too early.
            self.indexes.found_largest(None)
        if self.active:
            return
        self.indexes.complete()
        if self.sync_indexes():  # no later flush syncs a sealed segment
            self.indexes.unload()

    def sync_indexes(self) -> bool:
        """Syncs rebuilt indexes; they are on the disk if it returns True. A partly written time index would count as complete after a crash."""
        saved = self._save_indexes()
        if saved and self.indexes.flush():
            self._files.sync_dir(self.path.rpartition("/")[0])
        return saved

    def _save_indexes(self) -> bool:
        try:
            self.indexes.save()
        except DiskFull as failure:
            # The batches have their room already. Only the tail of an index is missing on disk, and a restart rebuilds it.
            logger.warning("%s: new index entries stay in memory only: %s", self.path, failure)
            return False
        return True
