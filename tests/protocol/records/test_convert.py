"""Recompression to the topic's codec."""

from __future__ import annotations

import pytest

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import BatchView, check_batch
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.compression import TARGET_CODECS
from tests.protocol.records.reference import recompress

NOW = 1_700_000_000_000
ROWS = [(b"k%d" % i, b"value " * 50, NOW + i) for i in range(50)]


@pytest.mark.parametrize("source", range(5))
@pytest.mark.parametrize("target", [name for name, codec in TARGET_CODECS.items() if codec is not None])
def test_records_producer_and_times_stay(source: int, target: str) -> None:
    codec = TARGET_CODECS[target]
    assert codec is not None
    batch = build_batch(
        ROWS, compression=source, producer_id=3, producer_epoch=2, base_sequence=1, transactional=True, leader_epoch=9
    )
    rewritten = recompress(memoryview(batch), codec)
    check_batch(memoryview(rewritten), 0, len(rewritten))
    before, after = BatchView(memoryview(batch)), BatchView(memoryview(rewritten))
    assert after.compression == codec
    assert after.records() == before.records()
    for name in ("base_offset", "partition_leader_epoch", "max_timestamp", "producer_id", "producer_epoch", "count"):
        assert getattr(after, name) == getattr(before, name), name
    assert (after.base_sequence, after.is_transactional) == (1, True)


def test_a_payload_that_cannot_be_read_is_refused() -> None:
    batch = bytearray(build_batch(ROWS, compression=4))
    batch[70:80] = bytes(10)
    with pytest.raises(KafkaError) as caught:
        recompress(memoryview(batch), 1)
    assert caught.value.code is ErrorCode.INVALID_RECORD
