"""The partitions of a topic in log directories, read without a broker, for `ottla table export`.

A broker may run on the directories. Nothing beyond the high watermark is read. It comes from `replication-offset-checkpoint`,
which brokers write every five seconds and at a clean stop. The last stable offset is found by a walk over the headers of
batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ottla.client.failures import Failure, Kind
from ottla.columns.batches import BatchFilter
from ottla.columns.segments import SegmentFiles
from ottla.protocol.primitives import uuid_to_str
from ottla.protocol.records.control import end_txn_marker
from ottla.storage.checkpoint import LOG_START, REPLICATION, read_offsets
from ottla.storage.directories.log_dirs import META_PROPERTIES
from ottla.storage.epochs import FILE as EPOCHS
from ottla.storage.epochs import LeaderEpochs
from ottla.storage.errors import CorruptFile, StorageFailure
from ottla.storage.files import OsFiles
from ottla.storage.log.partition_dir import read_topic_id
from ottla.tables.table import Owner
from ottla.tables.translating import CommittedSpan, EpochStart


class FoundPartition(NamedTuple):
    """A replica of a partition on this disk."""

    folder: str
    span: CommittedSpan


class FoundTopic(NamedTuple):
    """A topic's partitions in some log directories. For each the replica with the highest watermark is taken."""

    owner: Owner
    partitions: dict[int, FoundPartition]


def find_topic(directories: Iterable[str], topic: str) -> FoundTopic:
    """Find a topic.

    Raises Failure if there is no topic of this name, if there are two, or if a file beside its segments is damaged.
    """
    owners: set[Owner] = set()
    found: dict[int, FoundPartition] = {}
    try:
        for directory in map(Path, directories):
            for owner, partition in _replicas(directory, topic):
                owners.add(owner)
                span = partition.span
                known = found.get(span.partition)
                if known is None or (known.span.leader_epoch, known.span.end) < (span.leader_epoch, span.end):
                    found[span.partition] = partition
    except (StorageFailure, CorruptFile) as fault:
        raise Failure(str(fault), kind=Kind.WRONG) from fault
    if not found:
        raise Failure(
            f"these log directories have no partition of {topic}", "name those of a broker with --log-dir", Kind.WRONG
        )
    if len(owners) > 1:
        texts = " and ".join(sorted(owner.text for owner in owners))
        raise Failure(
            f"there are two: {texts}",
            "name log directories of one cluster, without what is left of a deleted topic",
            Kind.WRONG,
        )
    return FoundTopic(owners.pop(), found)


def _replicas(directory: Path, topic: str) -> Iterator[tuple[Owner, FoundPartition]]:
    files = OsFiles()
    cluster_id = _cluster_id(directory / META_PROPERTIES)
    watermarks, starts = (read_offsets(files, f"{directory}/{name}") for name in (REPLICATION, LOG_START))
    for (name, number), watermark in watermarks.items():
        folder = directory / f"{name}-{number}"
        if name != topic or not folder.is_dir():
            continue
        topic_id = read_topic_id(files, str(folder))
        owner = Owner(cluster_id, "" if topic_id is None else uuid_to_str(topic_id), topic)
        segments = SegmentFiles(folder)
        start = max(starts.get((name, number), 0), segments.first or 0)
        epochs = LeaderEpochs(files, f"{folder}/{EPOCHS}")
        epochs.load()
        span = CommittedSpan(
            number,
            max(epochs.latest, 0),
            start,
            _last_stable(segments, start, watermark),
            tuple(EpochStart(*each) for each in epochs.entries),
        )
        yield owner, FoundPartition(str(folder), span)


def _last_stable(files: SegmentFiles, start: int, end: int) -> int:
    """Return the first offset of a transaction that is open at `end`, or `end`."""
    opened: dict[int, int] = {}
    for batch in files.batches(BatchFilter("", start, end, with_control=True)):
        if not batch.is_transactional:
            continue
        if batch.is_control:
            if end_txn_marker(batch) is not None:
                opened.pop(batch.producer_id, None)
        else:
            opened.setdefault(batch.producer_id, batch.base_offset)
    return min(opened.values(), default=end)


def _cluster_id(file: Path) -> str:
    """Return cluster.id, which directories from Kafka with ZooKeeper have as well; nothing if a file has none."""
    rows = (line.partition("=") for line in (file.read_text().splitlines() if file.exists() else ()))
    return next((value.strip() for key, _, value in rows if key.strip() == "cluster.id"), "")
