"""Search in an index file on disk: the indexes of sealed segments are not kept in memory.

They are 20 bytes per index.interval.bytes, 2 to 5 GB for 1 TB of log. Loading and checking the indexes of one sealed segment of
1 GiB at a restart blocked the event loop for 0.24 s. A search reads a few blocks of 4 KiB through the kernel's page cache (3 us
each). The caller checks the result against the log, so that a damaged block cannot lead to a wrong position.
"""

from __future__ import annotations

from bisect import bisect_right
from struct import Struct

from ottla.storage.errors import CorruptFile
from ottla.storage.files import Files

BLOCK_BYTES = 4096


def floor_entry(
    files: Files, path: str, entry: Struct, column: int, value: int, largest: int | None = None
) -> tuple[int, int] | None:
    """Returns the last entry whose `column` is at most `value`, or None.

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
