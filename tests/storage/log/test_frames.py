"""Compressed batches are read once when they are produced: an unreadable one is refused, and stops no consumer."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import ATTRIBUTES_AT, COUNT_AT, CRC_AT, HEADER_BYTES, crc32c
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.compression import CODECS
from ottla.protocol.work import BYTES_A_TURN, TooLong, Turn, do_now
from ottla.storage.log.log import Log
from ottla.storage.log.lookup import prepare_append
from ottla.storage.log_config import LogConfig
from tests.storage.logs_for_tests import NOW_MS, open_at

COMPRESSED = range(1, len(CODECS))
VALUES = {"small": bytes(range(256)) * 4, "large": bytes(range(256)) * (BYTES_A_TURN // 128)}


def compressed(codec: int, value: bytes) -> bytearray:
    return bytearray(build_batch([(None, value, NOW_MS)], compression=codec))


def signed(batch: bytearray) -> memoryview:
    """Give a changed batch the CRC of what is in it now."""
    batch[CRC_AT : CRC_AT + 4] = crc32c(memoryview(batch)[ATTRIBUTES_AT:]).to_bytes(4, "big")
    return memoryview(batch)


def broken(codec: int, value: bytes) -> memoryview:
    batch = compressed(codec, value)
    for at in range(HEADER_BYTES, len(batch)):
        batch[at] ^= 0x5A
    return signed(batch)


def produce(log: Log, batch: memoryview) -> int:
    """Append as a Produce does: at once, or prepared in turns and on a worker."""
    try:
        return log.append(batch, leader_epoch=0, now_ms=NOW_MS, prepared=Turn()).last_offset
    except TooLong:
        prepared = do_now(prepare_append(log, batch, NOW_MS, Turn()))
        return log.append(batch, leader_epoch=0, now_ms=NOW_MS, prepared=prepared).last_offset


@pytest.fixture
def log(tmp_path: Path) -> Log:
    log = open_at(tmp_path, LogConfig())
    produce(log, memoryview(build_batch([(None, b"first", NOW_MS)])))
    return log


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("size", VALUES)
def test_unreadable_frames_are_refused(log: Log, codec: int, size: str) -> None:
    with pytest.raises(KafkaError) as refused:
        produce(log, broken(codec, VALUES[size]))
    assert refused.value.code == ErrorCode.INVALID_RECORD
    assert log.log_end_offset == 1
    batch = compressed(codec, VALUES[size])
    assert produce(log, memoryview(batch)) == 1
    stored = log.read(1, max_bytes=1 << 20).records
    assert bytes(stored)[HEADER_BYTES:] == bytes(batch)[HEADER_BYTES:], "it is stored as it came"


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_large_batch_is_read_beside_the_loop(log: Log, codec: int) -> None:
    with pytest.raises(TooLong):
        log.append(memoryview(compressed(codec, VALUES["large"])), leader_epoch=0, now_ms=NOW_MS, prepared=Turn())
    assert log.log_end_offset == 1


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_batch_whose_frames_are_too_short_for_its_records_is_refused(log: Log, codec: int) -> None:
    batch = compressed(codec, b"x")
    batch[COUNT_AT : COUNT_AT + 4] = (50).to_bytes(4, "big")
    batch[23:27] = (49).to_bytes(4, "big")
    with pytest.raises(KafkaError) as refused:
        produce(log, signed(batch))
    assert refused.value.code == ErrorCode.INVALID_RECORD
