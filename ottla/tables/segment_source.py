"""The records in a partition's own segment files become Parquet files, for the translator of its leader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ottla.columns.batches import BatchFilter
from ottla.columns.rows import RowColumns
from ottla.columns.segments import SegmentFiles
from ottla.protocol.records.batch import BatchView
from ottla.server.config.tables.topic_tables import UNPARTITIONED
from ottla.server.table_work import FetchedRecords
from ottla.tables.layout import KAFKA, RECORD_COLUMNS, RowLayout, SchemaMoved
from ottla.tables.offers import SUFFIX_OF
from ottla.tables.partitioning import PARTS_MAX, FilePart, length_us, listed
from ottla.tables.table import Owner
from ottla.tables.translating import Translated, TranslatedPart

#: A file ends after this many bytes of columns. A translated file is in memory until it is in the store: nothing is written to
#: the log's disk.
FILE_BYTES_MAX = 64 * 1024 * 1024
COMPRESSION, LEVEL = "zstd", 1
#: Offsets and times grow only little from row to row.
DELTAS = {f"{KAFKA}.offset": "DELTA_BINARY_PACKED", f"{KAFKA}.timestamp": "DELTA_BINARY_PACKED"}


class SegmentsGone(Exception):
    """Retention has deleted segments that were to be translated. The node knows the new log start offset."""


class RecordsAway(Exception):
    """Records that are to be translated are in remote storage alone. The broker fetches them from `offset` on."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"the records from offset {offset} on are in remote storage")
        self.offset = offset


class SegmentSource:
    """The files of one partition, and what the broker has fetched of the records before them."""

    def __init__(
        self,
        folder: str,
        owner: Owner,
        partition: int,
        layout: RowLayout,
        parted: str = UNPARTITIONED,
        *,
        keeps_rejected: bool = True,
    ) -> None:
        """Take the table's partitioning. Unless rejected records are kept, they are only counted."""
        self._parted = parted
        self._folder = Path(folder)
        self._keeps_rejected = keeps_rejected
        self._owner = owner
        self._partition = partition
        self._layout = layout
        self._local_start = 0
        self._fetched: FetchedRecords | None = None

    def see(self, local_start: int, fetched: FetchedRecords | None) -> None:
        """Take the first offset that the folder has, and records before it."""
        self._local_start, self._fetched = local_start, fetched

    def translate(self, first: int, end: int) -> Translated:
        """Translate as described at `FileSource`.

        Raises:
            SegmentsGone: see there.
            RecordsAway: the first record is neither in the folder nor fetched.
            SchemaMoved: the first records have a newer schema, and need another layout.
            RegistryWaits: the schema registry cannot be reached.
            ColumnsError: records are damaged.
        """
        rows, rejected = PartedBuffers(self._layout.schema, self._parted), ParquetBuffer(self._layout.rejected_schema)
        next_, left_out = first, 0
        fetched = self._fetched_at(first)
        if fetched is not None:
            end = min(end, fetched.next)
        for records in self._records(first, end, fetched):
            room = rows.room_for(records)
            if not room:
                break
            try:
                good, bad = self._layout.rows(records.slice(0, room))
            except SchemaMoved:
                if next_ == first:
                    raise
                break  # the file keeps the columns of the former schema
            next_ = records.column("offset")[room - 1].as_py() + 1
            rows.add(good)
            if self._keeps_rejected:
                rejected.add(bad)
            else:
                left_out += len(bad)
            if rows.column_bytes + rejected.column_bytes >= FILE_BYTES_MAX or room < len(records):
                break
        else:
            next_ = end
        keys = self._owner._asdict() | {"partition": self._partition, "first": first, "next": next_}
        footer = {f"ottla.{name}": str(value) for name, value in keys.items()}
        data, parts = rows.finish(footer)
        rejected_data = rejected.finish(footer)
        suffix = SUFFIX_OF[self._parted]
        return Translated(next_, rows.rows, data, left_out + rejected.rows, rejected_data, suffix, parts)

    def _fetched_at(self, first: int) -> FetchedRecords | None:
        """Return the fetched records if the first one is among them, None if it is in the folder. Raises RecordsAway."""
        if first >= self._local_start:
            return None
        fetched = self._fetched
        if fetched is None or not fetched.first <= first < fetched.next:
            raise RecordsAway(first)
        return fetched

    def _records(self, first: int, end: int, fetched: FetchedRecords | None) -> Iterator[pa.RecordBatch]:
        wanted = BatchFilter(self._place, first, end)
        columns = RowColumns(self._owner.topic, self._partition, first, end, RECORD_COLUMNS)
        if fetched is not None:
            wanted.announce(fetched.aborted)
            batches = wanted.batches(memoryview(fetched.data))
        else:
            batches = self._batches_of_files(wanted)
        for records in columns.batches(batches):
            if len(records):
                yield records

    def _batches_of_files(self, wanted: BatchFilter) -> Iterator[BatchView]:
        files, first = SegmentFiles(self._folder), wanted.position
        if files.first is None or first < files.first:
            raise SegmentsGone(f"{self._place} begins at {files.first}, and {first} was to be translated")
        wanted.announce(files.aborted(first))
        try:
            yield from files.batches(wanted)
        except FileNotFoundError as fault:
            raise SegmentsGone(f"{self._place}: {fault}") from fault

    @property
    def _place(self) -> str:
        return f"{self._owner.topic}-{self._partition}"


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
        """Return the file with these keys in its footer, or no bytes if it has no rows."""
        if self._writer is None:
            return b""
        self._writer.add_key_value_metadata(footer)
        self._writer.close()
        data: bytes = self._sink.getvalue().to_pybytes()
        return data


class PartedBuffers:
    """The file of an offer, or one file for each day or hour of its rows."""

    def __init__(self, schema: pa.Schema, parted: str) -> None:
        self._schema = schema
        self._length_us = 0 if parted == UNPARTITIONED else length_us(parted)
        #: The buffers, by the number of the day or hour. A table that is not partitioned has the number 0.
        self._buffers: dict[int, ParquetBuffer] = {}

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self._buffers.values())

    @property
    def column_bytes(self) -> int:
        return sum(each.column_bytes for each in self._buffers.values())

    def room_for(self, records: pa.RecordBatch) -> int:
        """Return the number of records at the beginning that do not need too many days or hours."""
        if not self._length_us:
            return len(records)
        values, places = np.unique(self._values(records.column("timestamp")), return_index=True)
        new = sorted(
            place for value, place in zip(values.tolist(), places.tolist(), strict=True) if value not in self._buffers
        )
        free = PARTS_MAX - len(self._buffers)
        return len(records) if len(new) <= free else int(new[free])

    def add(self, rows: pa.RecordBatch) -> None:
        if not self._length_us:
            self._buffer(0).add(rows)
            return
        values = self._values(rows.column(KAFKA).field("timestamp"))
        for value in np.unique(values).tolist():
            self._buffer(value).add(rows.filter(pa.array(values == value)))

    def finish(self, footer: dict[str, str]) -> tuple[bytes, tuple[TranslatedPart, ...]]:
        """Return the bytes of the offer, and the files in its list."""
        if not self._length_us:
            return self._buffer(0).finish(footer), ()
        made = [(each, TranslatedPart(value, each.finish(footer))) for value, each in sorted(self._buffers.items())]
        return listed([FilePart(part.value, each.rows, len(part.data)) for each, part in made]), tuple(
            part for _, part in made
        )

    def _values(self, timestamps: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
        made: np.ndarray[Any, np.dtype[np.int64]] = timestamps.cast(pa.int64()).to_numpy(zero_copy_only=False)
        return made // self._length_us

    def _buffer(self, value: int) -> ParquetBuffer:
        return self._buffers.setdefault(value, ParquetBuffer(self._schema))


def parquet_writer(sink: Any, schema: pa.Schema) -> pq.ParquetWriter:
    """Return a Parquet writer for a table's files."""
    return pq.ParquetWriter(
        sink,
        schema,
        compression=COMPRESSION,
        compression_level=LEVEL,
        use_dictionary=[name for name in _leaves(schema) if name not in DELTAS],
        column_encoding=DELTAS,
    )


def _leaves(schema: pa.Schema) -> list[str]:
    """Return the paths of the columns in Parquet's form."""
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink)
    made = pq.ParquetFile(sink.getvalue()).schema
    return [made.column(number).path for number in range(len(made))]
