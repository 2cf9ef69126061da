"""The partitions of a topic in log directories, without asking a broker: what `ottla table export` translates.

A broker may run on them. Nothing beyond the high watermark is read, which `replication-offset-checkpoint` has; brokers write it every five
seconds and on a clean stop. The last stable offset is found by a walk over the headers of batches.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from ottla.client.failures import Failure, Kind
from ottla.columns.batches import BatchFilter
from ottla.columns.segments import SegmentFiles
from ottla.protocol.records.control import end_txn_marker
from ottla.tables.table import Owner
from ottla.tables.translating import CommittedSpan, EpochStart

HIGH_WATERMARKS, LOG_STARTS = "replication-offset-checkpoint", "log-start-offset-checkpoint"
EPOCHS, PARTITION_METADATA, META_PROPERTIES = "leader-epoch-checkpoint", "partition.metadata", "meta.properties"


class FoundPartition(NamedTuple):
    """A replica of a partition on this disk."""

    folder: str
    span: CommittedSpan


class FoundTopic(NamedTuple):
    """A topic's partitions in some log directories, the replica with the highest watermark of each."""

    owner: Owner
    partitions: dict[int, FoundPartition]


def find_topic(directories: Iterable[str], topic: str) -> FoundTopic:
    """Find a topic. Raises Failure if there is none of this name, or if there are two."""
    owners: set[Owner] = set()
    found: dict[int, FoundPartition] = {}
    for directory in map(Path, directories):
        cluster_id = _property(directory / META_PROPERTIES, "cluster.id")
        watermarks, starts = _checkpoint(directory / HIGH_WATERMARKS), _checkpoint(directory / LOG_STARTS)
        for (name, partition), watermark in watermarks.items():
            folder = directory / f"{name}-{partition}"
            if name != topic or not folder.is_dir():
                continue
            owners.add(Owner(cluster_id, _property(folder / PARTITION_METADATA, "topic_id", ":"), topic))
            files = SegmentFiles(folder)
            start = max(starts.get((name, partition), 0), files.first or 0)
            epochs = _epochs(folder / EPOCHS)
            span = CommittedSpan(
                partition, epochs[-1].epoch if epochs else 0, start, _last_stable(files, start, watermark), epochs
            )
            known = found.get(partition)
            if known is None or (known.span.leader_epoch, known.span.end) < (span.leader_epoch, span.end):
                found[partition] = FoundPartition(str(folder), span)
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


def _last_stable(files: SegmentFiles, start: int, end: int) -> int:
    """Return the first offset of a transaction that has not ended below `end`, or `end`."""
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


def _checkpoint(file: Path) -> dict[tuple[str, int], int]:
    rows = (line.split() for line in _lines(file)[2:])
    return {(topic, int(partition)): int(offset) for topic, partition, offset in rows}


def _epochs(file: Path) -> tuple[EpochStart, ...]:
    return tuple(EpochStart(*map(int, line.split())) for line in _lines(file)[2:])


def _property(file: Path, name: str, separator: str = "=") -> str:
    rows = (line.partition(separator) for line in _lines(file))
    return next((value.strip() for key, _, value in rows if key.strip() == name), "")


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except FileNotFoundError:
        return []
