"""The offset index and the time index of a segment: filled batch by batch, loaded on demand, saved by a flush.

A batch gets an entry in both when more than index.interval.bytes were entered since the last one, as in Kafka; the time
index then holds the largest timestamp so far. Only the active segment's are in memory: lookups in others read the files.
A crash or a disk may have damaged these, so each entry is checked against the log before it is used. Indexes that cannot be read,
or do not match the log, are rebuilt from it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from struct import Struct
from threading import Lock
from typing import NamedTuple

from ottla.protocol.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC, MAX_TIMESTAMP_AT
from ottla.storage.errors import CorruptFile, DiskFull
from ottla.storage.segment.index import RELATIVE_OFFSET_MAX, OffsetIndex, TimeIndex
from ottla.storage.segment.segment_file import INDEX_SUFFIX, TIME_INDEX_SUFFIX, SegmentFile
from ottla.storage.segment.walk import WALK, DamagedLog

logger = logging.getLogger(__name__)

INT64 = Struct(">q")


class TimestampAndOffset(NamedTuple):
    timestamp: int
    offset: int


#: A position before each position of a file.
ANYWHERE = -1
NO_TIMESTAMP_YET = TimestampAndOffset(-1, -1)
#: The value was not searched yet. No batch is above it, so that it stays until then.
UNKNOWN = TimestampAndOffset(2**63, -1)


class SegmentIndexes:
    __slots__ = (
        "_file",
        "_lock",
        "_replaced",
        "_unsynced",
        "entry_from",
        "interval_bytes",
        "largest",
        "loaded",
        "offsets",
        "times",
    )

    def __init__(self, file: SegmentFile) -> None:
        self._file = file
        bytes_max = file.config.segment_index_bytes
        self.offsets = OffsetIndex(file.named(INDEX_SUFFIX), file.base_offset, bytes_max)
        self.times = TimeIndex(file.named(TIME_INDEX_SUFFIX), file.base_offset, bytes_max)
        self.interval_bytes = file.config.index_interval_bytes
        self.loaded = False
        # The largest max timestamp and the last offset of the first batch that has it.
        self.largest = UNKNOWN
        # A batch at a position beyond this one gets an entry; ANYWHERE: the interval begins with the next batch.
        self.entry_from = ANYWHERE
        self._unsynced = True  # the first flush syncs the files of earlier processes, too
        self._replaced = False  # True if a file was replaced, so that the directory must be synced too
        # Flushes write the files on another thread, and so do rolls and truncations on the log's own.
        self._lock = Lock()

    def update_config(self, interval_bytes: int) -> None:
        if self.entry_from != ANYWHERE:
            self.entry_from += interval_bytes - self.interval_bytes
        self.interval_bytes = interval_bytes

    def rename(self) -> None:
        """The segment's files have other names from now on."""
        self.offsets.rename(self._file.named(INDEX_SUFFIX))
        self.times.rename(self._file.named(TIME_INDEX_SUFFIX))

    @property
    def full(self) -> bool:
        return self.loaded and (self.offsets.full or self.times.full)

    def add(self, position: int, last_offset: int, max_timestamp: int) -> bool:
        """Add a batch; return True if the indexes are full now. They must be loaded, and `largest` must be known.

        A batch changes nothing that lies up to `entry_from`, and whose timestamp is not above the largest.
        """
        if max_timestamp > self.largest[0]:
            self.largest = tuple.__new__(TimestampAndOffset, (max_timestamp, last_offset))
        if position <= self.entry_from:
            return False
        if self.entry_from == ANYWHERE:
            self.entry_from = position + self.interval_bytes
            return False
        self.offsets.append(last_offset, position)
        self.times.maybe_append(*self.largest)
        self.entry_from = position + self.interval_bytes
        return self.offsets.full or self.times.full

    # Finding

    def position_for(self, offset: int) -> int:
        """Return the position of an indexed batch at or before the one that contains `offset`; 0 if there is none."""
        return self._checked(self._entry_for, offset)

    def position_at(self, position: int) -> int:
        """Return the position of the last indexed batch that starts at or before `position`; 0 if there is none."""
        return self._checked(self._entry_at, position)

    def _entry_for(self, offset: int) -> tuple[int, int]:
        return self.offsets.floor(offset) if self.loaded else self.offsets.floor_in_file(self._file.files, offset)

    def _entry_at(self, position: int) -> tuple[int, int]:
        if self.loaded:
            return self.offsets.floor_position(position)
        return self.offsets.floor_position_in_file(self._file.files, position, self._file.size)

    def _checked(self, find: Callable[[int], tuple[int, int]], key: int) -> int:
        """Return the position in an entry of the offset index after a check that a batch begins there."""
        for attempt in (1, 2):
            try:
                last, position = find(key)
                if position >= self._file.in_memory_from and self.loaded:
                    return position  # an entry of this process
                if not position or attempt == 2 or self._fits(position, last):
                    return position
                error = CorruptFile(self.offsets.path, f"its entry for byte {position} does not match the log")
            except CorruptFile as damage:
                error = damage
            self._rebuild(error)
        return 0

    def _fits(self, position: int, last_offset: int) -> bool:
        """Return True if a batch begins at `position` and ends at or before `last_offset`: one entry of Kafka's may cover several batches."""
        file = self._file
        if position + HEADER_BYTES > file.size:
            return False
        file.reach(position)
        base, length, magic, delta = WALK.unpack_from(file.view(), position)
        following = position + length + LOG_OVERHEAD_BYTES
        in_order: bool = file.base_offset <= base <= base + delta <= last_offset
        return in_order and magic == MAGIC and position + HEADER_BYTES <= following <= file.size

    def offset_before(self, timestamp: int) -> int:
        """Return an offset at or before the first record whose timestamp is at least `timestamp`.

        Raises:
            DamagedLog, StorageFailure
        """
        for attempt in (1, 2):
            try:
                found, offset = (
                    self.times.floor(timestamp)
                    if self.loaded
                    else self.times.floor_in_file(self._file.files, timestamp)
                )
                if found < 0 or attempt == 2 or self._has_timestamp(found, offset):
                    return offset
                error = CorruptFile(self.times.path, "an entry does not match the log")
            except CorruptFile as damage:
                error = damage
            self._rebuild(error)
        return self._file.base_offset

    def largest_timestamp(self) -> TimestampAndOffset:
        """Return the largest max timestamp of all batches, and the last offset of the first batch that has it."""
        if self.largest is UNKNOWN:
            largest = None
            if not self._file.active and not self.loaded:
                # The last entry of a sealed segment has its largest timestamp.
                largest = self.times.last_in_file(self._file.files)
            if largest is not None and self._has_timestamp(*largest):
                self.largest = TimestampAndOffset(*largest)
            else:
                self.load()
                largest = self._find_largest()
                if not self._file.active:
                    self.unload()
                self.largest = largest
        return self.largest

    def _find_largest(self) -> TimestampAndOffset:
        """Walk from the last time index entry on. A sealed segment's last entry is the result already."""
        timestamp, offset = self.times.last()
        if timestamp >= 0 and not self._has_timestamp(timestamp, offset):
            self._rebuild(CorruptFile(self.times.path, "its last entry does not match the log"))
            timestamp, offset = self.times.last()
        largest = TimestampAndOffset(timestamp, offset if timestamp >= 0 else -1)
        for position, _, _, last in self._file.walk(self.position_for(offset)):
            latest = INT64.unpack_from(self._file.view(), position + MAX_TIMESTAMP_AT)[0]
            if latest > largest.timestamp:
                largest = TimestampAndOffset(latest, last)
        return largest

    def _has_timestamp(self, timestamp: int, offset: int) -> bool:
        """Return True if the batch that contains `offset` has this max timestamp."""
        file = self._file
        try:
            for position, _, _, last in file.walk(self.position_for(offset)) if file.size else ():
                if last >= offset:
                    found: int = INT64.unpack_from(file.view(), position + MAX_TIMESTAMP_AT)[0]
                    return found == timestamp
        except DamagedLog as damage:
            raise file.report(damage) from None
        return False

    # Loading, rebuilding

    def read(self) -> None:
        """Read the files.

        Raises:
            CorruptFile: one of them must be rebuilt from the log.
        """
        self.offsets.load(self._file.files, self._file.size)
        self.times.load(self._file.files, self._file.base_offset + RELATIVE_OFFSET_MAX)
        self.loaded = True

    def load(self) -> None:
        """Read the files unless they are in memory; rebuild them if they are damaged."""
        if not self.loaded:
            try:
                self.read()
            except CorruptFile as error:
                self._rebuild(error)
                if not self.loaded:
                    self.read()

    def _rebuild(self, error: CorruptFile) -> None:
        """Rebuild the indexes from the log. If the log is damaged too, they end at the damage."""
        logger.warning("%s: rebuilt from the log", error)
        self.clear()
        file = self._file
        try:
            for position, _, _, last in file.walk(0):
                timestamp = INT64.unpack_from(file.view(), position + MAX_TIMESTAMP_AT)[0]
                self.add(position, last, timestamp)
        except DamagedLog as damage:
            file.report(damage)
            # The largest timestamp of a part would let retention remove the segment too early.
            self.largest = UNKNOWN
        if file.active:
            return
        self.complete()
        if self.sync_rebuilt():  # no later flush syncs a sealed segment
            self.unload()

    def sync_rebuilt(self) -> bool:
        """Sync rebuilt indexes; they are on the disk if it returns True. A partly written time index would count as complete after a crash."""
        saved = self.save_or_keep()
        if saved and self.flush():
            self._file.files.sync_dir(self._file.path.rpartition("/")[0])
        return saved

    def clear(self) -> None:
        """Empty the indexes, to be rebuilt. The next `save` writes the files."""
        self.offsets.clear()
        self.times.clear()
        self.loaded = True
        self.largest = NO_TIMESTAMP_YET
        self.entry_from = ANYWHERE

    def resume_at(self, position: int) -> None:
        """Restore the state after the entry for the batch at `position` was added."""
        self.offsets.truncate_to_position(position + 1)
        self.times.truncate_to(self.offsets.last_offset + 1 if position else self.offsets.base_offset)
        timestamp, offset = self.times.last()
        self.largest = TimestampAndOffset(timestamp, offset) if timestamp >= 0 else NO_TIMESTAMP_YET
        self.entry_from = ANYWHERE

    def truncate_to(self, offset: int) -> None:
        """Drop entries of batches that end at or after `offset`."""
        with self._lock:
            self.offsets.truncate_to(offset)
            self.times.truncate_to(offset)
        self.largest = UNKNOWN
        self.entry_from = ANYWHERE

    def complete(self) -> None:
        """Complete the indexes of a sealed segment: the time index ends with the largest timestamp."""
        if self.largest is not UNKNOWN and self.largest.timestamp >= 0:
            self.times.maybe_append(*self.largest)

    # Saving

    def save(self) -> None:
        with self._lock:
            if self.loaded:
                self._replaced |= self.offsets.is_new or self.times.is_new
                saved = self.offsets.save(self._file.files)
                saved |= self.times.save(self._file.files)
                self._unsynced |= saved

    def save_or_keep(self) -> bool:
        """Save the indexes. Return False if the disk is full: the new entries then stay in memory only."""
        try:
            self.save()
        except DiskFull as failure:
            # The batches have their room already. Only the tail of an index is missing on disk, and a restart rebuilds it.
            logger.warning("%s: new index entries stay in memory only: %s", self._file.path, failure)
            return False
        return True

    def flush(self) -> bool:
        """Sync the files; return True if the directory must be synced as well."""
        replaced, self._replaced = self._replaced, False
        if self._unsynced:
            self._unsynced = False
            self._file.files.sync_file(self.offsets.path)
            self._file.files.sync_file(self.times.path)
        return replaced

    def unload(self) -> None:
        """Drop the indexes from memory."""
        with self._lock:
            self.offsets.clear()
            self.times.clear()
            self.loaded = False
