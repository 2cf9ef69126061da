"""Segment files as a source, where Spark runs on the host of a replica: `segments://` and one of the broker's log.dirs.

The files are Kafka's own, so that this reads an Apache Kafka's as well. They are opened for reading only and never locked; the broker
may append, roll and delete meanwhile. Nothing beyond the high watermark is read: without addresses of brokers it is the one of
`replication-offset-checkpoint`, which brokers write every five seconds, and on a clean stop.
"""

from __future__ import annotations

import mmap
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ottla.protocol.errors import KafkaError
from ottla.protocol.primitives import uuid_from_str
from ottla.protocol.records.batch import BatchView
from ottla.spark.client.batches import Aborted, BatchFilter
from ottla.spark.client.fetch import data_loss, topic_replaced
from ottla.spark.client.offsets import READ_COMMITTED
from ottla.spark.errors import ConnectorError
from ottla.spark.options import ConnectorOptions
from ottla.spark.ranges import Offsets, Range
from ottla.storage.errors import CorruptFile
from ottla.storage.log_files import ABORTED_ENTRY, aborted_txns, offset_entries, spans

METADATA = "partition.metadata"
HIGH_WATERMARKS, LOG_STARTS = "replication-offset-checkpoint", "log-start-offset-checkpoint"


def partitions_in(directory: str) -> Offsets:
    """Return the high watermark of each partition in a log directory. Raises ConnectorError if it is none."""
    return _checkpoint(Path(directory), HIGH_WATERMARKS)


def starts_in(directory: str) -> Offsets:
    """Return the log start offset of each partition: that of the checkpoint, or of the first segment."""
    given = _checkpoint(Path(directory), LOG_STARTS)
    found = {}
    for place in partitions_in(directory):
        files = _segments(Path(directory), place)
        found[place] = max(given.get(place, 0), int(files[0].stem) if files else 0)
    return found


def _checkpoint(directory: Path, name: str) -> Offsets:
    file = directory / name
    if not file.exists():
        if name == LOG_STARTS:
            return {}
        raise ConnectorError(f"{directory} has no {name}", "segments:// takes one of the log.dirs of a broker")
    rows = (line.split() for line in file.read_text().splitlines()[2:])
    return {(topic, int(partition)): int(offset) for topic, partition, offset in rows}


def _segments(directory: Path, place: tuple[str, int]) -> list[Path]:
    return sorted((directory / f"{place[0]}-{place[1]}").glob("*.log"))


def _topic_id(directory: Path, place: tuple[str, int]) -> bytes | None:
    """Return the id in partition.metadata, or None where there is no such file: a log that Kafka before 2.8 has made."""
    try:
        text = (directory / f"{place[0]}-{place[1]}" / METADATA).read_text()
    except FileNotFoundError:
        return None
    return next(
        (uuid_from_str(line.partition(":")[2].strip()) for line in text.splitlines() if line.startswith("topic_id:")),
        None,
    )


class SegmentReader:
    """Reads a range from the files of its partition."""

    def __init__(self, directory: str, wanted: Range, options: ConnectorOptions) -> None:
        self._folder = Path(directory)
        self._place = (wanted.topic, wanted.partition)
        self._topic_id = wanted.topic_id
        self._fail_on_loss = options.fail_on_loss
        self.filter = BatchFilter(f"{directory}/{wanted.topic}-{wanted.partition}", wanted.start, wanted.end)
        self._is_committed_only = options.isolation == READ_COMMITTED

    def batches(self) -> Iterator[BatchView]:
        """Yield the batches with rows of the range. Raises ConnectorError for offsets that are gone, unless they may be."""
        files = _segments(self._folder, self._place)
        bases = [int(file.stem) for file in files]
        found = self.filter
        on_disk = _topic_id(self._folder, self._place)
        if self._topic_id is not None and on_disk not in (None, self._topic_id):
            if self._fail_on_loss:
                raise topic_replaced(*self._place, found.position)
            found.lose(found.end)
            return
        if not files or found.position < bases[0]:
            if self._fail_on_loss or not files:
                raise data_loss(found.place, found.position, bases[0] if bases else found.end)
            found.lose(bases[0])
        if self._is_committed_only:
            found.announce(row for file in files for row in _aborted(file))
        for file in files[max(0, bisect_right(bases, found.position) - 1) :]:
            if found.is_done:
                return
            try:
                yield from self._batches_of(file)
            except FileNotFoundError:  # retention has deleted it since
                if self._fail_on_loss:
                    raise data_loss(found.place, found.position, int(file.stem)) from None

    def _batches_of(self, file: Path) -> Iterator[BatchView]:
        with file.open("rb") as opened:
            opened.seek(0, 2)
            if not opened.tell():
                return
            # It is unmapped when the last batch that is a view of it is gone.
            whole = memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
        start = _position_of(file, self.filter.position)
        yield from self.filter.batches(whole[start : _written(whole, start)])


def _written(mapped: memoryview, start: int) -> int:
    """Return the end of what is written: an active segment may be preallocated with zeros behind it."""
    end = start
    with suppress(KafkaError):  # the filter says where the damage is
        for span in spans(mapped, start):
            end = span[1]
        return end
    return len(mapped)


def _position_of(file: Path, offset: int) -> int:
    """Return the position of a batch at or before the offset, by the sparse index; 0 if there is no index."""
    index = file.with_suffix(".index")
    found = 0
    if index.exists():
        for entry, position in offset_entries(index.read_bytes(), int(file.stem)):
            if entry > offset:
                break
            found = position
    return found


def _aborted(file: Path) -> Iterator[Aborted]:
    index = file.with_suffix(".txnindex")
    if index.exists():
        data = index.read_bytes()
        # A node that runs may be in the middle of writing an entry.
        whole = data[: len(data) // ABORTED_ENTRY.size * ABORTED_ENTRY.size]
        try:
            entries = aborted_txns(str(index), whole)
        except CorruptFile as fault:
            raise ConnectorError(f"{fault}", "read another replica") from None
        for txn in entries:
            yield txn.producer_id, txn.first_offset
