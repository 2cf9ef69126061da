"""A topic's records and its tables in one process, without a node, for tests of formats, catalogs and stores."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any

import pyarrow as pa

from ottla.columns.rows import HEADERS, TIMESTAMP
from ottla.server.config.tables.topic_tables import UNPARTITIONED
from ottla.server.table_work import TableSettings
from ottla.tables.committing import CommitProgress
from ottla.tables.layout import RECORD_COLUMNS, RowLayout
from ottla.tables.offers import SUFFIX_OF
from ottla.tables.opening import open_tables
from ottla.tables.segment_source import ParquetBuffer, PartedBuffers
from ottla.tables.table import CommitConflict, CommitUnknown, Owner
from ottla.tables.translating import CommittedSpan, EpochStart, Translated, Translator

OWNER = Owner("cluster", "topic-id", "orders")
TYPES = (
    pa.binary(),
    pa.binary(),
    pa.int32(),
    pa.int64(),
    TIMESTAMP,
    pa.int32(),
    pa.int32(),
    HEADERS,
)
UIDS = count(1)


class Records:
    """The log of one partition, whose values are bytes. A column of strings rejects those that are no UTF-8."""

    def __init__(self, partition: int, layout: RowLayout, parted: str = UNPARTITIONED) -> None:
        """Take the table's partitioning.

        Each record is half a day later than the one before it, or a microsecond if there is no partitioning.
        """
        self._partition = partition
        self._layout = layout
        self._parted = parted
        self.step_us = 1 if parted == UNPARTITIONED else 43_200_000_000
        self.values: list[bytes] = []

    def span(self) -> CommittedSpan:
        return CommittedSpan(self._partition, 0, 0, len(self.values), (EpochStart(0, 0),))

    def translate(self, first: int, end: int) -> Translated:
        rows = [
            (b"k", self.values[offset], self._partition, offset, offset * self.step_us, 0, 0, None)
            for offset in range(first, end)
        ]
        columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), TYPES, strict=True)]
        good, bad = PartedBuffers(self._layout.schema, self._parted), ParquetBuffer(self._layout.rejected_schema)
        fitting, rejected = self._layout.rows(pa.RecordBatch.from_arrays(columns, RECORD_COLUMNS))
        good.add(fitting)
        bad.add(rejected)
        data, parts = good.finish({})
        return Translated(end, good.rows, data, bad.rows, bad.finish({}), SUFFIX_OF[self._parted], parts)


class TopicTables:
    """The log of a topic, the translators of its leaders and a committer of its tables."""

    def __init__(self, settings: TableSettings, partitions: int = 2, owner: Owner = OWNER) -> None:
        self.settings, self.owner = settings, owner
        self.opened = open_tables(settings, owner)
        self.logs = [Records(partition, self.opened.layout, settings.partition) for partition in range(partitions)]
        self.translators = [
            Translator(self.opened.store, log, number, 0, lambda: f"{next(UIDS):032x}")
            for number, log in enumerate(self.logs)
        ]

    def write(self, values: Iterable[bytes]) -> None:
        for number, value in enumerate(values):
            self.logs[number % len(self.logs)].values.append(value)

    def offer(self) -> None:
        last = self.opened.log.last()
        for number, (log, translator) in enumerate(zip(self.logs, self.translators, strict=True)):
            translator.offer(log.span(), last.positions.get(number) if last is not None else None)

    def commit(self) -> CommitProgress:
        return self.opened.committer.run(len(self.logs))

    def commit_at_last(self) -> CommitProgress:
        """Commit as a node does: after a failure it retries at its next commit interval."""
        for _ in range(5):
            try:
                return self.commit()
            except (CommitUnknown, CommitConflict):
                continue
        return self.commit()

    def expected(self) -> dict[tuple[int, int], bytes]:
        return {
            (number, offset): value for number, log in enumerate(self.logs) for offset, value in enumerate(log.values)
        }


def found(rows: Iterable[dict[str, Any]]) -> list[tuple[tuple[int, int], bytes]]:
    return sorted(((row["_kafka"]["partition"], row["_kafka"]["offset"]), row["value"]) for row in rows)
