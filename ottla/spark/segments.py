"""Segment files as a source, if Spark runs on the host of a replica: `segments://` and one of the broker's log.dirs.

The files are Kafka's own, so this works with Apache Kafka as well. They are opened only for reading and never locked; the
broker may append, roll and delete meanwhile. Nothing beyond the high watermark is read: without addresses of brokers it is
taken from `replication-offset-checkpoint`, which brokers write every five seconds, and at a clean stop.

Of a topic with remote storage (KIP-405) the files have the end alone. The rest is fetched from brokers, if their addresses are given.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ottla.columns.batches import BatchFilter
from ottla.columns.segments import SegmentFiles
from ottla.protocol.primitives import uuid_from_str
from ottla.protocol.records.batch import BatchView
from ottla.spark.client.fetch import data_loss, topic_replaced
from ottla.spark.client.offsets import READ_COMMITTED
from ottla.spark.errors import ConnectorError
from ottla.spark.options import ConnectorOptions
from ottla.spark.ranges import Offsets, Range
from ottla.storage.checkpoint import LOG_START, REPLICATION, read_offsets
from ottla.storage.errors import CorruptFile
from ottla.storage.files import OsFiles

METADATA = "partition.metadata"


def partitions_in(directory: str) -> Offsets:
    """Return the high watermark of each partition in a log directory. Raises ConnectorError if the folder is no log directory."""
    if not (Path(directory) / REPLICATION).exists():
        raise ConnectorError(f"{directory} has no {REPLICATION}", "segments:// takes one of the log.dirs of a broker")
    return _checkpoint(Path(directory), REPLICATION)


def starts_in(directory: str) -> Offsets:
    """Return the log start offset of each partition, from the checkpoint or from its first segment."""
    given = _checkpoint(Path(directory), LOG_START)
    found = {}
    for place in partitions_in(directory):
        found[place] = max(given.get(place, 0), SegmentFiles(_folder_of(Path(directory), place)).first or 0)
    return found


def first_in(directory: str, wanted: Range) -> int:
    """Return the first offset in the files of a range's partition, or the end of the range if there is no file."""
    first = SegmentFiles(_folder_of(Path(directory), (wanted.topic, wanted.partition))).first
    return wanted.end if first is None else first


def _checkpoint(directory: Path, name: str) -> Offsets:
    try:
        return read_offsets(OsFiles(), str(directory / name))
    except CorruptFile as fault:
        raise ConnectorError(str(fault), "read another replica") from None


def _folder_of(directory: Path, place: tuple[str, int]) -> Path:
    return directory / f"{place[0]}-{place[1]}"


def _topic_id(directory: Path, place: tuple[str, int]) -> bytes | None:
    """Return the id in partition.metadata. Return None if there is no such file, as in a log from Kafka before 2.8."""
    try:
        text = (_folder_of(directory, place) / METADATA).read_text()
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
        """Yield the batches with rows of the range. Raises ConnectorError for missing offsets, unless they are allowed."""
        found = self.filter
        on_disk = _topic_id(self._folder, self._place)
        if self._topic_id is not None and on_disk not in (None, self._topic_id):
            if self._fail_on_loss:
                raise topic_replaced(*self._place, found.position)
            found.lose(found.end)
            return
        while not found.is_done:
            files = SegmentFiles(_folder_of(self._folder, self._place))
            if files.first is None or found.position < files.first:
                if self._fail_on_loss or files.first is None:
                    raise data_loss(found.place, found.position, found.end if files.first is None else files.first)
                found.lose(files.first)
            if self._is_committed_only:
                found.announce(files.aborted(found.position))
            try:
                yield from files.batches(found)
                return
            except FileNotFoundError:  # retention has deleted it meanwhile: look again
                continue
