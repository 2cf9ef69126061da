"""Noise that replaces records: lengths, offsets and times are the same, CRCs are valid in each codec, and nothing of the
originals remains.
"""

from __future__ import annotations

import pytest

from ottla.protocol.records.batch import BatchView, crc32c
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.compression import CODECS
from ottla.protocol.records.control import end_txn_batch
from ottla.protocol.records.record import Record
from ottla.traffic import record_noise
from ottla.traffic.record_noise import RecordNoise

ROWS = [
    (b"alice", b"hunter2" * 9, 1000, (("h", b"hunter2"), ("none", None))),
    (b"bob", None, 1500, ()),
    (b"alice", b"", 900, ()),
    (None, b"x" * 300, 2000, ()),
]


def batch_of(codec: int, **options: int) -> bytes:
    return build_batch(
        ROWS, base_offset=70, compression=codec, producer_id=9, producer_epoch=2, base_sequence=4, **options
    )


def noisy(data: bytes) -> bytes:
    found = RecordNoise(b"key").records(data)
    assert found is not None
    return found


def records_of(data: bytes) -> list[Record]:
    return BatchView(memoryview(data)).records()


@pytest.mark.parametrize("codec", range(len(CODECS)))
def test_a_batch_keeps_all_but_what_its_records_say(codec: int) -> None:
    before = batch_of(codec)
    after = noisy(before)
    one, other = BatchView(memoryview(before)), BatchView(memoryview(after))
    assert crc32c(after[21:]) == other.crc
    for name in ("base_offset", "attributes", "last_offset_delta", "base_timestamp", "max_timestamp", "producer_id"):
        assert getattr(one, name) == getattr(other, name)
    assert (one.producer_epoch, one.base_sequence, one.count) == (
        other.producer_epoch,
        other.base_sequence,
        other.count,
    )
    for was, now in zip(one.records(), other.records(), strict=True):
        assert (was.offset, was.timestamp) == (now.offset, now.timestamp)
        assert [None if each is None else len(each) for each in (was.key, was.value)] == [
            None if each is None else len(each) for each in (now.key, now.value)
        ]
        assert [(name, value and len(value)) for name, value in was.headers] == [
            (name, value and len(value)) for name, value in now.headers
        ]
        assert was.key is None or now.key != was.key
    assert b"hunter2" not in b"".join(record.value or b"" for record in other.records())


def test_equal_keys_stay_equal_and_another_recording_has_other_noise() -> None:
    keys = [record.key for record in records_of(noisy(batch_of(0)))]
    assert keys[0] == keys[2] != keys[1]
    assert RecordNoise(b"other").records(batch_of(0)) != noisy(batch_of(0))


def test_markers_stay_and_what_cannot_be_read_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    marker = end_txn_batch(committed=True, producer_id=9, producer_epoch=2, coordinator_epoch=0, timestamp=1000)
    good = batch_of(0)
    damaged = bytearray(batch_of(0))
    damaged[60] = 200  # more records than there are
    assert noisy(marker + bytes(damaged) + good + good[:-5]) == marker + noisy(good)
    monkeypatch.setattr(record_noise, "UNPACKED_BYTES_MAX", 100)
    assert noisy(batch_of(1) + marker) == marker
