"""The files of a log, read where no log is open: by `ottla inspect`, kafka-dump-log, the metadata shell, a rewind, Spark on a replica's host.

Nothing is changed, and a node may run on the same files. An active segment has allocated space after its last batch: zeros,
which are neither a batch nor damage. An index of an active segment of Kafka's has it too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from ottla.protocol.primitives import Buffer
from ottla.protocol.records.batch import LOG_OVERHEAD_BYTES, batch_size
from ottla.storage.errors import CorruptFile

if TYPE_CHECKING:
    from ottla.storage.files import Files

#: Files of batches: segments, and snapshots of the metadata.
BATCH_SUFFIXES = (".log", ".checkpoint")
# The numbers are signed, as in Kafka, so that a damaged entry is shown with the same numbers as by Kafka's tools.
_OFFSET_ENTRY = Struct(">ii")
_TIME_ENTRY = Struct(">qi")
#: An entry of `.txnindex`: version, and the fields of an AbortedTxn.
ABORTED_ENTRY = Struct(">hqqqq")
ABORTED_VERSION = 0
#: This many zeros are space that was allocated ahead, not a header that is partly lost.
_SPACE_BYTES = 4096


@contextmanager
def mapped_file(files: Files, path: str) -> Iterator[memoryview]:
    """Yield the bytes of a file, which may be large, without reading all of it."""
    size = files.size(path) or 0
    if not size:
        yield memoryview(b"")
        return
    mapped = files.map(path, size, writable=False)
    try:
        with memoryview(mapped.buffer) as view, view[:size] as there:
            yield there
    finally:
        mapped.close()


def is_space_ahead(view: Buffer, position: int) -> bool:
    """Return whether no batch was written at `position`: the bytes after it were allocated ahead by a running or killed broker."""
    return len(view) - position > LOG_OVERHEAD_BYTES and not any(view[position : position + _SPACE_BYTES])


def spans(view: Buffer, position: int = 0, end: int | None = None) -> Iterator[tuple[int, int]]:
    """Yield where each whole batch begins and ends, from the batch at `position` on, up to space ahead or a batch that is cut.

    Raises:
        KafkaError: CORRUPT_MESSAGE, because no batch can begin where the last one ends. CRCs are not looked at.
    """
    stop = len(view) if end is None else end
    while not is_space_ahead(view, position) and (size := batch_size(view, position, stop)) is not None:
        yield position, position + size
        position += size


def base_offset(path: str) -> int | None:
    """Return the offset that a file is named after; None if its name is no number."""
    stem = os.path.basename(path).partition(".")[0]
    return int(stem) if stem.isdecimal() else None


def offset_entries(data: bytes, base: int) -> Iterator[tuple[int, int]]:
    """Yield the entries of an offset index: the last offset of a batch, and the position of the batch."""
    for relative, position in _whole(_OFFSET_ENTRY, data):
        yield base + relative, position


def time_entries(data: bytes, base: int) -> Iterator[tuple[int, int]]:
    """Yield the entries of a time index: a timestamp, and the offset of its record or batch."""
    for timestamp, relative in _whole(_TIME_ENTRY, data):
        yield timestamp, base + relative


def _whole(entry: Struct, data: bytes) -> Iterator[tuple[int, int]]:
    """Yield the whole entries before the first one of zeros, which is space ahead."""
    for first, second in entry.iter_unpack(data[: len(data) // entry.size * entry.size]):
        if not first and not second:
            return
        yield first, second


class AbortedTxn(NamedTuple):
    """An aborted transaction, up to its marker, and the last stable offset after the marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def aborted_txns(path: str, data: bytes) -> list[AbortedTxn]:
    """Decode a `.txnindex`; the file of a log without aborted transactions is missing or empty.

    Raises:
        CorruptFile: an entry is cut, of another version, or cannot follow the one before it.
    """
    if len(data) % ABORTED_ENTRY.size:
        raise CorruptFile(path, f"{len(data)} bytes are no whole number of {ABORTED_ENTRY.size}-byte entries")
    entries: list[AbortedTxn] = []
    last = -1
    for version, *fields in ABORTED_ENTRY.iter_unpack(data):
        txn = AbortedTxn(*fields)
        # The marker is after the transaction's first batch: a page of zeros is no entry.
        if version != ABORTED_VERSION or txn.last_offset <= last or not 0 <= txn.first_offset < txn.last_offset:
            raise CorruptFile(path, f"entry {len(entries)} is not valid: version {version}, {txn}")
        last = txn.last_offset
        entries.append(txn)
    return entries
