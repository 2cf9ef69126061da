"""Records that were read for a share fetch, by batch: their offsets, which of them were aborted, and the part that was acquired."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from ottla.broker.share.acquisition import Acquired, Span
from ottla.protocol.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, BatchView
from ottla.storage.segment.txn_index import AbortedTxn

_BASE_AND_LENGTH = Struct(">qi")
_LAST_OFFSET_DELTA = Struct(">i")
_LAST_OFFSET_DELTA_AT = 23


class Fetched:
    """Complete record batches; `spans` has those that matter, the others are never looked at."""

    __slots__ = ("ends", "offset", "records", "spans")

    def __init__(self, offset: int, records: memoryview, enough_at: int) -> None:
        """Read from `offset` on. The batches behind the one that has `enough_at` will not be acquired."""
        self.offset = offset
        self.records = records
        self.spans: list[Span] = []
        #: Where each batch ends in `records`.
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
        """The batches of aborted transactions (read_committed)."""
        found: list[Span] = []
        position = 0
        for span, end in zip(self.spans, self.ends, strict=True):
            batch = BatchView(self.records, position)
            position = end
            if batch.is_transactional and not batch.is_control and _is_aborted(batch, transactions):
                found.append(span)
        return found

    def part_of(self, acquired: Sequence[Acquired]) -> memoryview:
        """The batches from the first to the last that has acquired records."""
        begin = end = 0
        for span, following in zip(self.spans, self.ends, strict=True):
            if span.last < acquired[0].first_offset:
                begin = following
            if span.first <= acquired[-1].last_offset:
                end = following
        return self.records[begin:end]


def _is_aborted(batch: BatchView, transactions: Sequence[AbortedTxn]) -> bool:
    return any(
        batch.producer_id == transaction.producer_id
        and transaction.first_offset <= batch.base_offset <= transaction.last_offset
        for transaction in transactions
    )
