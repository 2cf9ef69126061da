"""The batches of a Fetch that become rows: aborted transactions, markers, ranges, and bytes that are damaged or cut off."""

from __future__ import annotations

import pytest

from tests.needs import needs_packages

needs_packages("pyarrow")

from ottla.columns.batches import BatchFilter, ColumnsError
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.control import end_txn_batch


def data(offset: int, *, producer: int = -1, count: int = 2) -> bytes:
    rows = [(None, b"v", 0)] * count
    return build_batch(rows, base_offset=offset, producer_id=producer, producer_epoch=0, transactional=producer >= 0)


def marker(offset: int, producer: int, *, committed: bool) -> bytes:
    return end_txn_batch(committed=committed, producer_id=producer, producer_epoch=0, coordinator_epoch=0, timestamp=0, base_offset=offset)  # fmt: skip


def seen(found: BatchFilter, *batches: bytes) -> list[int]:
    return [batch.base_offset for batch in found.batches(memoryview(b"".join(batches)))]


def test_rows_of_aborted_transactions_are_left_out_until_their_marker() -> None:
    found = BatchFilter("t-0", 0, 100)
    found.announce([(7, 2)])
    log = [data(0, producer=7), marker(2, 7, committed=False), data(3, producer=7), data(5)]
    mixed = [data(0, producer=8), data(2, producer=7), data(4, producer=8), marker(6, 7, committed=False)]
    assert seen(found, *mixed, data(7, producer=7)) == [0, 4, 7]
    again = BatchFilter("t-0", 0, 100)
    again.announce([(7, 0)])
    assert seen(again, *log) == [3, 5] and again.position == 7


def test_a_transaction_that_was_announced_goes_on_in_the_next_bytes() -> None:
    found = BatchFilter("t-0", 0, 100)
    found.announce([(7, 0)])
    assert seen(found, data(0, producer=7)) == []
    found.announce([(7, 0)])
    assert seen(found, data(2, producer=7), marker(4, 7, committed=False), data(5, producer=7)) == [5]


def test_a_fetch_begins_before_its_offset_and_ends_in_the_middle_of_a_batch() -> None:
    found = BatchFilter("t-0", 3, 100)
    whole = data(4)
    assert seen(found, data(0), data(2), whole[:-1]) == [2]
    assert found.position == 4 and not found.is_done


def test_nothing_behind_the_end_is_a_row() -> None:
    found = BatchFilter("t-0", 0, 3)
    assert seen(found, data(0), data(2), data(4)) == [0, 2] and found.is_done


def test_a_batch_with_a_wrong_checksum_is_an_error_with_its_offset() -> None:
    damaged = bytearray(data(2))
    damaged[-1] ^= 1
    with pytest.raises(ColumnsError, match=r"t-0 at offset 2 is damaged: .*crc"):
        seen(BatchFilter("t-0", 0, 100), data(0), bytes(damaged))
