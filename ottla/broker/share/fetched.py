"""The records that were read for a share fetch, by batch: their offsets, the aborted ones, and those that the fetch acquires
(KIP-932).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import field
from struct import Struct
from typing import NamedTuple

from ottla.broker.share.in_flight import Run
from ottla.protocol.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, BatchView
from ottla.protocol.slotted import entity
from ottla.storage.log_files import AbortedTxn


class Limits(NamedTuple):
    """The limits of one ShareFetch."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    #: With `strict` `max_records` is the limit; otherwise it may be exceeded up to the end of a record batch (KIP-1206).
    strict: bool


class Span(NamedTuple):
    """Offsets, both included: a record batch of the log, or a part of one."""

    first: int
    last: int


class Acquired(NamedTuple):
    first_offset: int
    last_offset: int
    delivery_count: int


@entity
class Acquisition:
    """The records that one fetch acquires: how many it may still take, and those that it has."""

    batches: Sequence[Span]
    limit: int
    strict: bool
    runs: list[Run] = field(default_factory=list)
    count: int = 0
    is_full: bool = False
    _bases: list[int] = field(default_factory=list)

    def last_from(self, first: int, last: int) -> int:
        """Return the last offset to take of the records from `first` to `last`."""
        left = self.limit - self.count
        if last - first + 1 <= left:
            return last
        cut = first + left - 1
        if self.strict:
            return cut
        if not self._bases:
            self._bases = [batch.last for batch in self.batches]
        index = bisect_left(self._bases, cut)
        return min(last, max(cut, self._bases[index])) if index < len(self._bases) else last

    def add(self, runs: list[Run]) -> None:
        self.runs += runs
        self.count += sum(run.size for run in runs)
        if self.count >= self.limit:
            self.is_full = True

    def acquired(self) -> list[Acquired]:
        """Parts of one batch that follow each other, and were delivered as often, are one element."""
        acquired: list[Acquired] = []
        before: Run | None = None
        for run in self.runs:
            if before and (before.last + 1, before.count, before.batch) == (run.first, run.count, run.batch):
                acquired[-1] = acquired[-1]._replace(last_offset=run.last)
            else:
                acquired.append(Acquired(run.first, run.last, run.count))
            before = run
        return acquired


_BASE_AND_LENGTH = Struct(">qi")
_LAST_OFFSET_DELTA = Struct(">i")
_LAST_OFFSET_DELTA_AT = 23


class Fetched:
    """Complete record batches; `spans` has those that matter, the others are never looked at."""

    __slots__ = ("counted_bytes", "ends", "offset", "records", "spans", "transactions")

    def __init__(
        self, offset: int, records: memoryview, enough_at: int, transactions: Sequence[AbortedTxn] | None = None
    ) -> None:
        """Read from `offset` on. The batches after the one with the offset `enough_at` will not be acquired."""
        self.offset = offset
        self.records = records
        #: The aborted transactions in the records, or None if the local log knows them.
        self.transactions = transactions
        #: The bytes that count towards the minimum: if there are more than the limit of bytes, the limit, as in
        #: broker/fetch/reader.py.
        self.counted_bytes = len(records)
        self.spans: list[Span] = []
        #: The position at which each batch ends in `records`.
        self.ends: list[int] = []
        position, size = 0, len(records)
        while position + HEADER_BYTES <= size:
            base, length = _BASE_AND_LENGTH.unpack_from(records, position)
            last = base + _LAST_OFFSET_DELTA.unpack_from(records, position + _LAST_OFFSET_DELTA_AT)[0]
            position += length + LOG_OVERHEAD_BYTES
            self.spans.append(Span(base, last))
            self.ends.append(position)
            if last >= enough_at:
                break

    def aborted(self, transactions: Sequence[AbortedTxn]) -> list[Span]:
        """Return the batches of aborted transactions (read_committed)."""
        found: list[Span] = []
        position = 0
        for span, end in zip(self.spans, self.ends, strict=True):
            batch = BatchView(self.records, position)
            position = end
            if batch.is_transactional and not batch.is_control:
                of_producer = [each for each in transactions if each.producer_id == batch.producer_id]
                if any(each.first_offset <= batch.base_offset <= each.last_offset for each in of_producer):
                    found.append(span)
        return found

    def part_of(self, acquired: Sequence[Acquired]) -> memoryview:
        """Return the batches from the first to the last that has acquired records."""
        begin = end = 0
        for span, following in zip(self.spans, self.ends, strict=True):
            if span.last < acquired[0].first_offset:
                begin = following
            if span.first <= acquired[-1].last_offset:
                end = following
        return self.records[begin:end]
