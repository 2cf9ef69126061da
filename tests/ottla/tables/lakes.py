"""Tables without a cluster: the test makes the offers of a leader from rows, and the committer commits them as usual."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from ottla.columns.rows import HEADERS, TIMESTAMP
from ottla.server.config.tables.topic_tables import FILES
from ottla.server.table_work import TableSettings
from ottla.tables.offers import NOT_BEGUN, Offer, TablePosition
from ottla.tables.opening import OpenTables, open_tables
from ottla.tables.table import Owner

BEGAN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
KINDS = {
    "key": pa.binary(),
    "value": pa.binary(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": TIMESTAMP,
    "timestampType": pa.int32(),
    "leaderEpoch": pa.int32(),
    "headers": HEADERS,
}


class Lake:
    """The tables at a location."""

    def __init__(self, location: str, **options: str) -> None:
        self.location = location
        self.options = options

    def add(self, topic: str, values: list[bytes], format_: str = "iceberg", value: str = "string") -> None:
        """Commit values as the next records of partition 0. If `value` is "string", values that are no UTF-8 are rejected."""
        opened = self.open(topic, format_, value)
        last = opened.log.last()
        after = TablePosition(0, NOT_BEGUN) if last is None else last.positions[0]
        records = [
            {
                "key": b"k%d" % number,
                "value": each,
                "partition": 0,
                "offset": after.next + number,
                "timestamp": BEGAN,
                "timestampType": 0,
                "leaderEpoch": 0,
            }
            for number, each in enumerate(values)
        ]
        batch = pa.RecordBatch.from_pylist(records, pa.schema([*KINDS.items()]))
        rows, rejected = opened.layout.rows(batch)
        suffix = "parquet" if len(rows) else "none"
        offer = Offer(
            0, after, after.next, after.next + len(values), 0, len(rows), len(rejected), f"{uuid4().hex}", suffix
        )
        if len(rejected):
            opened.store.put(offer.rejected_name, parquet(rejected))
        opened.store.put(offer.name, parquet(rows) if len(rows) else b"")
        opened.committer.run(1)

    def open(self, topic: str, format_: str, value: str) -> OpenTables:
        settings = TableSettings(format_, self.location, FILES, "string", value, self.options)
        return open_tables(settings, Owner("a-cluster", f"id-of-{topic}", topic))


def parquet(rows: pa.RecordBatch) -> bytes:
    written = io.BytesIO()
    pq.write_table(pa.Table.from_batches([rows]), written)
    return written.getvalue()
