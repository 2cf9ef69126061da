"""The layout of Kafka's LocalTieredStorage, in which each file of a segment is an object.

kafka-tiered-storage/TOPIC-PARTITION-TOPICID/00000000000000001234-SEGMENTID.log, .index, .timeindex, .txnindex (if a transaction was
aborted), .snapshot (producer states behind the segment), .leader_epoch_checkpoint (the epochs of the log up to the segment's end)
"""

from __future__ import annotations

import re

from ottla.broker.tiers.objects import (
    EPOCHS_SUFFIX,
    SNAPSHOT_SUFFIX,
    SegmentCopy,
    TierFailure,
    TierStore,
    WrongBytes,
    is_uuid,
)
from ottla.broker.tiers.remote_segments import RemoteSegment, TieredPartition
from ottla.protocol.primitives import Buffer, uuid_from_str, uuid_to_str
from ottla.storage.segment.segment_file import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX

ROOT = "kafka-tiered-storage"
FOLDER = re.compile(r"(.+)-(\d{1,9})-([A-Za-z0-9_-]{22})")
#: The log goes last in a copy and first in a deletion.
SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, SNAPSHOT_SUFFIX, EPOCHS_SUFFIX, LOG_SUFFIX)
#: How much of a log is read at once.
CHUNK_BYTES = 4 << 20


class LocalLayout:
    """Names and contents as LocalTieredStorage has them."""

    suffixes = SUFFIXES

    def put(self, store: TierStore, copy: SegmentCopy) -> None:
        """Write the log last, and look at its size."""
        for suffix, data in copy.others():
            store.put(name_of(copy.place, copy.segment, suffix), data)
        name = name_of(copy.place, copy.segment, LOG_SUFFIX)
        store.put(name, copy.log)
        if (size := store.size(name)) != copy.segment.size:
            raise TierFailure(f"{name} has {size} bytes of {copy.segment.size}")

    def delete(self, store: TierStore, place: TieredPartition, segment: RemoteSegment) -> None:
        for suffix in reversed(SUFFIXES):
            store.delete(name_of(place, segment, suffix))

    def opened(self, store: TierStore, place: TieredPartition, segment: RemoteSegment) -> LocalLayoutSegment:
        return LocalLayoutSegment(store, place, segment)

    def partitions(self, store: TierStore) -> list[TieredPartition]:
        matches = filter(None, map(FOLDER.fullmatch, store.folders(ROOT)))
        return [TieredPartition(each[1], uuid_from_str(each[3]), int(each[2])) for each in matches if is_uuid(each[3])]

    def folder_of(self, place: TieredPartition) -> str:
        return folder_of(place)


class LocalLayoutSegment:
    """A segment whose files are objects."""

    chunk_bytes = CHUNK_BYTES

    def __init__(self, store: TierStore, place: TieredPartition, segment: RemoteSegment) -> None:
        self._store, self._place, self._segment = store, place, segment

    def chunk(self, number: int) -> Buffer:
        name, start = name_of(self._place, self._segment, LOG_SUFFIX), number * self.chunk_bytes
        return range_of(self._store, name, start, min(self.chunk_bytes, self._segment.size - start))

    def file(self, suffix: str) -> Buffer:
        name = name_of(self._place, self._segment, suffix)
        found = self._store.get(name)
        if found is None:
            raise WrongBytes(f"{name} is missing")
        return found


def range_of(store: TierStore, name: str, start: int, length: int) -> Buffer:
    """Return so many bytes of an object. Raises WrongBytes if the store has fewer."""
    found = store.get_range(name, start, length)
    if len(found) != length:
        raise WrongBytes(f"{name} has {len(found)} bytes of {length} at {start}")
    return found


def folder_of(place: TieredPartition) -> str:
    return f"{ROOT}/{place.topic}-{place.partition}-{uuid_to_str(place.topic_id)}"


def name_of(place: TieredPartition, segment: RemoteSegment, suffix: str) -> str:
    """Return the name of one of a segment's objects."""
    return f"{folder_of(place)}/{segment.start:020d}-{uuid_to_str(segment.id)}{suffix}"
