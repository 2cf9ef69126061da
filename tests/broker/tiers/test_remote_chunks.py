"""Chunks of remote segments: each is read from the store once, chunks are read ahead within a limit, and failed reads are
repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.tiers import chunk_files, remote_chunks
from ottla.broker.tiers.chunk_files import ChunkFiles, ChunkName
from ottla.broker.tiers.objects import TierFailure
from ottla.broker.tiers.remote_chunks import AHEAD_MAX, OPENED_MAX, RemoteChunks
from ottla.storage.errors import DiskFull
from ottla.storage.files import OsFiles
from tests.broker.tiers.harness import SameThread
from tests.manual_clock import ManualClock

ID = bytes(16)
CONFIGS: Any = {"remote.log.reader.threads": 2, "ottla.tier.call.timeout.ms": 30_000}


class HeldThread(SameThread):
    """Workers whose calls come back when the test says so."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    def apart(self, name: str) -> HeldThread:
        return self

    async def run(self, function: Callable[..., Any], *args: object) -> Any:
        await self.go.wait()
        return function(*args)


class FullFiles(OsFiles):
    """A disk that is full while `is_full`."""

    is_full = False

    def pwrite(self, path: str, offset: int, data: bytes) -> None:
        if self.is_full:
            raise DiskFull(path, "No space left on device")
        super().pwrite(path, offset, data)


class Chunks:
    """A broker's chunks, and a store that has `number` in each of ten bytes."""

    def __init__(self, workers: Any = None, folder: str = "", bytes_max: int = 0) -> None:
        self.tasks = list[asyncio.Task[None]]()
        self.clock, self.files = ManualClock(), FullFiles()
        self.world: Any = SimpleNamespace(
            workers=workers or SameThread(), files=self.files, clock=self.clock, spawn=self._spawn
        )
        self.disk = ChunkFiles(self.world, folder, bytes_max)
        self.chunks = RemoteChunks(self.world, CONFIGS, self.disk)
        self.asked = list[int]()
        self.fault: Exception | None = None

    def _spawn(self, work: Any, name: str) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    def _fetch(self, number: int) -> bytes:
        self.asked.append(number)
        if self.fault is not None:
            raise self.fault
        return bytes([number] * 10)

    async def get(self, number: int) -> bytes:
        return bytes(await self.chunks.get(ChunkName(ID, ".log", number), lambda: self._fetch(number)))

    def ahead(self, number: int) -> bool:
        return self.chunks.read_ahead(ChunkName(ID, ".log", number), lambda: self._fetch(number))

    async def end(self) -> None:
        await asyncio.gather(*self.tasks)


async def test_those_who_need_a_chunk_at_the_same_time_wait_for_one_call() -> None:
    held = HeldThread()
    made = Chunks(held)
    assert made.ahead(1)
    readers = [asyncio.ensure_future(made.get(1)) for _ in range(3)]
    await asyncio.sleep(0)
    readers[0].cancel()
    held.go.set()
    assert [await each for each in readers[1:]] == [bytes([1] * 10)] * 2
    assert made.asked == [1]


async def test_what_was_read_last_stays_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_chunks, "KEPT_BYTES", 30)
    made = Chunks()
    for number in (1, 2, 3, 1, 4):
        await made.get(number)
    assert made.asked == [1, 2, 3, 4] and made.chunks.bytes_kept == 30
    await made.get(1)
    assert made.asked == [1, 2, 3, 4]
    await made.get(2)
    assert made.asked == [1, 2, 3, 4, 2]


async def test_the_segments_that_were_read_last_stay_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_chunks, "OPENED_MAX", min(2, OPENED_MAX))
    made, opened = Chunks(), list[int]()

    async def open_segment(number: int) -> None:
        def open_it() -> Any:
            opened.append(number)
            return SimpleNamespace()

        await made.chunks.opened(bytes([number]), open_it)

    for number in (1, 2, 1, 3, 1, 2):
        await open_segment(number)
    assert opened == [1, 2, 3, 2]
    made.chunks.forget(bytes([2]))
    await open_segment(2)
    assert opened == [1, 2, 3, 2, 2]


async def test_no_more_is_read_ahead_than_there_is_room_for_until_it_is_asked_for() -> None:
    made = Chunks()
    assert [made.ahead(number) for number in range(AHEAD_MAX + 2)] == [True] * AHEAD_MAX + [False] * 2
    await made.end()
    assert sorted(made.asked) == list(range(AHEAD_MAX))
    await made.get(0)
    assert made.ahead(AHEAD_MAX) and not made.ahead(AHEAD_MAX + 1)
    await made.end()


async def test_a_call_that_has_failed_is_made_again_by_who_needs_the_chunk() -> None:
    made = Chunks()
    made.fault = OSError("away")
    assert made.ahead(1)
    await made.end()
    with pytest.raises(TierFailure, match="away"):
        await made.get(1)
    made.fault = None
    assert await made.get(1) == bytes([1] * 10)
    assert made.ahead(2), "a failure takes no room"
    await made.end()


async def test_a_fault_of_ours_reaches_those_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A share partition would otherwise wait for its read for ever."""
    made = Chunks()
    monkeypatch.setattr(made.disk, "settle", lambda name, done: divmod(1, 0))
    with pytest.raises(ZeroDivisionError):
        await made.get(1)


async def test_the_disk_has_what_memory_has_no_room_for_and_asks_the_store_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_chunks, "KEPT_BYTES", 10)
    folder = tmp_path / "cache" / "c-1"
    folder.mkdir(parents=True)
    (folder / "7").write_bytes(b"of an earlier process")
    made = Chunks(None, str(folder), 30)
    await made.disk.open()
    assert not [*folder.iterdir()]
    for _ in range(2):
        for number in (1, 2, 3):
            assert await made.get(number) == bytes([number] * 10)
    assert (made.asked, made.disk.hits, made.disk.bytes_kept) == ([1, 2, 3], 3, 30)
    await made.get(4)
    await made.get(5)
    await made.get(1)
    assert made.asked == [1, 2, 3, 4, 5, 1], "the first ones had to go"
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 30 + 2 * 10, "those that must go go with the next"


async def test_a_full_disk_is_no_fault_of_a_read_and_is_used_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(remote_chunks, "KEPT_BYTES", 10)
    made = Chunks(None, str(tmp_path / "cache"), 100)
    await made.disk.open()
    await made.get(1)
    made.files.is_full = True
    for number in (2, 3, 1):
        assert await made.get(number) == bytes([number] * 10)
    assert caplog.text.count("rests for 60 s") == 1
    assert (made.asked, made.disk.bytes_kept) == ([1, 2, 3, 1], 0)
    made.files.is_full = False
    made.clock.advance(chunk_files.REST_MS)
    for number in (2, 3, 2):
        assert await made.get(number) == bytes([number] * 10)
    assert (made.disk.hits, made.disk.bytes_kept) == (1, 20)
    assert len([*(tmp_path / "cache").iterdir()]) == 2, "what was there before is removed"


@pytest.mark.parametrize("damage", [b"", b"short", None])
async def test_a_file_that_is_not_as_it_was_written_is_asked_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: bytes | None
) -> None:
    monkeypatch.setattr(remote_chunks, "KEPT_BYTES", 10)
    made = Chunks(None, str(tmp_path / "cache"), 100)
    await made.disk.open()
    await made.get(1)
    await made.get(2)
    (file,) = (each for each in (tmp_path / "cache").iterdir() if each.read_bytes() == bytes([1] * 10))
    file.unlink() if damage is None else file.write_bytes(damage)
    assert await made.get(1) == bytes([1] * 10)
    assert made.asked == [1, 2, 1]


async def test_a_folder_that_cannot_be_used_is_no_cache(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    made = Chunks(None, str(tmp_path / "file" / "cache"), 100)
    await made.disk.open()
    assert "no cache on disk until the next start" in caplog.text
    assert await made.get(1) == bytes([1] * 10)
    assert made.disk.bytes_kept == 0


async def test_wrong_bytes_are_asked_for_again_in_memory_and_on_disk(tmp_path: Path) -> None:
    made = Chunks(None, str(tmp_path / "cache"), 100)
    await made.disk.open()
    await made.get(1)
    made.chunks.forget(ID)
    await made.get(1)
    assert made.asked == [1, 1]
