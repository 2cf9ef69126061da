"""A remote segment's reader returns its bytes; a store with other bytes is a failure and never an answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.broker.tiers.objects import TierFailure, epochs_between, upload_of
from ottla.broker.tiers.remote_reading import Chunks, RemoteSegmentReader
from ottla.broker.tiers.remote_segments import RemoteSegment, TieredPartition
from ottla.storage.log.log import Log
from tests.storage.logs_for_tests import NOW_MS, filled

PLACE = TieredPartition("topic", bytes(16), 0)


class MemoryStore:
    """Objects by their names."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.requests = 0

    def put(self, name: str, data: bytes | memoryview) -> None:
        self.objects[name] = bytes(data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return self.objects.setdefault(name, data) is data

    def get(self, name: str) -> bytes | None:
        return self.objects.get(name)

    def size(self, name: str) -> int | None:
        return len(self.objects[name]) if name in self.objects else None

    def get_range(self, name: str, start: int, length: int) -> bytes:
        self.requests += 1
        return self.objects[name][start : start + length]

    def delete(self, name: str) -> None:
        self.objects.pop(name, None)


def copied(log: Log, index: int, store: MemoryStore) -> RemoteSegment:
    local, end = log.segments[index], log.segments[index + 1].base_offset
    epochs = tuple(epochs_between(log.epochs.entries, local.base_offset, end))
    largest = local.indexes.largest_timestamp().timestamp
    remote = RemoteSegment(
        bytes([index] * 16), local.base_offset, end - 1, local.file.size, largest, epochs, 1, 1, has_aborted=False
    )
    upload_of(log, PLACE, local, remote).put(store)
    return remote


def log_object(store: MemoryStore) -> str:
    return next(name for name in store.objects if name.endswith(".log"))


def test_every_offset_is_read_as_the_log_has_it(tmp_path: Path) -> None:
    log, store = filled(tmp_path), MemoryStore()
    remote = copied(log, 1, store)
    chunks = Chunks(1 << 20)
    for offset in range(remote.start, remote.end + 1):
        for max_bytes in (1, 500, 1 << 20):
            read = RemoteSegmentReader(store, chunks, PLACE, remote).read(offset, remote.end + 1, max_bytes)
            there = log.read(offset, max_bytes=max_bytes, up_to_offset=remote.end + 1)
            assert (read.records, read.next_offset) == (bytes(there.records), there.next_offset)
    assert store.requests == 1  # the rest came from memory


def test_nothing_behind_the_agreed_offset_is_read(tmp_path: Path) -> None:
    log, store = filled(tmp_path), MemoryStore()
    remote = copied(log, 0, store)
    read = RemoteSegmentReader(store, Chunks(1 << 20), PLACE, remote).read(remote.start, remote.start + 2, 1 << 20)
    assert read.next_offset == remote.start + 2


def test_a_search_finds_what_the_log_finds(tmp_path: Path) -> None:
    log, store = filled(tmp_path), MemoryStore()
    remote = copied(log, 1, store)
    reader = RemoteSegmentReader(store, Chunks(1 << 20), PLACE, remote)
    assert reader.search(NOW_MS, remote.start, remote.end + 1, 1 << 20) == (NOW_MS, remote.start, 0)
    assert reader.search(NOW_MS, remote.start + 3, remote.end + 1, 1 << 20) == (NOW_MS, remote.start + 3, 0)
    assert reader.search(NOW_MS + 1, remote.start, remote.end + 1, 1 << 20) is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: b"",
        lambda data: bytes(len(data)),
        lambda data: data[:80] + bytes([data[80] ^ 1]) + data[81:],
        lambda data: bytes(7) + b"\x63" + data[8:],
        lambda data: data[:8] + b"\x7f\xff\xff\xff" + data[12:],
        lambda data: data[:8] + b"\xff\xff\xff\xff" + data[12:],
    ],
    ids=["short", "empty", "zeros", "a bit", "another offset", "a huge length", "a negative length"],
)
def test_other_bytes_than_were_stored_are_a_failure(tmp_path: Path, damage: object) -> None:
    log, store = filled(tmp_path), MemoryStore()
    remote = copied(log, 0, store)
    name = log_object(store)
    assert callable(damage)
    store.objects[name] = damage(store.objects[name])
    with pytest.raises(TierFailure):
        RemoteSegmentReader(store, Chunks(1 << 20), PLACE, remote).read(remote.start, remote.end + 1, 1 << 20)


def test_a_missing_object_is_a_failure(tmp_path: Path) -> None:
    log, store = filled(tmp_path), MemoryStore()
    remote = copied(log, 0, store)
    store.delete(next(name for name in store.objects if name.endswith(".index") and "time" not in name))
    with pytest.raises(TierFailure, match="is missing"):
        RemoteSegmentReader(store, Chunks(1 << 20), PLACE, remote).read(remote.start, remote.end + 1, 100)
