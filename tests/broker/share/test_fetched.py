"""Records that were read for a share fetch, by batch."""

from __future__ import annotations

from ottla.broker.share.fetched import Acquired, Fetched, Span
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.control import end_txn_batch
from ottla.protocol.records.record import NewRecord
from ottla.storage.log_files import AbortedTxn


def batch(first: int, last: int, producer_id: int = -1) -> bytes:
    options = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0} if producer_id >= 0 else {}
    records = [NewRecord(None, b"v", 0)] * (last - first + 1)
    return build_batch(records, base_offset=first, transactional=producer_id >= 0, **options)


BATCHES = [batch(0, 4), batch(5, 9, 7), batch(10, 14), batch(15, 19, 8)]
SPANS = [Span(0, 4), Span(5, 9), Span(10, 14), Span(15, 19)]


def test_batches_are_looked_at_up_to_the_one_that_is_enough() -> None:
    records = memoryview(b"".join(BATCHES))
    assert Fetched(0, records, 100).spans == SPANS
    assert Fetched(0, records, 5).spans == SPANS[:2]


def test_the_part_with_the_acquired_records_has_whole_batches() -> None:
    fetched = Fetched(0, memoryview(b"".join(BATCHES)), 100)
    assert fetched.part_of([Acquired(6, 7, 1)]) == BATCHES[1]
    assert fetched.part_of([Acquired(6, 7, 1), Acquired(12, 12, 2)]) == BATCHES[1] + BATCHES[2]
    assert fetched.part_of([Acquired(0, 19, 1)]) == b"".join(BATCHES)


def test_batches_of_aborted_transactions_are_found_by_producer_and_offset() -> None:
    marker = end_txn_batch(
        committed=False, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=0, base_offset=20
    )
    fetched = Fetched(0, memoryview(b"".join([*BATCHES, marker, batch(21, 22, 7)])), 100)
    assert fetched.aborted([AbortedTxn(7, 5, 20, 20)]) == [Span(5, 9)]
    assert fetched.aborted([]) == []
