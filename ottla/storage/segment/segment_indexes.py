"""The offset index and the time index of a segment: filled batch by batch, loaded on demand, saved by a flush.

A batch gets an entry in both when more than index.interval.bytes were entered since the last one, as in Kafka; the time
index then holds the largest timestamp so far. Only the active segment's are in memory: lookups in others read the files.
This module does not read the log itself.
"""

from __future__ import annotations

from threading import Lock
from typing import NamedTuple

from ottla.storage.files import Files
from ottla.storage.segment.index import RELATIVE_OFFSET_MAX, OffsetIndex, TimeIndex


class TimestampAndOffset(NamedTuple):
    timestamp: int
    offset: int


NO_TIMESTAMP_YET = TimestampAndOffset(-1, -1)


class SegmentIndexes:
    __slots__ = (
        "_files",
        "_lock",
        "_replaced",
        "_since_entry",
        "_unsynced",
        "interval_bytes",
        "largest",
        "loaded",
        "offsets",
        "times",
    )

    def __init__(
        self, files: Files, index_path: str, time_index_path: str, base_offset: int, bytes_max: int, interval_bytes: int
    ) -> None:
        self._files = files
        self.offsets = OffsetIndex(index_path, base_offset, bytes_max)
        self.times = TimeIndex(time_index_path, base_offset, bytes_max)
        self.interval_bytes = interval_bytes
        self.loaded = False
        # The largest max timestamp and the last offset of the first batch that has it; None: not yet computed.
        self.largest: TimestampAndOffset | None = None
        self._since_entry = 0
        self._unsynced = True  # the first flush syncs the files of earlier processes, too
        self._replaced = False  # True if a file was replaced, so that the directory must be synced too
        # Flushes write the files on another thread, and so do rolls and truncations on the log's own.
        self._lock = Lock()

    def update_config(self, interval_bytes: int) -> None:
        self.interval_bytes = interval_bytes

    def found_largest(self, largest: TimestampAndOffset | None) -> None:
        """The caller has computed the largest timestamp; None: the log is damaged, and it is unknown."""
        self.largest = largest

    @property
    def full(self) -> bool:
        return self.loaded and (self.offsets.full or self.times.full)

    def add(self, position: int, size: int, last_offset: int, max_timestamp: int) -> bool:
        """Adds a batch; returns True if the indexes are full now. They must be loaded, and `largest` must be known."""
        if max_timestamp > self.largest[0]:  # type: ignore[index]  # it is known
            self.largest = TimestampAndOffset(max_timestamp, last_offset)
        full = False
        if self._since_entry > self.interval_bytes:
            self.offsets.append(last_offset, position)
            self.times.maybe_append(*self.largest)  # type: ignore[misc]  # it is known
            self._since_entry = 0
            full = self.offsets.full or self.times.full
        self._since_entry += size
        return full

    def entry_for(self, offset: int) -> tuple[int, int]:
        """Returns (last offset, position) of an indexed batch at or before the one that contains `offset`; (-1, 0) if there is none.

        Raises:
            CorruptFile: the file must be rebuilt from the log. The caller raises it if the entry does not match the log.
        """
        return self.offsets.floor(offset) if self.loaded else self.offsets.floor_in_file(self._files, offset)

    def entry_at(self, position: int, log_bytes: int) -> tuple[int, int]:
        """Returns (last offset, position) of the last indexed batch that starts at or before `position`."""
        if self.loaded:
            return self.offsets.floor_position(position)
        return self.offsets.floor_position_in_file(self._files, position, log_bytes)

    def time_entry(self, timestamp: int) -> tuple[int, int]:
        """Returns (timestamp, offset): no batch that ends before the offset has a later timestamp; (-1, base offset) if there is none."""
        return self.times.floor(timestamp) if self.loaded else self.times.floor_in_file(self._files, timestamp)

    def read(self, log_bytes: int) -> None:
        """Reads the files.

        Raises:
            CorruptFile: one of them must be rebuilt from the log.
        """
        self.offsets.load(self._files, log_bytes)
        self.times.load(self._files, self.offsets.base_offset + RELATIVE_OFFSET_MAX)
        self.loaded = True

    def clear(self) -> None:
        """Empties the indexes, to be rebuilt. The next `save` writes the files."""
        self.offsets.clear()
        self.times.clear()
        self.loaded = True
        self.largest = NO_TIMESTAMP_YET
        self._since_entry = 0

    def resume_at(self, position: int) -> None:
        """Restores the state after the entry for the batch at `position` was added."""
        self.offsets.truncate_to_position(position + 1)
        self.times.truncate_to(self.offsets.last_offset + 1 if position else self.offsets.base_offset)
        timestamp, offset = self.times.last()
        self.largest = TimestampAndOffset(timestamp, offset) if timestamp >= 0 else NO_TIMESTAMP_YET
        self._since_entry = 0

    def truncate_to(self, offset: int) -> None:
        """Drops entries of batches that end at or after `offset`."""
        with self._lock:
            self.offsets.truncate_to(offset)
            self.times.truncate_to(offset)
        self.largest = None
        self._since_entry = 0

    def complete(self) -> None:
        """Completes the indexes of a sealed segment: the time index ends with the largest timestamp."""
        if self.largest is not None and self.largest.timestamp >= 0:
            self.times.maybe_append(*self.largest)

    def last_timestamp_on_disk(self) -> TimestampAndOffset | None:
        """Returns the last time index entry in the file: for a sealed segment, its largest timestamp."""
        entry = self.times.last_in_file(self._files)
        return TimestampAndOffset(*entry) if entry is not None else None

    def save(self) -> None:
        with self._lock:
            if self.loaded:
                self._replaced |= self.offsets.is_new or self.times.is_new
                saved = self.offsets.save(self._files)
                saved |= self.times.save(self._files)
                self._unsynced |= saved

    def flush(self) -> bool:
        """Syncs the files; returns True if the directory must be synced as well."""
        replaced, self._replaced = self._replaced, False
        if self._unsynced:
            self._unsynced = False
            self._files.sync_file(self.offsets.path)
            self._files.sync_file(self.times.path)
        return replaced

    def unload(self) -> None:
        """Drops the indexes from memory."""
        with self._lock:
            self.offsets.clear()
            self.times.clear()
            self.loaded = False
