"""A partition's folder of segment files as batches, beside the broker that writes them.

The files are Kafka's own. They are opened for reading only and never locked; the broker may append, roll and delete meanwhile.
The caller gives the end of the committed records, because the files do not have it.
"""

from __future__ import annotations

import mmap
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ottla.columns.batches import Aborted, BatchFilter, ColumnsError
from ottla.protocol.errors import KafkaError
from ottla.protocol.records.batch import BatchView
from ottla.storage.errors import CorruptFile
from ottla.storage.log_files import ABORTED_ENTRY, AbortedTxn, aborted_txns, offset_entries, spans


class SegmentFiles:
    """The segments of a partition at the time when this object is made."""

    def __init__(self, folder: Path) -> None:
        self._files = sorted(folder.glob("*.log"))
        self._bases = [int(file.stem) for file in self._files]

    @property
    def first(self) -> int | None:
        """The base offset of the oldest segment, or None without segments."""
        return self._bases[0] if self._bases else None

    def aborted(self, position: int) -> Iterator[Aborted]:
        """Yield the aborted transactions of all segments that end at this offset or later. Raises ColumnsError for a damaged index.

        The marker of an earlier one is not read any more: later transactions of its producer would be taken for aborted, too.
        """
        for file in self._files:
            for txn in _aborted(file):
                if txn.last_offset >= position:
                    yield txn.producer_id, txn.first_offset

    def batches(self, wanted: BatchFilter) -> Iterator[BatchView]:
        """Yield the batches with rows, from the filter's position on.

        Raises:
            FileNotFoundError: retention has deleted a segment meanwhile.
            ColumnsError: damaged bytes.
        """
        for file in self._files[max(0, bisect_right(self._bases, wanted.position) - 1) :]:
            if wanted.is_done:
                return
            yield from _batches_of(file, wanted)


def _batches_of(file: Path, wanted: BatchFilter) -> Iterator[BatchView]:
    with file.open("rb") as opened:
        opened.seek(0, 2)
        if not opened.tell():
            return
        # The file is unmapped when the last batch that is a view of it is freed.
        whole = memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
    start = _position_of(file, wanted.position)
    yield from wanted.batches(whole[start : _written(whole, start)])


def _written(mapped: memoryview, start: int) -> int:
    """Return the end of the batches: an active segment may be preallocated, with zeros behind them."""
    end = start
    with suppress(KafkaError):  # the filter reports the position of the damage
        for span in spans(mapped, start):
            end = span[1]
        return end
    return len(mapped)


def _position_of(file: Path, offset: int) -> int:
    """Return the position of a batch at or before the offset, by the sparse index; 0 if there is no index."""
    index = file.with_suffix(".index")
    found = 0
    if index.exists():
        for entry, position in offset_entries(index.read_bytes(), int(file.stem)):
            if entry > offset:
                break
            found = position
    return found


def _aborted(file: Path) -> list[AbortedTxn]:
    index = file.with_suffix(".txnindex")
    if index.exists():
        data = index.read_bytes()
        # A running node may be in the middle of writing an entry.
        whole = data[: len(data) // ABORTED_ENTRY.size * ABORTED_ENTRY.size]
        try:
            return aborted_txns(str(index), whole)
        except CorruptFile as fault:
            raise ColumnsError(f"{fault}", "read another replica") from None
    return []
