"""Records for a topic's table that are in remote storage alone (KIP-405): the broker reads them, the process beside it has files only.

The process says from which offset on it needs some of a partition. The broker reads one slice of them, as a consumer of committed
records does, and the next job has them. Partitions take turns, so that one slice is in memory at a time. What is not used is read
again: a table's position may be another one by then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.broker.replication.partition_log import LedLog
from ottla.broker.share.remote_records import TieredReads
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import iter_batches
from ottla.server.table_work import FetchedRecords, TableReport, TableSpan

#: The bytes of a slice: they are in memory here, in the pipe, and in the process.
SLICE_BYTES = 16 << 20
#: The reason for which a table waits if they cannot be read.
REMOTE = "remote storage"


class Slice(NamedTuple):
    """The records that were read for one partition, or why none could be read. It is empty if no partition needs any."""

    partition: int = -1
    records: FetchedRecords | None = None
    failure: str = ""

    def with_span(self, span: TableSpan) -> TableSpan:
        return span._replace(fetched=self.records) if span.partition == self.partition else span

    def with_report(self, report: TableReport) -> TableReport:
        """Return a report that waits for remote storage, unless it waits already, or the partition needs the records no more."""
        if not self.failure or report.waits or self.partition not in dict(report.wanted):
            return report
        return report._replace(kind=REMOTE, waits=self.failure, more=False)


class RemoteSlices:
    """The slices of one topic."""

    def __init__(self) -> None:
        self._last = -1

    async def next_slice(
        self, wanted: Mapping[int, int], led: Mapping[int, LedLog], reads: TieredReads | None
    ) -> Slice:
        """Read for the partition whose turn it is, if the table needs records of one that this broker leads."""
        partitions = sorted(wanted.keys() & led.keys())
        if not partitions:
            return Slice()
        partition = self._last = next((each for each in partitions if each > self._last), partitions[0])
        offset = wanted[partition]
        if reads is None:
            return Slice(
                partition,
                failure=f"offset {offset} of partition {partition} is in remote storage, which this broker does not have",
            )
        try:
            return Slice(partition, await _read(reads, led[partition], offset))
        except KafkaError as fault:
            if fault.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                return Slice()  # retention was faster, and the next job has the new log start
            return Slice(
                partition,
                failure=f"offset {offset} of partition {partition} cannot be read from remote storage: {fault}",
            )


async def _read(reads: TieredReads, led: LedLog, first: int) -> FetchedRecords | None:
    """Return a slice, None if the quota allows none now. Raises KafkaError."""
    log, offset, size = led.log, first, 0
    parts, aborted = list[bytes](), set[tuple[int, int]]()
    while size < SLICE_BYTES and offset < log.local_start_offset and led.still_holds:
        found = await reads.read(led.partition, log, offset, SLICE_BYTES - size, read_committed=True)
        if not found.records:
            break
        parts.append(found.records)
        size += len(found.records)
        aborted.update((each.producer_id, each.first_offset) for each in found.aborted)
        offset = max(each.next_offset for each in iter_batches(found.records))
    return FetchedRecords(first, offset, b"".join(parts), tuple(sorted(aborted))) if parts else None
