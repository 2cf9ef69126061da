"""The layout of Kafka's widely used open RemoteStorageManager: what it wrote is read, and what is written here it reads; all else is an error."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.tiers.objects import EPOCHS_SUFFIX, SNAPSHOT_SUFFIX, TierFailure, WrongBytes, objects_in
from ottla.broker.tiers.remote_segments import RemoteSegment, TieredPartition
from ottla.broker.tiers.remote_states import read_state
from ottla.broker.tiers.rsm_layout import (
    CHUNKS_MAX,
    MANIFEST_BYTES_MAX,
    RsmLayout,
    decode_sizes,
    encode_sizes,
    manifest_of,
    parse_manifest,
)
from ottla.protocol.primitives import uuid_from_str
from ottla.protocol.records.compression import ZSTD, compress
from ottla.server.config.rsm_settings import RsmSettings
from ottla.storage.log.log import Log
from ottla.storage.segment.segment_file import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX
from tests.broker.tiers.harness import MemoryStore, TierHarness
from tests.broker.tiers.test_remote_reading import PLACE, Reading, copied
from tests.storage.logs_for_tests import filled

#: Chunks of odd sizes, with and without compression.
SETTINGS = [
    RsmSettings(),
    RsmSettings(333),
    RsmSettings(333, True),
    RsmSettings(4 << 20, True),
    RsmSettings(500, True, True),
]
#: The manifest that the plug-in's own tests have (SegmentManifestV1SerdeTest), without a transaction index.
THEIRS = (
    '{"version":"1","chunkIndex":{"type":"fixed","originalChunkSize":100,"originalFileSize":1000,"transformedChunkSize":110,'
    '"finalTransformedChunkSize":110},"segmentIndexes":{"offset":{"position":0,"size":1},"timestamp":{"position":1,"size":1},'
    '"producerSnapshot":{"position":2,"size":1},"leaderEpoch":{"position":3,"size":1},"transaction":null},"compression":false,'
    '"remoteLogSegmentMetadata":{"remoteLogSegmentId":{"topicIdPartition":{"topicId":"lZ6vvmajTWKDBUTV6SQAtQ","topicPartition":'
    '{"topic":"topic1","partition":42}},"id":"adh9f8BMS4anaUnD8KWfWg"},"startOffset":0,"endOffset":1000,"maxTimestampMs":1000000000,'
    '"brokerId":2,"eventTimestampMs":2000000000,"segmentLeaderEpochs":{"0":100,"1":200,"2":300}}}'
)
FILES = {INDEX_SUFFIX: 1, TIME_INDEX_SUFFIX: 1, SNAPSHOT_SUFFIX: 1, EPOCHS_SUFFIX: 1}


def stored(tmp_path: Path, settings: RsmSettings) -> tuple[Log, MemoryStore, RemoteSegment, RsmLayout]:
    log, store, layout = filled(tmp_path), MemoryStore(), RsmLayout(settings)
    return log, store, copied(log, 1, store, layout), layout


def test_the_manifest_is_theirs_to_the_byte() -> None:
    place = TieredPartition("topic1", uuid_from_str("lZ6vvmajTWKDBUTV6SQAtQ"), 42)
    epochs = ((0, 100), (1, 200), (2, 300))
    segment = RemoteSegment(
        uuid_from_str("adh9f8BMS4anaUnD8KWfWg"),
        0,
        1000,
        1000,
        1_000_000_000,
        epochs,
        2,
        2_000_000_000,
        has_aborted=False,
    )
    ours = manifest_of(place, segment, 100, (), FILES)
    text = THEIRS.replace('Size":110', 'Size":100')  # they write 110 for what encryption makes of 100
    assert json.dumps(ours, separators=(",", ":")) == text
    found = parse_manifest(text.encode(), 1000)
    assert (found.chunk_bytes, found.starts[-2:], found.is_compressed) == (100, [900, 1000], False)
    assert found.files == {
        INDEX_SUFFIX: (0, 1),
        TIME_INDEX_SUFFIX: (1, 1),
        SNAPSHOT_SUFFIX: (2, 1),
        EPOCHS_SUFFIX: (3, 1),
    }


@pytest.mark.parametrize(
    ("sizes", "width"),
    [
        ([0, 1000, 2, 44002, 369], 2),
        ([2**31 - 1, 2**31 - 2, 2**31 - 3, 10], 1),
        ([1, 2, 3, 2**31 - 1], 1),
        ([7, 7, 7], 1),
        ([1, 0xFF + 10, 5], 2),
        ([1, 0xFFFF + 10, 5], 3),
        ([1, 0xFFFFFF + 10, 5], 4),
    ],
)
def test_sizes_are_packed_as_their_codec_packs_them(sizes: list[int], width: int) -> None:
    packed = encode_sizes(sizes)
    assert packed[:4] == len(sizes).to_bytes(4, "big") and packed[8] == width
    assert len(packed) == 4 + 4 + 1 + (len(sizes) - 1) * width + 4
    assert decode_sizes(packed) == sizes


@given(st.lists(st.integers(0, 2**31 - 1), max_size=20))
def test_sizes_come_back(sizes: list[int]) -> None:
    assert decode_sizes(encode_sizes(sizes)) == sizes


@given(st.binary(max_size=40))
def test_foreign_bytes_are_no_sizes_or_some(data: bytes) -> None:
    with suppress(ValueError):
        assert decode_sizes(data) is not None


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
async def test_every_offset_is_read_as_the_log_has_it(tmp_path: Path, settings: RsmSettings) -> None:
    log, store, remote, layout = stored(tmp_path, settings)
    suffixes = sorted(name.rpartition(".")[2] for name in store.objects)
    assert suffixes == ["indexes", "log", "rsm-manifest"]
    reading, offset, found = Reading(store, layout=layout), remote.start, b""
    while offset <= remote.end:
        read = await reading.reader(remote).read(offset, remote.end + 1, 700)
        assert bytes(log.read(offset, max_bytes=700).records).startswith(bytes(read.records))
        found, offset = found + bytes(read.records), read.next_offset
    assert found == bytes(log.segments[1].file.view()[: remote.size])
    state = read_state(layout, store, PLACE, remote)
    assert state.offset == remote.end + 1 and state.epochs == log.epochs.entries
    layout.delete(store, PLACE, remote)
    assert not store.objects


def test_a_log_is_smaller_in_the_store_only_where_it_is_not_compressed_already(tmp_path: Path) -> None:
    _, store, remote, _ = stored(tmp_path / "a", RsmSettings(4 << 20, True))
    assert len(log_of(store)) < remote.size / 2
    _, store, remote, _ = stored(tmp_path / "b", RsmSettings(4 << 20))
    assert len(log_of(store)) == remote.size


def log_of(store: MemoryStore) -> bytes:
    return next(data for name, data in store.objects.items() if name.endswith(".log"))


def changed(*keys: str, to: Any) -> Callable[[bytes], bytes]:
    """A manifest in which one value is another."""

    def change(data: bytes) -> bytes:
        found = json.loads(data)
        inner = found
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = to
        return json.dumps(found).encode()

    return change


def many_sizes() -> str:
    return b64encode(compress(ZSTD, bytes(5 * CHUNKS_MAX))).decode()


DAMAGES = {
    "a newer version": (changed("version", to="2"), "version '2' of the manifest is not known, 1 is"),
    "encryption": (
        changed("encryption", to={"dataKey": "k:AA==", "aad": "AA=="}),
        "encrypted, and can be read with the key ring",
    ),
    "truncated": (lambda data: data[:-20], "is no manifest"),
    "empty": (lambda data: b"", "is no manifest"),
    "no JSON object": (lambda data: b"[1]", "is no manifest"),
    "nested without end": (lambda data: b"[" * 100_000, "is no manifest"),
    "foreign": (lambda data: b"\x89PNG\r\n" + bytes(100), "is no manifest"),
    "of a longer log": (changed("chunkIndex", "originalFileSize", to=1 << 30), "the segment has"),
    "chunks of no bytes": (changed("chunkIndex", "originalChunkSize", to=0), "is no manifest"),
    "a billion chunks": (
        changed(
            "chunkIndex",
            to={"type": "fixed", "originalChunkSize": 1, "originalFileSize": 1 << 30}
            | {"transformedChunkSize": 1, "finalTransformedChunkSize": 1},
        ),
        "is no manifest",
    ),
    "a size that is a text": (changed("chunkIndex", "originalChunkSize", to="333"), "is no manifest"),
    "a negative position": (changed("segmentIndexes", "offset", to={"position": -1, "size": 8}), "is no manifest"),
    "an unknown kind of chunks": (changed("chunkIndex", "type", to="other"), "is no manifest"),
    "sizes that are none": (changed("chunkIndex", "transformedChunks", to="AAAA"), "is no manifest"),
    "sizes without end": (changed("chunkIndex", "transformedChunks", to=many_sizes()), "is no manifest"),
    "without an index": (changed("segmentIndexes", "leaderEpoch", to=None), "has no leaderEpoch"),
    "too long": (lambda data: data + b" " * MANIFEST_BYTES_MAX, "is no manifest"),
    "of another form of log": (changed("compression", to=False), "the chunks have"),
}


@pytest.mark.parametrize("name", DAMAGES)
async def test_a_manifest_that_is_not_understood_is_an_error_until_it_is_there_again(tmp_path: Path, name: str) -> None:
    damage, why = DAMAGES[name]
    _, store, remote, layout = stored(tmp_path, RsmSettings(333, True))
    manifest = next(each for each in store.objects if each.endswith(".rsm-manifest"))
    right = store.objects[manifest]
    store.objects[manifest] = damage(right)
    with pytest.raises(WrongBytes, match=why):
        read_state(layout, store, PLACE, remote)
    store.objects[manifest] = right
    read_state(layout, store, PLACE, remote)


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: b"", bytes.swapcase, lambda data: bytes(len(data))]
)
@pytest.mark.parametrize("suffix", [".log", ".indexes"])
async def test_damaged_objects_are_errors_and_never_answers(tmp_path: Path, suffix: str, damage: Any) -> None:
    log, store, remote, layout = stored(tmp_path, RsmSettings(333, True))
    name = next(each for each in store.objects if each.endswith(suffix))
    store.objects[name] = damage(store.objects[name])
    reader, offset = Reading(store, layout=layout).reader(remote), remote.start
    with pytest.raises(TierFailure):
        while offset <= remote.end:
            read = await reader.read(offset, remote.end + 1, 100)
            assert bytes(log.read(offset, max_bytes=100).records).startswith(bytes(read.records))
            offset = read.next_offset
        read_state(layout, store, PLACE, remote)


def test_the_partitions_of_a_store_are_found_and_no_others(tmp_path: Path) -> None:
    _, store, remote, layout = stored(tmp_path, RsmSettings(333))
    for name in ("ottla-cluster-id", "a/0/x.log", f"a-{'x' * 22}/b/y.log"):
        store.put(name, b"")
    assert layout.partitions(store) == [PLACE]
    assert {each.segment_id for each in objects_in(store, layout, PLACE)} == {remote.id}
    assert len(objects_in(store, layout, PLACE)) == 3


async def test_a_driver_copies_and_reads_in_this_layout(tmp_path: Path) -> None:
    harness = TierHarness(tmp_path, layout=RsmLayout(RsmSettings(400, True)))
    own, end = harness.log, harness.log.segments.active.base_offset
    there = bytes(own.read(0, max_bytes=1 << 20, up_to_offset=end).records)
    await harness.round()
    own.local_start_offset = end
    read = await harness.reads().read(harness.partition, own, 0, 1 << 20, read_committed=True)
    assert there.startswith(bytes(read.records))


def test_their_own_list_of_sizes_is_read() -> None:
    """The plug-in's classes have written it for a log of 1,892 bytes in chunks of 333."""
    index = {"type": "variable", "originalChunkSize": 333, "originalFileSize": 1892}
    found = json.loads(THEIRS) | {"compression": True}
    found["chunkIndex"] = index | {"transformedChunks": "KLUv/SASkQAAAAAABgAAAE0BAAICAgIAAAA+"}
    manifest = parse_manifest(json.dumps(found).encode(), 1892)
    sizes = [end - start for start, end in pairwise(manifest.starts)]
    assert sizes == [77, 79, 79, 79, 79, 62] and manifest.is_compressed
    assert TXN_INDEX_SUFFIX not in manifest.files
