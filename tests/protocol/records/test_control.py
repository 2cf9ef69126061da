"""Malformed control records; the valid ones are in test_golden.py."""

from __future__ import annotations

import pytest

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import BatchView
from ottla.protocol.records.builder import build_batch, rebuild_batch
from ottla.protocol.records.control import control_type, end_txn_batch, end_txn_marker

NOW = 1_700_000_000_000


def control(key: bytes | None, value: bytes | None) -> BatchView:
    return BatchView(memoryview(build_batch([(key, value, NOW)], control=True)))


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0"])
def test_a_key_that_is_too_short_is_corrupt(key: bytes | None) -> None:
    with pytest.raises(KafkaError) as caught:
        end_txn_marker(control(key, b""))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_marker_without_its_value_is_corrupt() -> None:
    with pytest.raises(KafkaError) as caught:
        end_txn_marker(control(b"\0\0\0\1", b"\0\0"))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_type_of_a_newer_kafka_is_not_ours_to_judge() -> None:
    (record,) = control(b"\0\1\0\x63 and more", b"").records()
    assert control_type(record) is None


def test_a_marker_that_compaction_emptied_says_nothing() -> None:
    marker = BatchView(
        memoryview(end_txn_batch(committed=True, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=NOW))
    )
    assert end_txn_marker(BatchView(memoryview(rebuild_batch(marker, [])))) is None
