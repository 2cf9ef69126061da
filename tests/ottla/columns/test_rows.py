"""Records become Arrow columns: compared with the plain decoder, and tried with bytes that are no records."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.needs import needs_packages

needs_packages("pyarrow")

from ottla.columns.batches import ColumnsError
from ottla.columns.layout import Layout
from ottla.columns.rows import TYPES, RowColumns
from ottla.protocol.errors import KafkaError
from ottla.protocol.records.batch import BatchView
from ottla.protocol.records.builder import build_batch

FIELD = st.none() | st.binary(max_size=200)
HEADER_NAME = st.text(max_size=5)
RECORDS = st.lists(
    st.tuples(FIELD, FIELD, st.integers(0, 2**40), st.lists(st.tuples(HEADER_NAME, FIELD), max_size=3)),
    min_size=1,
    max_size=40,
)


def view(rows: Any, **given: Any) -> BatchView:
    return BatchView(memoryview(build_batch(rows, **given)))


@given(st.lists(RECORDS, min_size=1, max_size=4), st.integers(0, 4), st.integers(0, 2**40), st.integers(0, 30))
def test_rows_are_those_of_the_plain_decoder(lists: list[Any], codec: int, base: int, cut: int) -> None:
    batches, expected = [], []
    for rows in lists:
        batches.append(view(rows, base_offset=base, compression=codec))
        expected += batches[-1].records()
        base = batches[-1].next_offset
    start = expected[0].offset + cut
    found = [row for part in RowColumns("t", 3, start, base - 1, TYPES).batches(batches) for row in part.to_pylist()]
    wanted = [record for record in expected if start <= record.offset < base - 1]
    assert [(row["offset"], row["key"], row["value"]) for row in found] == [
        (record.offset, record.key, record.value) for record in wanted
    ]
    for row, record in zip(found, wanted, strict=True):
        assert row["timestamp"].timestamp() * 1000 == pytest.approx(record.timestamp)
        assert (row["topic"], row["partition"], row["timestampType"]) == ("t", 3, 0)
        headers = [(each["key"], each["value"]) for each in row["headers"]] if row["headers"] is not None else []
        assert headers == list(record.headers)


def test_a_time_that_the_broker_gave_is_that_of_all_records() -> None:
    batch = view([(None, b"v", 5), (None, b"v", 7)], timestamp_type=1)
    (found,) = RowColumns("t", 0, 0, 10, ("timestampType", "timestamp")).batches([batch])
    assert found["timestampType"].to_pylist() == [1, 1]
    assert [time.timestamp() for time in found["timestamp"].to_pylist()] == [0.007, 0.007]


@given(RECORDS, st.data())
def test_damaged_bytes_are_an_error_or_records_and_never_anything_else(rows: Any, data: st.DataObject) -> None:
    payload = bytearray(view(rows).payload)
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    layout = Layout()
    try:
        layout.add(bytes(payload), len(rows), 0, 0, None)
        fields = layout.fields()
        for index in fields.headers:
            layout.headers_of(index, fields.value_ends[index])
    except KafkaError:
        return
    assert len(layout) == len(rows)


def test_a_count_that_the_bytes_cannot_hold_is_rejected_before_anything_is_allocated() -> None:
    with pytest.raises(KafkaError, match="record count 1000000"):
        Layout().add(b"\0" * 100, 1_000_000, 0, 0, None)


def test_a_batch_that_cannot_be_read_is_named_by_its_offset() -> None:
    batch = view([(None, b"v", 0)], base_offset=12)
    batch.buffer = memoryview(bytes(batch.buffer[:-1]) + b"\x09")
    with pytest.raises(ColumnsError, match="t-0: the records at offset 12 cannot be read"):
        list(RowColumns("t", 0, 0, 100, ("headers",)).batches([batch]))


def test_a_timestamp_that_is_too_large_for_spark_is_an_error() -> None:
    with pytest.raises(ColumnsError, match="overflow"):
        list(RowColumns("t", 0, 0, 9, ("timestamp",)).batches([view([(None, b"v", 2**62)])]))


def test_a_task_that_reads_does_not_import_pandas() -> None:
    """Importing pandas would take 0.2 s of CPU in each process of a task, and some micro-batches have several processes."""
    program = """
import sys
import ottla.spark
from ottla.protocol.records.batch import BatchView
from ottla.protocol.records.builder import build_batch
from ottla.spark.options import COLUMNS
from ottla.columns.rows import TYPES, RowColumns
batch = BatchView(memoryview(build_batch([(b"k", None, 5), (None, b"v", 6)])))
(rows,) = RowColumns("t", 1, 0, 9, COLUMNS).batches([batch])
print(len(rows), "pandas" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["2", "False"]
