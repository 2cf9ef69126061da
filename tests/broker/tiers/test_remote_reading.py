"""A remote segment's reader returns its bytes; other bytes in the store are a failure, and are never returned."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.tiers.local_layout import LocalLayout
from ottla.broker.tiers.objects import SegmentLayout, TierFailure, copy_of, epochs_between
from ottla.broker.tiers.remote_reading import RemoteSegmentReader
from ottla.broker.tiers.remote_segments import RemoteSegment, TieredPartition
from ottla.storage.files import OsFiles
from ottla.storage.log.log import Log
from tests.broker.tiers.harness import MemoryStore, SameThread, chunks_of
from tests.manual_clock import ManualClock
from tests.storage.logs_for_tests import NOW_MS, filled

PLACE = TieredPartition("topic", bytes(16), 0)


def copied(log: Log, index: int, store: MemoryStore, layout: SegmentLayout | None = None) -> RemoteSegment:
    local, end = log.segments[index], log.segments[index + 1].base_offset
    epochs = tuple(epochs_between(log.epochs.entries, local.base_offset, end))
    largest = local.indexes.largest_timestamp().timestamp
    remote = RemoteSegment(
        bytes([index] * 16), local.base_offset, end - 1, local.file.size, largest, epochs, 1, 1, has_aborted=False
    )
    (layout or LocalLayout()).put(store, copy_of(log, PLACE, local, remote))
    return remote


def log_object(store: MemoryStore) -> str:
    return next(name for name in store.objects if name.endswith(".log"))


class Reading:
    """Readers of segments in a store, with chunks of a fixed size, and the parts that they share."""

    def __init__(self, store: MemoryStore, chunk_bytes: int = 4 << 20, layout: SegmentLayout | None = None) -> None:
        self.store, self.chunk_bytes, self.layout = store, chunk_bytes, layout or LocalLayout()
        self.world: Any = SimpleNamespace(
            workers=SameThread(),
            files=OsFiles(),
            clock=ManualClock(),
            spawn=lambda work, name: self.tasks.append(spawned(work)),
        )
        self.tasks = list[asyncio.Task[None]]()
        configs: Any = {"remote.log.reader.threads": 2, "ottla.tier.call.timeout.ms": 30_000}
        self.chunks = chunks_of(self.world, configs)

    def reader(self, remote: RemoteSegment) -> RemoteSegmentReader:
        stored = self.layout.opened(self.store, PLACE, remote)
        if isinstance(self.layout, LocalLayout):
            stored.chunk_bytes = self.chunk_bytes
        return RemoteSegmentReader(self.chunks, self.world.workers, stored, remote)


def spawned(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    return asyncio.get_running_loop().create_task(work)


@pytest.mark.parametrize("chunk_bytes", [61, 100, 333, 4 << 20])
async def test_every_offset_is_read_as_the_log_has_it(tmp_path: Path, chunk_bytes: int) -> None:
    log, store = filled(tmp_path), MemoryStore()
    remote = copied(log, 1, store)
    reading = Reading(store, chunk_bytes)
    for offset in range(remote.start, remote.end + 1):
        for max_bytes in (1, 500, 1 << 20):
            read = await reading.reader(remote).read(offset, remote.end + 1, max_bytes)
            there = log.read(offset, max_bytes=max_bytes, up_to_offset=remote.end + 1)
            found = bytes(read.records)
            assert bytes(there.records).startswith(found) and found, "a read may end with a chunk"
            if chunk_bytes > remote.size:
                assert (found, read.next_offset) == (bytes(there.records), there.next_offset)
    assert store.requests == -(-remote.size // chunk_bytes)  # the rest came from memory


async def test_reads_that_go_on_have_each_batch_once(tmp_path: Path) -> None:
    log, store = filled(tmp_path), MemoryStore()
    remote = copied(log, 1, store)
    for chunk_bytes in (61, 100, 333):
        reading, offset, found = Reading(store, chunk_bytes), remote.start, b""
        while offset <= remote.end:
            read = await reading.reader(remote).read(offset, remote.end + 1, 250)
            found, offset = found + bytes(read.records), read.next_offset
        assert found == store.objects[log_object(store)]


async def test_nothing_behind_the_agreed_offset_is_read(tmp_path: Path) -> None:
    log, store = filled(tmp_path), MemoryStore()
    remote = copied(log, 0, store)
    read = await Reading(store).reader(remote).read(remote.start, remote.start + 2, 1 << 20)
    assert read.next_offset == remote.start + 2


@pytest.mark.parametrize("chunk_bytes", [100, 4 << 20])
async def test_a_search_finds_what_the_log_finds(tmp_path: Path, chunk_bytes: int) -> None:
    log, store = filled(tmp_path), MemoryStore()
    remote = copied(log, 1, store)
    reader = Reading(store, chunk_bytes).reader(remote)
    assert await reader.search(NOW_MS, remote.start, remote.end + 1, 1 << 20) == (NOW_MS, remote.start, 0)
    assert await reader.search(NOW_MS, remote.start + 3, remote.end + 1, 1 << 20) == (NOW_MS, remote.start + 3, 0)
    assert await reader.search(NOW_MS + 1, remote.start, remote.end + 1, 1 << 20) is None


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
@pytest.mark.parametrize("chunk_bytes", [100, 4 << 20])
async def test_other_bytes_than_were_stored_are_a_failure_until_the_store_has_them_again(
    tmp_path: Path, damage: Callable[[bytes], bytes], chunk_bytes: int
) -> None:
    log, store = filled(tmp_path), MemoryStore()
    remote = copied(log, 0, store)
    name, reader = log_object(store), Reading(store, chunk_bytes).reader(remote)
    right = store.objects[name]
    store.objects[name] = damage(right)
    for _ in range(2):
        with pytest.raises(TierFailure):
            offset = remote.start
            while offset <= remote.end:
                offset = (await reader.read(offset, remote.end + 1, 1 << 20)).next_offset
    store.objects[name] = right
    assert (await reader.read(remote.start, remote.end + 1, 1 << 20)).records[:1] == right[:1]


async def test_an_index_that_points_behind_an_offset_is_a_failure(tmp_path: Path) -> None:
    """The batches before it would be missing without an error."""
    log, store = filled(tmp_path), MemoryStore()
    remote = copied(log, 0, store)
    name = next(each for each in store.objects if each.endswith(".index") and "time" not in each)
    entries = [store.objects[name][at : at + 8] for at in range(0, len(store.objects[name]), 8)]
    assert len(entries) > 1
    store.objects[name] = entries[0][:4] + entries[-1][4:]
    reader = Reading(store).reader(remote)
    offset = remote.start + int.from_bytes(entries[0][:4], "big")
    with pytest.raises(TierFailure, match="which lies before it"):
        await reader.read(offset, remote.end + 1, 100)


async def test_a_missing_object_is_a_failure(tmp_path: Path) -> None:
    log, store = filled(tmp_path), MemoryStore()
    remote = copied(log, 0, store)
    store.delete(next(name for name in store.objects if name.endswith(".index") and "time" not in name))
    with pytest.raises(TierFailure, match="is missing"):
        await Reading(store).reader(remote).read(remote.start, remote.end + 1, 100)
