"""The layout of the widely used open RemoteStorageManager of Kafka (tiered-storage-for-apache-kafka by Aiven), version 1 of its manifest.

    TOPIC-TOPICID/PARTITION/00000000000000001234-SEGMENTID.log            the log in chunks, each perhaps compressed with zstd
    TOPIC-TOPICID/PARTITION/00000000000000001234-SEGMENTID.indexes        the other files, one behind the other, as they are
    TOPIC-TOPICID/PARTITION/00000000000000001234-SEGMENTID.rsm-manifest   JSON: where each file and each chunk is

All below a prefix, which is that of the store. What is compressed has chunks of any size, whose list is in the manifest (`encode_sizes`). Nothing
can be read without the manifest, so it is written last and deleted first. A manifest of another version or with encryption is refused: an encrypted
segment needs the key ring of the cluster that wrote it.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

from ottla.broker.tiers.local_layout import range_of
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
from ottla.protocol.errors import KafkaError
from ottla.protocol.primitives import Buffer, uuid_from_str, uuid_to_str
from ottla.protocol.records.batch import HEADER_BYTES, BatchView
from ottla.protocol.records.compression import NO_COMPRESSION, ZSTD, compress, decompress
from ottla.server.config.rsm_settings import RsmSettings
from ottla.storage.segment.segment_file import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX

LOG, INDEXES, MANIFEST = ".log", ".indexes", ".rsm-manifest"
VERSION = "1"
TOPIC_FOLDER, PARTITION_FOLDER = re.compile(r"(.+)-([A-Za-z0-9_-]{22})"), re.compile(r"\d{1,9}", re.ASCII)
#: The names of files in the manifest, in their order in the object.
FILES = {
    INDEX_SUFFIX: "offset",
    TIME_INDEX_SUFFIX: "timestamp",
    SNAPSHOT_SUFFIX: "producerSnapshot",
    EPOCHS_SUFFIX: "leaderEpoch",
    TXN_INDEX_SUFFIX: "transaction",
}
#: A manifest that is longer is none: one of 2 GiB in chunks of 64 KiB has 150 KB.
MANIFEST_BYTES_MAX = 16 << 20
#: More chunks than this no segment has, whose size is less than 2 GiB.
CHUNKS_MAX = 1 << 20


class RsmLayout:
    """Names and contents as that plug-in has them."""

    suffixes = MANIFEST, INDEXES, LOG

    def __init__(self, settings: RsmSettings) -> None:
        self._settings = settings

    def put(self, store: TierStore, copy: SegmentCopy) -> None:
        place, segment, chunk_bytes = copy.place, copy.segment, self._settings.chunk_bytes
        is_compressed = self._settings.compresses and not (
            self._settings.leaves_compressed and _is_compressed(copy.log[: segment.size])
        )
        sizes, log = list[int](), _name(place, segment, LOG)

        def parts() -> Iterator[bytes]:
            for start in range(0, segment.size, chunk_bytes):
                part = compress(ZSTD, copy.log[start : start + chunk_bytes])
                sizes.append(len(part))
                yield part

        if is_compressed:
            store.put_parts(log, parts())
        else:
            store.put(log, copy.log)
        files = dict(copy.others())
        store.put(_name(place, segment, INDEXES), b"".join(files[each] for each in FILES if each in files))
        manifest = manifest_of(place, segment, chunk_bytes, sizes, {each: len(data) for each, data in files.items()})
        if (size := store.size(log)) != (wanted := sum(sizes) if is_compressed else segment.size):
            raise TierFailure(f"{log} has {size} bytes of {wanted}")
        store.put(_name(place, segment, MANIFEST), json.dumps(manifest, separators=(",", ":")).encode())

    def delete(self, store: TierStore, place: TieredPartition, segment: RemoteSegment) -> None:
        for suffix in self.suffixes:
            store.delete(_name(place, segment, suffix))

    def opened(self, store: TierStore, place: TieredPartition, segment: RemoteSegment) -> RsmSegment:
        name = _name(place, segment, MANIFEST)
        size = store.size(name)
        if size is None:
            raise WrongBytes(f"{name} is missing")
        if size > MANIFEST_BYTES_MAX:
            raise WrongBytes(f"{name} has {size} bytes, and is no manifest")
        try:
            return RsmSegment(store, place, segment, parse_manifest(range_of(store, name, 0, size), segment.size))
        except WrongBytes as fault:
            raise WrongBytes(f"{name}: {fault}") from fault

    def partitions(self, store: TierStore) -> list[TieredPartition]:
        topics = filter(None, map(TOPIC_FOLDER.fullmatch, store.folders("")))
        return [
            TieredPartition(each[1], uuid_from_str(each[2]), int(partition))
            for each in topics
            if is_uuid(each[2])
            for partition in store.folders(each[0])
            if PARTITION_FOLDER.fullmatch(partition)
        ]

    def folder_of(self, place: TieredPartition) -> str:
        return _folder(place)


class Manifest(NamedTuple):
    """The places of a segment's chunks and files, as its manifest has them."""

    chunk_bytes: int
    #: The beginning of each chunk in the object, and the object's end.
    starts: Sequence[int]
    is_compressed: bool
    #: The position and size of each file, by its suffix.
    files: Mapping[str, tuple[int, int]]


class RsmSegment:
    """A segment with its manifest."""

    def __init__(self, store: TierStore, place: TieredPartition, segment: RemoteSegment, manifest: Manifest) -> None:
        self._store, self._segment, self._manifest = store, segment, manifest
        self._log, self._indexes = _name(place, segment, LOG), _name(place, segment, INDEXES)
        self.chunk_bytes = manifest.chunk_bytes

    def chunk(self, number: int) -> Buffer:
        start, end = self._manifest.starts[number : number + 2]
        found = range_of(self._store, self._log, start, end - start)
        if not self._manifest.is_compressed:
            return found
        wanted = min(self.chunk_bytes, self._segment.size - number * self.chunk_bytes)
        try:
            expanded = decompress(ZSTD, found, wanted)
        except KafkaError as fault:
            raise WrongBytes(f"{self._log}, chunk {number}: {fault}") from fault
        if len(expanded) != wanted:
            raise WrongBytes(f"{self._log}, chunk {number}, has {len(expanded)} bytes of {wanted}")
        return expanded

    def file(self, suffix: str) -> Buffer:
        found = self._manifest.files.get(suffix)
        if found is None:
            raise WrongBytes(f"{self._indexes} has no {FILES[suffix]}")
        position, size = found
        return range_of(self._store, self._indexes, position, size) if size else b""


def _folder(place: TieredPartition) -> str:
    return f"{place.topic}-{uuid_to_str(place.topic_id)}/{place.partition}"


def _name(place: TieredPartition, segment: RemoteSegment, suffix: str) -> str:
    return f"{_folder(place)}/{segment.start:020d}-{uuid_to_str(segment.id)}{suffix}"


def _is_compressed(log: memoryview) -> bool:
    return len(log) >= HEADER_BYTES and BatchView(log).compression != NO_COMPRESSION


def manifest_of(
    place: TieredPartition, segment: RemoteSegment, chunk_bytes: int, sizes: Sequence[int], files: Mapping[str, int]
) -> dict[str, Any]:
    """Return the manifest; `sizes` are those of compressed chunks, () if none are, `files` those of the other files by their suffixes."""
    index: dict[str, Any] = {"originalChunkSize": chunk_bytes, "originalFileSize": segment.size}
    if sizes:
        index = {
            "type": "variable",
            **index,
            "transformedChunks": b64encode(compress(ZSTD, encode_sizes(sizes))).decode(),
        }
    else:
        last = segment.size % chunk_bytes or min(segment.size, chunk_bytes)
        index = {"type": "fixed", **index, "transformedChunkSize": chunk_bytes, "finalTransformedChunkSize": last}
    positions, position = dict[str, dict[str, int] | None](), 0
    for suffix, name in FILES.items():
        size = files.get(suffix)
        positions[name] = None if size is None else {"position": position, "size": size}
        position += size or 0
    partition = {"topic": place.topic, "partition": place.partition}
    return {
        "version": VERSION,
        "chunkIndex": index,
        "segmentIndexes": positions,
        "compression": bool(sizes),
        "remoteLogSegmentMetadata": {
            "remoteLogSegmentId": {
                "topicIdPartition": {"topicId": uuid_to_str(place.topic_id), "topicPartition": partition},
                "id": uuid_to_str(segment.id),
            },
            "startOffset": segment.start,
            "endOffset": segment.end,
            "maxTimestampMs": segment.max_timestamp,
            "brokerId": segment.broker_id,
            "eventTimestampMs": segment.event_ms,
            "segmentLeaderEpochs": {str(epoch): first for epoch, first in segment.epochs},
        },
    }


def parse_manifest(data: Buffer, log_size: int) -> Manifest:
    """Return a manifest, which is of a log of this size. Raises WrongBytes."""
    try:
        found = json.loads(bytes(data))
        if found["version"] != VERSION:
            raise WrongBytes(f"version {found['version']!r:.20} of the manifest is not known, {VERSION} is")
        if found.get("encryption") is not None:
            raise WrongBytes("the segment is encrypted, and can be read with the key ring of Kafka's plug-in alone")
        chunk_bytes, starts = _chunks(found["chunkIndex"])
        files = {
            suffix: (_count(place["position"]), _count(place["size"]))
            for suffix, name in FILES.items()
            if (place := found["segmentIndexes"][name]) is not None
        }
        original, is_compressed = _count(found["chunkIndex"]["originalFileSize"]), found["compression"] is True
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as fault:
        raise WrongBytes(f"it is no manifest: {fault!r:.200}") from fault
    if original != log_size or len(starts) - 1 != -(-log_size // chunk_bytes):
        raise WrongBytes(
            f"the manifest is of {original} bytes in {len(starts) - 1} chunks, and the segment has {log_size}"
        )
    if not is_compressed and starts[-1] != log_size:
        raise WrongBytes(f"the chunks have {starts[-1]} bytes, and the segment has {log_size}")
    return Manifest(chunk_bytes, starts, is_compressed, files)


def _chunks(index: dict[str, Any]) -> tuple[int, list[int]]:
    chunk_bytes, size = _count(index["originalChunkSize"]), _count(index["originalFileSize"])
    if index["type"] == "variable":
        try:
            sizes = decode_sizes(decompress(ZSTD, b64decode(index["transformedChunks"], validate=True), 4 * CHUNKS_MAX))
        except KafkaError as fault:
            raise ValueError(str(fault)) from fault
    elif index["type"] == "fixed":
        count = -(-size // chunk_bytes) if chunk_bytes else 0
        if not 0 < count <= CHUNKS_MAX:
            raise ValueError(f"{count} chunks")
        each, last = _count(index["transformedChunkSize"]), _count(index["finalTransformedChunkSize"])
        sizes = [each] * (count - 1) + [last]
    else:
        raise ValueError(f"chunks of type {index['type']!r:.20}")
    if not chunk_bytes:
        raise ValueError("chunks of no bytes")
    return chunk_bytes, [0, *accumulate(sizes)]


def _count(value: object) -> int:
    if type(value) is not int or not 0 <= value < 1 << 31:
        raise ValueError(f"{value!r:.20} is no size")
    return value


def encode_sizes(sizes: Sequence[int]) -> bytes:
    """Return sizes as the plug-in packs them: the count, the smallest of all but the last, the bytes of each difference to that, and the last."""
    number = partial(int.to_bytes, length=4, byteorder="big")
    if len(sizes) < 2:
        return b"".join(map(number, (len(sizes), *sizes)))
    *others, last = sizes
    least = min(others)
    width = max(1, ((max(others) - least).bit_length() + 7) // 8)
    packed = b"".join((each - least).to_bytes(width, "big") for each in others)
    return number(len(sizes)) + number(least) + bytes([width]) + packed + number(last)


def decode_sizes(data: bytes) -> list[int]:
    """Return the sizes of `encode_sizes`. Raises ValueError."""
    count = int.from_bytes(data[:4], "big")
    if count < 2:
        if len(data) != 4 + 4 * count:
            raise ValueError(f"{len(data)} bytes for {count} sizes")
        return [int.from_bytes(data[4:], "big")] * count
    least, width = int.from_bytes(data[4:8], "big"), data[8] if len(data) > 8 else 0
    if not 1 <= width <= 4 or len(data) != 13 + (count - 1) * width:
        raise ValueError(f"{len(data)} bytes for {count} sizes of {width} bytes")
    packed = data[9:-4]
    others = [least + int.from_bytes(packed[at : at + width], "big") for at in range(0, len(packed), width)]
    return [*others, int.from_bytes(data[-4:], "big")]
