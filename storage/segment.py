"""One segment of a log: `<base offset, 20 digits>.log` with its indexes. Appends, finds, slices, truncates, seals.

The last segment of a log is active: mapped writable and allocated ahead, the bytes beyond its `size` are zeros. All
others are sealed: exactly as long as their batches and mapped for reading when somebody reads. Files look as Apache
Kafka leaves them: an index entry is added when more than index.interval.bytes were written since the last one, and
points at the start of a batch by that batch's last offset.

This file checks nothing of what it is given to append, and knows nothing of producers or leader epochs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from struct import Struct

from protocol.records.batch import (
    BASE_OFFSET,
    HEADER_BYTES,
    LAST_OFFSET_DELTA,
    LENGTH,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAX_TIMESTAMP,
    MAX_TIMESTAMP_AT,
    Header,
)
from storage.config import LogConfig
from storage.errors import CorruptFile, DiskFull
from storage.files import Files
from storage.mappings import Mappings
from storage.segment_file import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SUFFIXES,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    SegmentFile,
    segment_path,
)
from storage.segment_indexes import SegmentIndexes, TimestampAndOffset
from storage.txn_index import TransactionIndex
from storage.walk import WALK, DamagedLog

logger = logging.getLogger(__name__)

__all__ = [
    "CLEANED_SUFFIX",
    "DELETED_SUFFIX",
    "INDEX_SUFFIX",
    "LOG_SUFFIX",
    "SWAP_SUFFIX",
    "TIME_INDEX_SUFFIX",
    "TXN_INDEX_SUFFIX",
    "Segment",
    "segment_path",
]

# Allocation ahead of the data: a small partition stays small, a busy one is extended rarely (fallocate takes 10 us).
ALLOCATE_BYTES_MIN = 16 << 10
ALLOCATE_BYTES_MAX = 16 << 20
# Only a segment that has taken this much since it was opened is worth prefaulting (0.1-0.5 ms per MB of this thread).
BUSY_BYTES = 256 << 10
PREFAULT_BYTES = 1 << 20
# From here on a system call costs less than the page faults of a copy into fresh mapped pages.
WRITE_BYTES_MIN = 8 << 10
HINTS_MAX = 64
OFFSET_LENGTH_EPOCH = Struct(">qii")
_STAMPED = OFFSET_LENGTH_EPOCH.size
INT64 = Struct(">q")
OFFSET_MAX = 2**63 - 1


class Segment(SegmentFile):
    __slots__ = (
        "_first_timestamp",
        "_hints",
        "allocated",
        "created_ms",
        "indexes",
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
        self.indexes = SegmentIndexes(
            files,
            self._named(INDEX_SUFFIX),
            self._named(TIME_INDEX_SUFFIX),
            base_offset,
            config.segment_index_bytes,
            config.index_interval_bytes,
        )
        self.txn_index = TransactionIndex(self._named(TXN_INDEX_SUFFIX))
        self.trimmed = False  # since it was last flushed
        self.removed = False  # its files are renamed or gone: a flush that runs meanwhile passes it over
        # `room`: up to this position an append may write at once; 0 sends it through make_room.
        self.room = 0
        # How long the file of the active segment is, and was when it was last synced: it grows ahead of the batches.
        self.allocated, self.on_disk = size, -1
        self._first_timestamp: int | None = None
        self._hints: dict[int, int] = {}

    # Appending

    def append(
        self,
        records: memoryview,
        base_offset: int,
        last_offset: int,
        leader_epoch: int,
        max_timestamp: int,
    ) -> int:
        """Copies one batch to the end with its offset and epoch set, and returns its position. Room has been made."""
        position = self.size
        size = len(records)
        end = position + size
        assert self._map is not None
        if size >= WRITE_BYTES_MIN and not records.readonly:
            # Stamped where it was received: nobody else reads it there.
            OFFSET_LENGTH_EPOCH.pack_into(records, 0, base_offset, size - LOG_OVERHEAD_BYTES, leader_epoch)
            self._map.write(position, records)
        else:
            buffer = self._map.buffer
            # The length comes last: a process killed in between leaves a length of 0, where recovery ends the log.
            buffer[position + _STAMPED : end] = records[_STAMPED:]
            OFFSET_LENGTH_EPOCH.pack_into(buffer, position, base_offset, size - LOG_OVERHEAD_BYTES, leader_epoch)
        self.size = end
        if position == 0:
            self._first_timestamp = max_timestamp
        if self.indexes.add(position, size, last_offset, max_timestamp):
            self.room = 0  # make_room is asked next, and the log rolls
        return position

    def append_all(self, records: memoryview, headers: list[Header]) -> None:
        """Copies several batches that keep their offsets and epochs: replication and raft. Room has been made."""
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
        """Lets `append` write `size` bytes: maps, allocates and prefaults as needed.

        Raises:
            DiskFull: there is no space; nothing has changed.
        """
        assert self.active
        if self._map is None:
            self._open_map()
        self.load_indexes()
        self.largest_timestamp()
        mapped = self._map
        assert mapped is not None
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
                mapped.ensure(end)  # the last bytes of a disk are for batches as well
        self.room = self.allocated = mapped.size
        if self.size - self.in_memory_from >= BUSY_BYTES and size < WRITE_BYTES_MIN:
            ahead = min(end + PREFAULT_BYTES, mapped.size)
            mapped.prefault(self.size, ahead)
            self.room = ahead

    @property
    def length_synced(self) -> bool:
        """Whether a power loss leaves the file as long as it is."""
        return self.on_disk == self.allocated

    def update_config(self, config: LogConfig) -> None:
        self._config = config
        self.indexes.interval_bytes = config.index_interval_bytes
        self.room = 0

    # Finding

    def position_of(self, offset: int) -> int | None:
        """Where the first batch that ends at or after `offset` starts; None when all batches end before it.

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
        """The end of the whole batches from `start` on that fit into `bytes_max` and end by `limit`."""
        wanted = start + bytes_max
        if wanted >= limit:
            return limit
        if start >= self.in_memory_from:
            # As below, without the generator and its checks of what another process wrote: half of the time of a read.
            unpack, buffer = WALK.unpack_from, self.view()
            position = max(start, self.indexes.offsets.floor_position(wanted)[1])
            while (following := position + HEADER_BYTES) <= limit:
                after: int = position + unpack(buffer, position)[1] + LOG_OVERHEAD_BYTES
                if not following <= after <= limit:
                    break  # a damaged page was read back: the walk says where
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
        """As `walk`, from the batch that holds `offset` on, and of checked batches only. Appends may go on meanwhile.

        With `headers_only` the caller lets those be checked (`check`) of which it reads more.

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
                return  # what was to be walked was truncated away meanwhile

    def remember(self, offset: int, position: int) -> None:
        """A reader will come back for the batch at `offset`, which starts at `position`."""
        if len(self._hints) >= HINTS_MAX:
            self._hints.clear()
        self._hints[offset] = position

    def last_offset(self) -> int | None:
        """The last offset in the segment, or None when it is empty."""
        last = None
        if self.size:
            for batch in self.walk(self._indexed(self.indexes.entry_for, OFFSET_MAX)):
                last = batch[3]
        return last

    def end_before(self, offset: int) -> int:
        """The offset behind the last batch that ends before `offset`; the base offset if there is none."""
        end = self.base_offset
        if self.size:
            for _, _, _, last in self.walk(self._indexed(self.indexes.entry_for, offset - 1)):
                if last >= offset:
                    break
                end = last + 1
        return end

    def largest_timestamp(self) -> TimestampAndOffset:
        """The largest max timestamp of all batches, and the last offset of the first batch that has it."""
        indexes = self.indexes
        if indexes.largest is None:
            if not self.active and not indexes.loaded:
                indexes.largest = self._largest_on_disk()
            if indexes.largest is None:
                self.load_indexes()
                indexes.largest = self._find_largest()
                if not self.active:
                    indexes.unload()
        return indexes.largest

    def _largest_on_disk(self) -> TimestampAndOffset | None:
        found = self.indexes.last_timestamp_on_disk()
        return found if found is not None and self._has_timestamp(*found) else None

    def _find_largest(self) -> TimestampAndOffset:
        """From the last time index entry on, a walk: a sealed segment's last entry is the answer already."""
        timestamp, offset = self.indexes.times.last()
        if timestamp >= 0 and not self._has_timestamp(timestamp, offset):
            self._remake_indexes(CorruptFile(self.indexes.times.path, "its last entry does not fit the log"))
            timestamp, offset = self.indexes.times.last()
        largest = TimestampAndOffset(timestamp, offset if timestamp >= 0 else -1)
        for position, _, _, last in self.walk(self._indexed(self.indexes.entry_for, offset)):
            latest = INT64.unpack_from(self.view(), position + MAX_TIMESTAMP_AT)[0]
            if latest > largest.timestamp:
                largest = TimestampAndOffset(latest, last)
        return largest

    def offset_before(self, timestamp: int) -> int:
        """An offset at or before the first record whose timestamp is at least `timestamp`.

        Raises:
            DamagedLog, StorageFailure
        """
        for attempt in (1, 2):
            try:
                found, offset = self.indexes.time_entry(timestamp)
                if found < 0 or attempt == 2 or self._has_timestamp(found, offset):
                    return offset
                error = CorruptFile(self.indexes.times.path, "an entry does not fit the log")
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
        """A position that the offset index names, once the log agrees that a batch begins there."""
        for attempt in (1, 2):
            try:
                last, position = find(*arguments)
                if position >= self.in_memory_from and self.indexes.loaded:
                    return position  # an entry of this process
                if not position or attempt == 2 or self._fits(position, last):
                    return position
                error = CorruptFile(self.indexes.offsets.path, f"its entry for byte {position} does not fit the log")
            except CorruptFile as damage:
                error = damage
            self._remake_indexes(error)
        return 0

    def _fits(self, position: int, last_offset: int) -> bool:
        """Whether a batch begins at `position` that ends at `last_offset`, or before: Kafka indexes several as one."""
        if position + HEADER_BYTES > self.size:
            return False
        self.reach(position)
        base, length, magic, delta = WALK.unpack_from(self.view(), position)
        following = position + length + LOG_OVERHEAD_BYTES
        in_order: bool = self.base_offset <= base <= base + delta <= last_offset
        return in_order and magic == MAGIC and position + HEADER_BYTES <= following <= self.size

    def first_timestamp(self) -> int:
        """The max timestamp of the first batch, -1 when there is none."""
        if self._first_timestamp is None:
            if self.size == 0:
                return -1
            if self.size < HEADER_BYTES:
                return -1
            self.reach(0)
            self._first_timestamp = INT64.unpack_from(self.view(), MAX_TIMESTAMP_AT)[0]
        return self._first_timestamp

    # Changing the end

    def truncate_to(self, offset: int) -> int:
        """Forgets the batches that end at or after `offset`; returns the offset where the log then ends.

        That is the base offset of the first batch forgotten when `offset` lies inside it. Nothing is written: `erase` does.
        """
        assert self.active
        position = self.position_of(offset)
        self.load_indexes()
        self.indexes.truncate_to(offset)
        if position is None or position == self.size:
            return offset
        end_offset = min(offset, self.offset_at(position))
        self._shown = max(self._shown, self.size)
        self.size = position
        self.cold.cut(position)
        self._hints.clear()
        self._first_timestamp = None if position else -1
        self.room = 0
        return end_offset

    def erase(self, end: int, end_offset: int) -> None:
        """What was forgotten leaves the files: on the disk when this returns.

        The bytes up to `end` become zeros but the file stays as long as it is: a reader's view must never lose its pages.
        The sync is for what comes after. If some of these zeros were lost in a crash, and some of the batches that will
        be written over them, then old and new batches that happen to be of equal size would look like one log.
        """
        self.zero(self.size, end)
        self.txn_index.truncate_to(self._files, end_offset)
        self.flush()

    def seal(self, indexes_must_be_saved: bool = True) -> None:
        """No more appends: the files are cut to their content and the indexes completed.

        Raises:
            DiskFull: there is no room for the indexes, unless they may stay in memory.
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

    def reopen(self) -> None:
        """A sealed segment becomes the active one again, after the ones behind it were truncated away."""
        self.unmap()
        self.active = True
        self.allocated, self.on_disk = 0, -1
        self.load_indexes()
        self.largest_timestamp()

    # Files

    def create_file(self) -> None:
        """The index files come with the first flush, or when the segment is sealed: most of 10,000 logs have no entry for them."""
        self._files.create(self.log_path)
        self.indexes.clear()

    def load_indexes(self) -> None:
        """Reads the index files when they are not in memory yet; makes them again when they are damaged."""
        if not self.indexes.loaded:
            try:
                self.indexes.read(self.size)
            except CorruptFile as error:
                self._remake_indexes(error)
                if not self.indexes.loaded:
                    self.indexes.read(self.size)

    def _remake_indexes(self, error: CorruptFile) -> None:
        """From the log. If it is damaged too, they lead up to there."""
        logger.warning("%s: made again from the log", error)
        self.indexes.clear()
        try:
            for position, following, _, last in self.walk(0):
                timestamp = INT64.unpack_from(self.view(), position + MAX_TIMESTAMP_AT)[0]
                self.indexes.add(position, following - position, last, timestamp)
        except DamagedLog as damage:
            self._report(damage)
            self.indexes.largest = None  # of a part it would let retention remove the segment too early
        if self.active:
            return
        self.indexes.complete()
        if self.sync_indexes():  # no flush comes here any more
            self.indexes.unload()

    def sync_indexes(self) -> bool:
        """Indexes made again are on the disk when this returns True: part of a time index would pass for the whole of it."""
        saved = self._save_indexes()
        if saved and self.indexes.flush():
            self._files.sync_dir(self.path.rpartition("/")[0])
        return saved

    def cut_back(self, size: int, end_offset: int, zeros: bool) -> None:
        """Recovery found the end of the valid batches: what lies behind becomes zeros, or goes when it is sealed."""
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
            self.sync_log()  # for the reason given at `erase`

    def flush(self) -> bool:
        """Puts log and indexes on the disk. May run beside appends: what they add meanwhile counts for the next one.

        True when the directory must be synced as well: it has names that a crash could still take back.
        """
        saved = self._save_indexes()
        self.trimmed = False
        allocated = self.allocated
        self.sync_log()
        if self.allocated == allocated:
            self.on_disk = allocated
        names = saved and self.indexes.flush()
        return self.txn_index.flush(self._files) or names

    def _save_indexes(self) -> bool:
        try:
            self.indexes.save()
        except DiskFull as failure:
            # The batches have their room already, and of an index only a tail is missing, which a restart makes again.
            logger.warning("%s: what is new in its indexes stays in memory: %s", self.path, failure)
            return False
        return True

    def unmap(self) -> None:
        """Gives the mapping back; it ends when the last view of it is gone. Everything can be opened again."""
        self._close_map()
        self.room = 0
        self._hints.clear()
        if self.removed:
            self.indexes.unload()  # a flush that is on its way must not write them into the files of a successor
        elif not self.active and self.indexes.loaded and self._save_indexes():
            self.indexes.unload()

    def close(self, trim: bool) -> None:
        untouched = self._map is None and self._files.size(self.log_path) == self.size
        if self.active and trim and not (untouched and not self.indexes.loaded):
            self.seal()
            self.active = True  # sealed in form only: it may be opened again and go on
        self.unmap()

    def file_names(self) -> list[str]:
        return [self._named(suffix) for suffix in SUFFIXES]

    def change_suffix(self, suffix: str) -> None:
        """Renames the files, the log last: a `.log.swap` says that all of its indexes are there too."""
        self.unmap()
        old = {kind: self._named(kind) for kind in SUFFIXES}
        self._suffix = suffix
        for kind in reversed(SUFFIXES):
            if kind != TXN_INDEX_SUFFIX or self._files.exists(old[kind]):
                self._files.rename(old[kind], self._named(kind))
        self.indexes.offsets.path = self._named(INDEX_SUFFIX)
        self.indexes.times.path = self._named(TIME_INDEX_SUFFIX)
        self.txn_index.path = self._named(TXN_INDEX_SUFFIX)
