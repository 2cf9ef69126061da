"""Building batches, and rebuilding one with the records that survive compaction."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.records.batch import BatchView, check_batch
from ottla.protocol.records.builder import build_batch, rebuild_batch
from ottla.protocol.records.record import NewRecord, Record

NOW = 1_700_000_000_000
rows = st.lists(
    st.builds(
        NewRecord,
        st.none() | st.binary(max_size=50),
        st.none() | st.binary(max_size=200),
        st.integers(0, 2**45),
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=20,
)


def view(batch: bytes) -> BatchView:
    check_batch(memoryview(batch), 0, len(batch))
    return BatchView(memoryview(batch))


@given(rows, st.integers(0, 4), st.integers(0, 2**50))
def test_records_come_back_with_their_offsets(rows: list[NewRecord], codec: int, base_offset: int) -> None:
    batch = view(build_batch(rows, compression=codec, base_offset=base_offset))
    expected = [Record(base_offset + i, row.timestamp, row.key, row.value, row.headers) for i, row in enumerate(rows)]
    assert batch.records() == expected
    assert batch.max_timestamp == max(row.timestamp for row in rows)
    assert batch.count == batch.last_offset_delta + 1 == len(rows)


def test_plain_tuples_are_records() -> None:
    assert build_batch([(b"k", b"v", NOW), (None, b"w", NOW, [("h", b"x")])]) == build_batch(
        [NewRecord(b"k", b"v", NOW), NewRecord(None, b"w", NOW, (("h", b"x"),))]
    )


@given(rows, st.data())
def test_compaction_keeps_the_offsets_of_survivors_and_the_range(rows: list[NewRecord], data: st.DataObject) -> None:
    batch = view(build_batch(rows, base_offset=500, producer_id=4, producer_epoch=1, base_sequence=8, compression=4))
    records = batch.records()
    survivors = [record for record in records if data.draw(st.booleans())]
    rebuilt = view(rebuild_batch(batch, survivors))
    assert rebuilt.records() == survivors
    assert (rebuilt.base_offset, rebuilt.last_offset, rebuilt.last_sequence) == (
        batch.base_offset,
        batch.last_offset,
        batch.last_sequence,
    )
    assert (rebuilt.producer_id, rebuilt.producer_epoch, rebuilt.count) == (4, 1, len(survivors))


def test_the_delete_horizon_moves_into_the_base_timestamp_and_stays() -> None:
    batch = view(build_batch([(b"k", None, NOW), (b"l", b"v", NOW + 10)], base_offset=7))
    once = view(rebuild_batch(batch, batch.records(), delete_horizon_ms=NOW + 5000))
    assert once.delete_horizon == NOW + 5000
    assert once.records() == batch.records()
    twice = view(rebuild_batch(once, once.records()[1:]))
    assert twice.delete_horizon == NOW + 5000
    assert twice.records() == batch.records()[1:]


def test_an_empty_batch_cannot_be_built() -> None:
    with pytest.raises(AssertionError):
        build_batch([])
