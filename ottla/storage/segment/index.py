"""The offset index and the time index of a segment: sorted arrays in memory, Kafka's fixed-width entries in files.

    .index      8 bytes: offset relative to the segment's base u32, position in the .log file u32
    .timeindex 12 bytes: timestamp i64, offset relative to the segment's base u32

An offset index entry says that the batch *ending* at that offset starts at that position. Both are sparse: one entry
per index.interval.bytes of log, so a lookup ends with a short scan. Those of the active segment are native arrays in memory,
searched by `bisect` (0.2 us). Files only ever grow at their end, and are written when the segment is flushed or sealed. A lost tail
does no harm: recovery rebuilds it from the log.

Those of sealed segments are searched in their files (`floor_entry`). They are 20 bytes per index.interval.bytes, 2 to 5 GB for 1 TB of
log, and loading and checking those of one segment of 1 GiB at a restart blocked the event loop for 0.24 s. A search reads a few blocks
of 4 KiB through the kernel's page cache (3 us each). The caller checks the result against the log, so that a damaged block cannot
lead to a wrong position.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from itertools import islice
from operator import le, lt
from struct import Struct

from ottla.storage.errors import CorruptFile
from ottla.storage.files import Files

OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12
RELATIVE_OFFSET_MAX = 2**31 - 1  # Kafka stores relative offsets in a signed int
BLOCK_BYTES = 4096
_OFFSET_ENTRY = Struct(">II")
_TIME_ENTRY = Struct(">qi")
#: The result of a lookup before the first entry of an offset index: the log begins at position 0.
NO_ENTRY = (-1, 0)


def floor_entry(
    files: Files, path: str, entry: Struct, column: int, value: int, largest: int | None = None
) -> tuple[int, int] | None:
    """Return the last entry whose `column` is at most `value`, or None.

    `largest`, if given, is an estimate of the column's largest value: entries are spread as evenly as the indexed batches, so
    that interpolation mostly finds the right block at once.

    Raises:
        CorruptFile: missing, or not a whole number of entries.
    """
    size, count = files.size(path), entry.size
    if size is None or size % count:
        raise CorruptFile(path, "the index file is missing" if size is None else f"{size} bytes are no whole entries")
    low, high = 0, size // count  # the range of entries that is left to search; `found` is the entry before it
    found: tuple[int, int] | None = None
    per_block = BLOCK_BYTES // count
    guess = high * value // (largest + 1) if largest else high // 2
    while low < high:
        begin = max(low, min(guess, high - 1) // per_block * per_block)
        n = min(begin + per_block, high) - begin
        data = files.pread(path, begin * count, n * count)
        if len(data) != n * count:
            raise CorruptFile(path, f"{len(data)} bytes were read, expected {n * count}")
        at = bisect_right(range(n), value, key=lambda i: entry.unpack_from(data, i * count)[column])
        if at:
            found = entry.unpack_from(data, (at - 1) * count)
        if 0 < at < n:
            break
        low, high = (begin + n, high) if at else (low, begin)
        # Try the adjacent block first: a guess is seldom wrong by more than one block.
        guess = begin + n if at and largest else begin - 1 if largest else (low + high) // 2
        largest = None
    return found


class _Index:
    """An index in memory, and how much of it is in its file."""

    __slots__ = ("_cut", "_saved", "base_offset", "entries_max", "offsets", "path", "values")

    entry_bytes: int
    kind: str
    code: str

    def __init__(self, path: str, base_offset: int, bytes_max: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self.entries_max = bytes_max // self.entry_bytes
        # Relative to the base offset; an entry is complete once it is here, for a flush on another thread.
        self.offsets = array("I")
        self.values = array(self.code)  # the positions, or the timestamps
        self._saved = 0  # number of entries in the file; -1: the file must be rewritten
        self._cut = False  # the file has further entries, of truncated batches

    def __len__(self) -> int:
        return len(self.offsets)

    def rename(self, path: str) -> None:
        """The file has another name from now on."""
        self.path = path

    @property
    def is_new(self) -> bool:
        """Return True if the next save replaces the file."""
        return self._saved < 0

    def save(self, files: Files) -> bool:
        """Write new entries to the file; return False if there were none. Appends may run meanwhile on another thread."""
        end = len(self.offsets)
        start = max(self._saved, 0)
        if self._cut:
            files.truncate(self.path, start * self.entry_bytes)  # in place, so that it works on a full disk
            self._cut = False
        elif end == self._saved:
            return False
        data = self._encoded(start, end)
        if self._saved < 0:
            files.write_atomic(self.path, data, sync=False)
        else:
            files.pwrite(self.path, start * self.entry_bytes, data)
        self._saved = end
        return True

    def _encoded(self, start: int, end: int) -> bytes:
        raise NotImplementedError

    def _read(self, files: Files) -> array[int]:
        """Read the file as numbers of 32 bits in its byte order.

        Raises:
            CorruptFile: missing, or not a whole number of entries.
        """
        data = files.read(self.path)
        if data is None:
            raise CorruptFile(self.path, f"the {self.kind} file is missing")
        if len(data) % self.entry_bytes:
            raise CorruptFile(self.path, f"{len(data)} bytes are no whole number of {self.entry_bytes}-byte entries")
        return array("I", data)

    def _read_all(self, values: array[int], offsets: array[int]) -> None:
        """The file has these entries."""
        self.values, self.offsets = values, offsets
        self._saved, self._cut = len(offsets), False

    def truncate_to(self, offset: int) -> None:
        """Drop entries of batches that end at or after `offset`."""
        relative = offset - self.base_offset
        self._keep(bisect_right(self.offsets, relative - 1) if relative > 0 else 0)

    def _keep(self, entries: int) -> None:
        del self.offsets[entries:], self.values[entries:]
        if self._saved > entries:
            self._saved, self._cut = entries, True

    def clear(self) -> None:
        self.offsets, self.values, self._saved, self._cut = array("I"), array(self.code), -1, False


class OffsetIndex(_Index):
    """offset -> position, to the nearest entry below."""

    __slots__ = ()

    entry_bytes, kind, code = OFFSET_ENTRY_BYTES, "index", "I"

    @property
    def full(self) -> bool:
        return len(self.offsets) >= self.entries_max

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.offsets[-1] if self.offsets else self.base_offset

    def append(self, offset: int, position: int) -> None:
        relative = offset - self.base_offset
        assert not self.offsets or (relative > self.offsets[-1] and position > self.values[-1]), "index must grow"
        self.values.append(position)
        self.offsets.append(relative)

    def floor(self, offset: int) -> tuple[int, int]:
        """Return (last offset, position) of an indexed batch at or before the one that contains `offset`."""
        at = bisect_right(self.offsets, offset - self.base_offset) if offset > self.base_offset else 0
        return self._entry(at)

    def floor_position(self, position: int) -> tuple[int, int]:
        """Return (last offset, position) of the last indexed batch that starts at or before `position`."""
        return self._entry(bisect_right(self.values, position))

    def _entry(self, at: int) -> tuple[int, int]:
        return (self.base_offset + self.offsets[at - 1], self.values[at - 1]) if at else NO_ENTRY

    def floor_in_file(self, files: Files, offset: int) -> tuple[int, int]:
        """Look up as `floor` does, in the file; the caller must check the entry against the log."""
        return self._found(floor_entry(files, self.path, _OFFSET_ENTRY, 0, offset - self.base_offset))

    def floor_position_in_file(self, files: Files, position: int, log_bytes: int) -> tuple[int, int]:
        return self._found(floor_entry(files, self.path, _OFFSET_ENTRY, 1, position, log_bytes))

    def _found(self, entry: tuple[int, int] | None) -> tuple[int, int]:
        if entry is not None and not entry[1]:
            raise CorruptFile(self.path, "an entry has position 0: a page was lost and reads as zeros")
        return (self.base_offset + entry[0], entry[1]) if entry is not None else NO_ENTRY

    def truncate_to_position(self, position: int) -> None:
        """Drop entries of batches that start at or after `position`."""
        self._keep(bisect_right(self.values, position - 1) if position > 0 else 0)

    def _encoded(self, start: int, end: int) -> bytes:
        mixed = array("I", bytes(OFFSET_ENTRY_BYTES * (end - start)))
        mixed[0::2] = self.offsets[start:end]
        mixed[1::2] = self.values[start:end]
        _to_big_endian(mixed)
        return mixed.tobytes()

    def load(self, files: Files, log_bytes: int) -> None:
        """Read the file.

        Raises:
            CorruptFile: missing, not a whole number of entries, not strictly growing, or beyond the log's end.
        """
        mixed = self._read(files)
        _to_big_endian(mixed)
        offsets, positions = mixed[0::2], mixed[1::2]
        # The first batch has no entry, so position 0 means a lost page.
        if offsets and not (positions[0] and _grows(offsets) and _grows(positions) and positions[-1] < log_bytes):
            raise CorruptFile(self.path, "entries are out of order or beyond the end of the log")
        if offsets and offsets[-1] > RELATIVE_OFFSET_MAX:
            raise CorruptFile(self.path, "an offset is too far from the base offset")
        self._read_all(positions, offsets)


class TimeIndex(_Index):
    """Maps a timestamp to an offset: every earlier batch of the segment has a smaller max timestamp."""

    __slots__ = ()

    entry_bytes, kind, code = TIME_ENTRY_BYTES, "time index", "q"

    @property
    def full(self) -> bool:
        # One slot is reserved for the entry that sealing adds.
        return len(self.values) >= self.entries_max - 1

    def last(self) -> tuple[int, int]:
        """Return (timestamp, offset) of the last entry, or (-1, base offset)."""
        if not self.values:
            return -1, self.base_offset
        return self.values[-1], self.base_offset + self.offsets[-1]

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add the entry if its timestamp is newer than the last entry's."""
        if timestamp > (self.values[-1] if self.values else -1):
            relative = offset - self.base_offset
            assert not self.offsets or relative >= self.offsets[-1], "time index offsets must not decrease"
            self.values.append(timestamp)
            self.offsets.append(relative)

    def floor(self, timestamp: int) -> tuple[int, int]:
        """Return (timestamp, offset) of the last entry at or before `timestamp`: no record before it has a greater timestamp."""
        at = bisect_right(self.values, timestamp)
        return (self.values[at - 1], self.base_offset + self.offsets[at - 1]) if at else (-1, self.base_offset)

    def floor_in_file(self, files: Files, timestamp: int) -> tuple[int, int]:
        """Look up as `floor` does, in the file; the caller must check the entry against the log."""
        entry = floor_entry(files, self.path, _TIME_ENTRY, 0, timestamp)
        return (entry[0], self.base_offset + entry[1]) if entry is not None else (-1, self.base_offset)

    def _encoded(self, start: int, end: int) -> bytes:
        timestamps, offsets = self.values[start:end], self.offsets[start:end]
        _to_big_endian(timestamps)
        _to_big_endian(offsets)
        halves, mixed = array("I", timestamps.tobytes()), array("I", bytes(TIME_ENTRY_BYTES * len(offsets)))
        mixed[0::3], mixed[1::3], mixed[2::3] = halves[0::2], halves[1::2], offsets
        return mixed.tobytes()

    def last_in_file(self, files: Files) -> tuple[int, int] | None:
        """Return (timestamp, offset) of the last entry in the file; None if it is empty or damaged."""
        size = files.size(self.path)
        if not size or size % TIME_ENTRY_BYTES:
            return None
        timestamp, relative = _TIME_ENTRY.unpack(files.pread(self.path, size - TIME_ENTRY_BYTES, TIME_ENTRY_BYTES))
        return (timestamp, self.base_offset + relative) if timestamp >= 0 and relative >= 0 else None

    def load(self, files: Files, last_offset: int) -> None:
        """Read the file.

        Raises:
            CorruptFile: missing, not a whole number of entries, not growing, or beyond `last_offset`.
        """
        mixed = self._read(files)
        halves = array("I", bytes(8 * (len(mixed) // 3)))
        halves[0::2], halves[1::2], offsets = mixed[0::3], mixed[1::3], mixed[2::3]
        timestamps = array("q", halves.tobytes())
        _to_big_endian(timestamps)
        _to_big_endian(offsets)
        if timestamps and not (timestamps[0] >= 0 and _grows(timestamps) and _grows(offsets, strictly=False)):
            raise CorruptFile(self.path, "entries are out of order")
        if offsets and self.base_offset + offsets[-1] > last_offset:
            raise CorruptFile(self.path, f"offset {self.base_offset + offsets[-1]} is not in the segment")
        if timestamps and timestamps[0] == offsets[0] == 0:
            raise CorruptFile(self.path, "begins with zeros: a page was lost")
        self._read_all(timestamps, offsets)


def _to_big_endian(numbers: array[int]) -> None:
    if sys.byteorder == "little":
        numbers.byteswap()


def _grows(numbers: array[int], strictly: bool = True) -> bool:
    return all(map(lt if strictly else le, numbers, islice(numbers, 1, None)))
