"""The records of a partition's own segment files as Parquet, for the translator of its leader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ottla.columns.batches import BatchFilter
from ottla.columns.rows import RowColumns
from ottla.columns.segments import SegmentFiles
from ottla.tables.layout import KAFKA, RECORD_COLUMNS, RowLayout, SchemaMoved
from ottla.tables.table import Owner
from ottla.tables.translating import Translated

#: A file ends after so many bytes of columns. What is translated is in memory until it is in the store: no file lies on the log's disk.
FILE_BYTES_MAX = 64 * 1024 * 1024
COMPRESSION, LEVEL = "zstd", 1
#: Offsets and times grow by little from row to row.
DELTAS = {f"{KAFKA}.offset": "DELTA_BINARY_PACKED", f"{KAFKA}.timestamp": "DELTA_BINARY_PACKED"}


class SegmentsGone(Exception):
    """Retention has deleted what was to be translated. The node knows the new start of its log."""


class SegmentSource:
    """The files of one partition."""

    def __init__(self, folder: str, owner: Owner, partition: int, layout: RowLayout) -> None:
        self._folder = Path(folder)
        self._owner = owner
        self._partition = partition
        self._layout = layout

    def translate(self, first: int, end: int) -> Translated:
        """Translate as `FileSource` has it.

        Raises:
            SegmentsGone: see there.
            SchemaMoved: the first records are of a newer schema, and need another layout.
            RegistryWaits: the schema registry cannot be asked.
            ColumnsError: records are damaged.
        """
        rows, rejected = ParquetBuffer(self._layout.schema), ParquetBuffer(self._layout.rejected_schema)
        next_ = first
        for records, behind in self._records(first, end):
            try:
                good, bad = self._layout.rows(records)
            except SchemaMoved:
                if next_ == first:
                    raise
                break  # the file has the columns of the former schema
            next_ = behind
            rows.add(good)
            rejected.add(bad)
            if rows.column_bytes + rejected.column_bytes >= FILE_BYTES_MAX:
                break
        else:
            next_ = end
        keys = self._owner._asdict() | {"partition": self._partition, "first": first, "next": next_}
        footer = {f"ottla.{name}": str(value) for name, value in keys.items()}
        return Translated(next_, rows.rows, rows.finish(footer), rejected.rows, rejected.finish(footer))

    def _records(self, first: int, end: int) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield records, and the offset behind them."""
        place = f"{self._owner.topic}-{self._partition}"
        wanted = BatchFilter(place, first, end)
        files = SegmentFiles(self._folder)
        if files.first is None or first < files.first:
            raise SegmentsGone(f"{place} begins at {files.first}, and {first} was to be translated")
        wanted.announce(files.aborted())
        columns = RowColumns(self._owner.topic, self._partition, first, end, RECORD_COLUMNS)
        try:
            for records in columns.batches(files.batches(wanted)):
                if len(records):
                    yield records, records.column("offset")[-1].as_py() + 1
        except FileNotFoundError as fault:
            raise SegmentsGone(f"{place}: {fault}") from fault


class ParquetBuffer:
    """A Parquet file in memory."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._sink = pa.BufferOutputStream()
        self._writer: pq.ParquetWriter | None = None
        self.rows = 0
        self.column_bytes = 0

    def add(self, rows: pa.RecordBatch) -> None:
        if not len(rows):
            return
        if self._writer is None:
            self._writer = parquet_writer(self._sink, self._schema)
        self._writer.write_batch(rows)
        self.rows += len(rows)
        self.column_bytes += rows.nbytes

    def finish(self, footer: dict[str, str]) -> bytes:
        """Return the file with these keys in its footer, or no bytes without rows."""
        if self._writer is None:
            return b""
        self._writer.add_key_value_metadata(footer)
        self._writer.close()
        data: bytes = self._sink.getvalue().to_pybytes()
        return data


def parquet_writer(sink: Any, schema: pa.Schema) -> pq.ParquetWriter:
    """Return a writer of a table's files."""
    return pq.ParquetWriter(
        sink,
        schema,
        compression=COMPRESSION,
        compression_level=LEVEL,
        use_dictionary=[name for name in _leaves(schema) if name not in DELTAS],
        column_encoding=DELTAS,
    )


def _leaves(schema: pa.Schema) -> list[str]:
    """Return the paths of the columns as Parquet has them."""
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink)
    made = pq.ParquetFile(sink.getvalue()).schema
    return [made.column(number).path for number in range(len(made))]
