"""The target gets a source's batches unchanged, joined, split or encoded again."""

from __future__ import annotations

import pytest

from ottla.mirror.batches import SMALL_BYTES, Outgoing, Stamp, TooLargeRecord, outgoing
from ottla.protocol.records.batch import LOG_APPEND_TIME, BatchView, check_batch, patch_timestamp
from ottla.protocol.records.builder import build_batch, rebuild_batch
from ottla.protocol.records.compression import CODEC_IDS
from ottla.protocol.records.record import Record

NOW = 1_700_000_000_000
STAMP = Stamp(7, 3, 40, transactional=True)


def batch(offset: int, count: int, size: int = 10, codec: str = "none", producer_id: int = -1) -> BatchView:
    rows = [(f"k{offset + i}".encode(), b"v" * size, NOW + i, [("h", b"x")]) for i in range(count)]
    made = build_batch(rows, base_offset=offset, compression=CODEC_IDS[codec], producer_id=producer_id)
    return BatchView(memoryview(bytearray(made)))


def sent(rows: list[Outgoing]) -> list[BatchView]:
    """The batches as the target reads them: a producer must be allowed to send each of them."""
    views = []
    for row in rows:
        data = memoryview(row.encoded(STAMP))
        check_batch(data, 0, len(data))
        view = BatchView(data)
        assert view.count == view.last_offset_delta + 1 == row.count
        assert (view.base_offset, view.attributes & ~7) == (0, 0x10)
        assert (view.producer_id, view.producer_epoch, view.base_sequence) == STAMP[:3]
        views.append(view)
    return views


def contents(views: list[BatchView]) -> list[tuple[object, ...]]:
    return [record[1:] for view in views for record in view.records()]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_large_batch_is_passed_on_compressed_as_it_is(codec: str) -> None:
    source = batch(500, 3, SMALL_BYTES, codec, producer_id=9)
    (row,) = outgoing([source], 500)
    (view,) = sent([row])
    assert bytes(view.payload) == bytes(source.payload)
    assert contents([view]) == contents([source])
    assert (row.first, row.last) == (500, 502)


def test_small_neighbours_become_one_batch_and_a_small_one_alone_is_passed_on() -> None:
    rows = outgoing([batch(0, 2), batch(2, 1), batch(3, 4)], 0)
    assert [(row.first, row.last) for row in rows] == [(0, 6)]
    assert contents(sent(rows)) == contents([batch(0, 2), batch(2, 1), batch(3, 4)])
    alone = batch(7, 1)
    assert bytes(sent(outgoing([alone], 7))[0].payload) == bytes(alone.payload)


def test_batches_of_different_codecs_are_not_joined() -> None:
    rows = outgoing([batch(0, 1, codec="lz4"), batch(1, 1, codec="lz4"), batch(2, 1), batch(3, 1)], 0)
    assert [(row.first, row.last, row.compression) for row in rows] == [(0, 1, CODEC_IDS["lz4"]), (2, 3, 0)]


def test_records_before_the_position_stay_out() -> None:
    (row,) = outgoing([batch(10, 5, SMALL_BYTES)], 13)
    assert (row.first, row.last) == (13, 14)
    assert [key for _, key, *_ in contents(sent([row]))] == [b"k13", b"k14"]


def test_a_batch_that_lost_records_by_compaction_is_encoded_again() -> None:
    source = batch(0, 4, SMALL_BYTES)
    records = source.records()
    holes = BatchView(memoryview(rebuild_batch(source, [records[1], records[3]], delete_horizon_ms=NOW)))
    (row,) = outgoing([holes], 0)
    assert (row.first, row.last, row.source_offset(0), row.source_offset(1)) == (1, 3, 1, 3)
    assert contents(sent([row])) == [records[1][1:], records[3][1:]]


def test_timestamps_of_the_source_broker_become_those_of_the_records() -> None:
    source = batch(0, 2, SMALL_BYTES)
    data = bytearray(source.buffer)
    patch_timestamp(data, 0, LOG_APPEND_TIME, NOW + 99)
    (view,) = sent(outgoing([BatchView(memoryview(data))], 0))
    assert [record.timestamp for record in view.records()] == [NOW + 99] * 2


def test_a_batch_above_the_targets_limit_is_cut_and_a_record_above_it_is_named() -> None:
    rows = outgoing([batch(0, 6, 1_000)], 0, 2_500)
    assert [(row.first, row.last) for row in rows] == [(0, 1), (2, 3), (4, 5)]
    assert all(view.size <= 2_500 for view in sent(rows))
    with pytest.raises(TooLargeRecord) as caught:
        outgoing([batch(20, 2, 3_000)], 20, 2_500)
    assert caught.value.offset == 20


def test_a_position_has_a_batch_of_its_own() -> None:
    (view,) = sent([Outgoing(None, [Record(0, NOW, b"k", b"1"), Record(0, NOW, b"l", b"2")], 0)])
    assert contents([view]) == [(NOW, b"k", b"1", ()), (NOW, b"l", b"2", ())]
