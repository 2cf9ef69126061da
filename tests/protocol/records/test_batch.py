"""The header: views, walking over batches, changes in place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import BatchView, check_batch, iter_batches, patch_timestamp
from ottla.protocol.records.builder import build_batch
from tests.protocol.records.reference import patch_offset

NOW = 1_700_000_000_000


def batch_of(count: int, base_offset: int = 0) -> bytes:
    return build_batch([(b"k", b"v%d" % i, NOW + i) for i in range(count)], base_offset=base_offset)


def test_walking_stops_at_a_batch_that_is_cut() -> None:
    data = batch_of(1) + batch_of(3, base_offset=1) + batch_of(2, base_offset=4)[:-1]
    assert [(view.base_offset, view.last_offset, view.count) for view in iter_batches(data)] == [(0, 0, 1), (1, 3, 3)]


def test_walking_a_part_of_a_buffer() -> None:
    first, second = batch_of(1), batch_of(3, base_offset=1)
    data = b"xx" + first + second
    assert [view.base_offset for view in iter_batches(data, 2, 2 + len(first))] == [0]
    assert [bytes(view.buffer) for view in iter_batches(data, 2 + len(first))] == [second]


@pytest.mark.parametrize("at, value", [(16, 1), (16, 3), (8, 0xFF), (11, 5)])
def test_walking_refuses_what_is_no_batch(at: int, value: int) -> None:
    data = bytearray(batch_of(1))
    if at == 11:
        data[8:11] = bytes(3)
    data[at] = value
    with pytest.raises(KafkaError) as caught:
        list(iter_batches(data))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_every_flipped_bit_that_the_crc_covers_is_found() -> None:
    good = batch_of(2)
    for at in range(16, len(good)):
        bad = bytearray(good)
        bad[at] ^= 0x10
        with pytest.raises(KafkaError) as caught:
            check_batch(memoryview(bad), 0, len(bad))
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_moving_a_batch_leaves_the_crc_right() -> None:
    data = bytearray(b"pad" + batch_of(4))
    patch_offset(data, 3, 2**40, len(data) - 3 - 12, 17)
    check_batch(memoryview(data), 3, len(data))
    view = BatchView(memoryview(data), 3)
    assert (view.base_offset, view.next_offset, view.partition_leader_epoch) == (2**40, 2**40 + 4, 17)
    assert [record.offset for record in view.records()] == [2**40 + i for i in range(4)]


def test_log_append_time_and_back() -> None:
    data = bytearray(batch_of(3))
    patch_timestamp(data, 0, 1, NOW + 999)
    check_batch(memoryview(data), 0, len(data))
    assert [record.timestamp for record in BatchView(memoryview(data)).records()] == [NOW + 999] * 3
    patch_timestamp(data, 0, 0, NOW + 2)
    assert bytes(data) == batch_of(3)


@given(st.binary(max_size=200))
def test_any_bytes_give_batches_or_a_typed_error(data: bytes) -> None:
    try:
        for view in iter_batches(data):
            view.records()
    except KafkaError as fault:
        assert fault.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)
