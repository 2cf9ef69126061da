"""One segment of a log: `<base offset, 20 digits>.log` with its indexes. Appends, finds, slices, truncates, seals.

The last segment of a log is active: mapped writable and allocated ahead, the bytes beyond its `size` are zeros. All
others are sealed: exactly as long as their batches and mapped for reading when somebody reads. Files look as Apache
Kafka leaves them: an index entry is added when more than index.interval.bytes were written since the last one, and
points at the start of a batch by that batch's last offset.

This file checks nothing of what it is given to append, and knows nothing of producers or leader epochs.
"""

from __future__ import annotations

import logging
from struct import Struct

from protocol.records.batch import HEADER, HEADER_BYTES, MAGIC, MAGIC_AT, Header
from storage.config import NEVER, LogConfig
from storage.errors import CorruptFile, DiskFull
from storage.files import Files, MappedFile
from storage.index import RELATIVE_OFFSET_MAX
from storage.mappings import Mappings
from storage.segment_indexes import SegmentIndexes, TimestampAndOffset
from storage.txn_index import TransactionIndex

logger = logging.getLogger(__name__)

# Allocation ahead of the data: a small partition stays small, a busy one is extended rarely (fallocate takes 10 us).
ALLOCATE_BYTES_MIN = 16 << 10
ALLOCATE_BYTES_MAX = 16 << 20
# Only a segment that has taken this much since it was opened is worth prefaulting (0.1-0.5 ms per MB of this thread).
BUSY_BYTES = 256 << 10
PREFAULT_BYTES = 1 << 20
# From here on a system call costs less than the page faults of a copy into fresh mapped pages.
WRITE_BYTES_MIN = 8 << 10
HINTS_MAX = 64

# base offset, length and last offset delta: what walking needs of a header
WALK = Struct(">qi11xi")
_OFFSET_LENGTH_EPOCH = Struct(">qii")
LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX = ".log", ".index", ".timeindex", ".txnindex"
SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX = ".deleted", ".cleaned", ".swap"
assert SUFFIXES[0] == LOG_SUFFIX, "renamed last"


class Segment:
    __slots__ = (
        "_config",
        "_files",
        "_first_timestamp",
        "_hints",
        "_map",
        "_mapped_from",
        "_mappings",
        "_suffix",
        "active",
        "base_offset",
        "created_ms",
        "indexes",
        "path",
        "recently_used",
        "removed",
        "room",
        "size",
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
        self._files = files
        self._mappings = mappings
        self._config = config
        self.base_offset = base_offset
        self.path = segment_path(directory, base_offset, "")
        self._suffix = suffix  # `.cleaned` and `.swap` while compaction makes it
        self.size = size
        self.active = active
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
        self.recently_used = False
        self.trimmed = False  # since it was last flushed
        self.removed = False  # its files are renamed or gone: a flush that runs meanwhile passes it over
        # `room`: up to this position an append may write at once; 0 sends it through make_room.
        self.room = 0
        self._map: MappedFile | None = None
        self._mapped_from = 0
        self._first_timestamp: int | None = None
        self._hints: dict[int, int] = {}

    @property
    def log_path(self) -> str:
        return self._named(LOG_SUFFIX)

    def _named(self, kind: str) -> str:
        return self.path + kind + self._suffix

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
            _OFFSET_LENGTH_EPOCH.pack_into(records, 0, base_offset, size - 12, leader_epoch)
            self._map.write(position, records)
        else:
            buffer = self._map.buffer
            # A process killed between the two leaves offset 0 in the header, which recovery takes for the torn tail.
            buffer[position:end] = records
            _OFFSET_LENGTH_EPOCH.pack_into(buffer, position, base_offset, size - 12, leader_epoch)
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
            self._first_timestamp = headers[0][8]
        for header in headers:
            size = header[1] + 12
            if self.indexes.add(position, size, header[0] + header[6], header[8]):
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
            mapped.ensure(max(end, min(self.size + step, self._config.segment_bytes)))
        self.room = mapped.size
        if self.size - self._mapped_from >= BUSY_BYTES and size < WRITE_BYTES_MIN:
            ahead = min(end + PREFAULT_BYTES, mapped.size)
            mapped.prefault(self.size, ahead)
            self.room = ahead

    def roll_reason(self, size: int, last_offset: int, max_timestamp: int, now_ms: int, jitter_ms: int) -> str | None:
        """Why a batch of `size` bytes must start a new segment (Kafka's conditions), or None."""
        if self.size > self._config.segment_bytes - size:
            return "size"
        if self.size and self._waited_ms(max_timestamp, now_ms) > self._config.segment_ms - jitter_ms:
            return "time"
        if last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
            return "offset"
        if self.indexes.full:
            return "index"
        return None

    def roll_deadline(self, jitter_ms: int) -> tuple[int, int]:
        """(timestamp, wall clock): a batch later than either needs a new segment."""
        if self.size == 0:
            return NEVER, NEVER
        limit = self._config.segment_ms - jitter_ms
        first = self.first_timestamp()
        return (first + limit, NEVER) if first >= 0 else (NEVER, self.created_ms + limit)

    def _waited_ms(self, max_timestamp: int, now_ms: int) -> int:
        first = self.first_timestamp()
        return max_timestamp - first if first >= 0 else now_ms - self.created_ms

    def update_config(self, config: LogConfig) -> None:
        self._config = config
        self.indexes.interval_bytes = config.index_interval_bytes
        self.room = 0

    # Finding

    def view(self) -> memoryview:
        """All bytes of the segment's batches; valid as long as anybody holds it, whatever becomes of the segment."""
        if self._map is None:
            self._open_map()
        self.recently_used = True
        return self._map.buffer  # type: ignore[union-attr]

    def position_of(self, offset: int) -> int | None:
        """Where the first batch that ends at or after `offset` starts; None when all batches end before it."""
        hint = self._hints.get(offset)
        if hint is not None:
            return hint
        buffer = self.view()
        if not self.indexes.loaded:
            self.load_indexes()
        position = self.indexes.offsets.floor(offset)
        end = self.size
        unpack = WALK.unpack_from
        while position < end:
            base, length, delta = unpack(buffer, position)
            if base + delta >= offset:
                return position
            position += length + 12
        return None

    def end_of_slice(self, start: int, limit: int, bytes_max: int, min_one: bool) -> int:
        """The end of the whole batches from `start` on that fit into `bytes_max` and end by `limit`."""
        wanted = start + bytes_max
        if wanted >= limit:
            return limit
        buffer = self.view()
        position = max(start, self.indexes.offsets.floor_position(wanted))
        unpack = WALK.unpack_from
        while True:
            _, length, _ = unpack(buffer, position)
            after = position + length + 12
            if after > wanted:
                break
            position = after
        return after if position == start and min_one else position

    def remember(self, offset: int, position: int) -> None:
        """A reader will come back for the batch at `offset`, which starts at `position`."""
        if len(self._hints) >= HINTS_MAX:
            self._hints.clear()
        self._hints[offset] = position

    def offset_at(self, position: int) -> int:
        """The base offset of the batch that starts at `position`."""
        base: int
        base, _, _ = WALK.unpack_from(self.view(), position)
        return base

    def last_offset(self) -> int | None:
        """The last offset in the segment, or None when it is empty."""
        if not self.indexes.loaded:
            self.load_indexes()
        buffer, position, last = self.view(), self.indexes.offsets.floor(2**62), None
        while position < self.size:
            base, length, delta = WALK.unpack_from(buffer, position)
            last = base + delta
            position += length + 12
        return last

    def largest_timestamp(self) -> TimestampAndOffset:
        """The largest max timestamp of all batches, and the last offset of the first batch that has it."""
        indexes = self.indexes
        if indexes.largest is None:
            if not self.active and not indexes.loaded:
                indexes.largest = indexes.last_timestamp_on_disk()
            if indexes.largest is None:
                self.load_indexes()
                indexes.largest = self._find_largest()
        return indexes.largest

    def _find_largest(self) -> TimestampAndOffset:
        """From the last time index entry on, a walk: a sealed segment's last entry is the answer already."""
        timestamp, offset = self.indexes.times.last()
        largest = TimestampAndOffset(timestamp, offset if timestamp >= 0 else -1)
        buffer, position = self.view(), self.indexes.offsets.floor(offset)
        while position < self.size:
            header = HEADER.unpack_from(buffer, position)
            if header[8] > largest.timestamp:
                largest = TimestampAndOffset(header[8], header[0] + header[6])
            position += header[1] + 12
        return largest

    def first_timestamp(self) -> int:
        """The max timestamp of the first batch, -1 when there is none."""
        if self._first_timestamp is None:
            if self.size == 0:
                return -1
            self._first_timestamp = HEADER.unpack_from(self.view(), 0)[8]
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
        self.size = position
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
        self._zero(self.size, end)
        self.txn_index.truncate_to(self._files, end_offset)
        self.flush()

    def _zero(self, start: int, end: int) -> None:
        buffer = self.view()
        zeros = bytes(min(end - start, 1 << 20))
        # From the end: whatever a crash leaves, the batches before the first zero are whole.
        while end > start:
            begin = max(start, end - len(zeros))
            buffer[begin:end] = zeros[: end - begin]
            end = begin

    def seal(self) -> None:
        """No more appends: the files are cut to their content and the indexes completed."""
        assert self.active
        self.load_indexes()
        self.largest_timestamp()
        self.indexes.complete()
        self.indexes.save()
        self._trim()
        self.trimmed = True
        self.active = False
        self.room = 0

    def reopen(self) -> None:
        """A sealed segment becomes the active one again, after the ones behind it were truncated away."""
        self.unmap()
        self.active = True
        self.load_indexes()
        self.largest_timestamp()

    def _trim(self) -> None:
        if self._map is not None:
            self._map.close(self.size if self.size < self._map.size else None)
            self._map = None
            self._mappings.closed(self)
        elif (self._files.size(self.log_path) or 0) > self.size:
            self._files.truncate(self.log_path, self.size)

    # Files

    def create_files(self) -> None:
        for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            self._files.create(self._named(suffix))
        self.indexes.start_empty()

    def load_indexes(self) -> None:
        """Reads the index files when they are not in memory yet; makes them again when they are damaged."""
        if not self.indexes.loaded:
            try:
                self.indexes.read(self.size)
            except CorruptFile as error:
                logger.warning("%s: made again from the log", error)
                self._rebuild_indexes()

    def _rebuild_indexes(self) -> None:
        self.indexes.clear()
        buffer, position = self.view(), 0
        while could_start_batch(buffer, position, self.size):
            header = HEADER.unpack_from(buffer, position)
            size = header[1] + 12
            if size < HEADER_BYTES or position + size > self.size:
                break
            self.indexes.add(position, size, header[0] + header[6], header[8])
            position += size
        if not self.active:
            self.indexes.complete()
            self.sync_indexes()  # no flush comes here any more

    def sync_indexes(self) -> None:
        """Indexes made again are on the disk when this returns: part of a time index would pass for the whole of it."""
        self.indexes.save()
        if self.indexes.flush():
            self._files.sync_dir(self.path.rpartition("/")[0])

    def cut_back(self, size: int, end_offset: int, zeros: bool) -> None:
        """Recovery found the end of the valid batches: what lies behind becomes zeros, or goes when it is sealed."""
        assert size <= self.size
        end, self.size = self.size, size
        self._hints.clear()
        if size == end:
            return
        self.indexes.truncate_to(end_offset)
        if not self.active:
            self.unmap()
            self._files.truncate(self.log_path, size)
        elif not zeros:
            self._zero(size, end)
        if not zeros:
            self.sync_log()  # for the reason given at `erase`

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
        """What lies behind the last batch is on the disk as it is here, when this returns: see `erase`."""
        self.view()
        mapped = self._map
        assert mapped is not None
        mapped.touch(self.size, mapped.size)
        self.sync_log()

    def flush(self) -> bool:
        """Puts log and indexes on the disk. May run beside appends: what they add meanwhile counts for the next one.

        True when the directory must be synced as well: it has names that a crash could still take back.
        """
        saved = self._save_indexes()
        self.trimmed = False
        self.sync_log()
        names = saved and self.indexes.flush()
        return self.txn_index.flush(self._files) or names

    def _save_indexes(self) -> bool:
        try:
            self.indexes.save()
        except DiskFull as failure:
            # The batches have their room already, and of an index only a tail is missing, which a restart makes again.
            logger.warning("%s: flushed without what is new in its indexes: %s", self.path, failure)
            return False
        return True

    def sync_log(self) -> None:
        mapped = self._map
        if mapped is not None and self.active:
            mapped.flush()
        else:
            self._files.sync_file(self.log_path)

    def unmap(self) -> None:
        """Gives the mapping back; it ends when the last view of it is gone. Everything can be opened again."""
        mapped, self._map = self._map, None  # two threads may come here: a deleted log's worker, and the loop for room
        if mapped is not None:
            mapped.close()
            self._mappings.closed(self)
        self.room = 0
        self._hints.clear()
        if self.removed:
            self.indexes.unload()  # a flush that is on its way must not write them into the files of a successor
        elif not self.active and self.indexes.loaded:
            self.indexes.save()
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

    def _open_map(self) -> None:
        capacity = max(self._config.segment_bytes, self.size) if self.active else 0
        self._map = self._files.map(self.log_path, capacity, self.active)
        self._mapped_from = self.size
        self._mappings.opened(self)


def segment_path(directory: str, base_offset: int, suffix: str) -> str:
    return f"{directory}/{base_offset:020d}{suffix}"


def could_start_batch(buffer: memoryview, position: int, end: int) -> bool:
    """Whether a batch header may lie at `position`: false in the zeros behind the last batch."""
    return end - position >= HEADER_BYTES and buffer[position + MAGIC_AT] == MAGIC
