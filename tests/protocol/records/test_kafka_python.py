"""kafka-python's own batch classes against ours, in both directions."""

from __future__ import annotations

import pytest
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from ottla.protocol.records.batch import BatchView, check_batch
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.compression import CODECS
from ottla.protocol.records.record import NewRecord
from tests.protocol.records.golden_batches import LONG_ROWS, PLAIN_ROWS, TIME, moved

ROWS = PLAIN_ROWS + moved(LONG_ROWS, len(PLAIN_ROWS))


@pytest.mark.parametrize("codec", range(len(CODECS)), ids=[codec.name for codec in CODECS])
def test_its_batches_are_read(codec: int) -> None:
    builder = DefaultRecordBatchBuilder(
        2, codec, is_transactional=0, producer_id=5, producer_epoch=1, base_sequence=3, batch_size=10_000_000
    )
    for row in ROWS:
        assert builder.append(row.offset, row.timestamp, row.key, row.value, list(row.headers)) is not None
    data = bytes(builder.build())
    check_batch(memoryview(data), 0, len(data))
    batch = BatchView(memoryview(data))
    assert batch.compression == codec
    assert batch.records() == ROWS
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (5, 1, 3)
    assert batch.max_timestamp == TIME + 70000


@pytest.mark.parametrize("codec", range(len(CODECS)), ids=[codec.name for codec in CODECS])
def test_it_reads_ours(codec: int) -> None:
    rows = [NewRecord(row.key, row.value, row.timestamp, row.headers) for row in ROWS]
    batch = DefaultRecordBatch(build_batch(rows, compression=codec))
    assert batch.validate_crc()
    read = [(row.offset, row.timestamp, row.key, row.value, tuple(row.headers)) for row in batch]
    assert read == [tuple(row) for row in ROWS]
