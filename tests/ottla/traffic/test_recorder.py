"""The spool of a recording: a full or slow disk loses entries, but never delays the clients."""

from __future__ import annotations

import asyncio
import errno
import io
import threading
from typing import Any

import pytest

from ottla.server.world import RealWorld
from ottla.traffic import recorder as recording
from ottla.traffic.entries import EntryKind, EntryReader, Opened
from ottla.traffic.masking import Masking
from ottla.traffic.recorder import Recorder, Spool


class FullDisk(io.RawIOBase):
    def __init__(self, room: int) -> None:
        self.room = room
        self.data = b""

    def write(self, data: Any) -> int:
        taken = bytes(data)[: self.room]
        if not taken:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room -= len(taken)
        self.data += taken
        return len(taken)


class SlowDisk(io.BytesIO):
    def __init__(self) -> None:
        super().__init__()
        self.may_write = threading.Event()

    def write(self, data: Any) -> int:
        self.may_write.wait(30)
        return super().write(data)


async def test_a_full_disk_ends_the_recording_once_and_what_was_written_can_be_read() -> None:
    real = RealWorld(asyncio.get_running_loop())
    failures: list[OSError] = []
    disk: Any = FullDisk(room=100)
    spool = Spool(real.world, disk, failures.append)
    made = Recorder(real.world.clock, spool, Masking())
    for number in range(50):
        made.opened(number, Opened("a:1", "b:2"))
        await asyncio.sleep(0)
    await spool.close()
    made.opened(51, Opened("a:1", "b:2"))
    await spool.close()
    await real.close()
    assert [failure.errno for failure in failures] == [errno.ENOSPC]
    reader = EntryReader(io.BytesIO(disk.data).read, "f")
    assert [entry.connection for entry in reader] == [0], "24 bytes of header, and entries of 40"
    assert reader.torn_at is not None


async def test_a_slow_disk_loses_frames_and_the_recording_says_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "SPOOL_BYTES_MAX", 1000)
    real = RealWorld(asyncio.get_running_loop())
    disk = SlowDisk()
    spool = Spool(real.world, disk, pytest.fail)
    made = Recorder(real.world.clock, spool, Masking())
    for number in range(10):
        made.request(1, 500, 0, number, bytes(400))
    disk.may_write.set()
    await spool.close()
    made.request(1, 500, 0, 10, bytes(400))
    await spool.close()
    entries = list(EntryReader(io.BytesIO(disk.getvalue()).read, "f"))
    await real.close()
    assert [entry.kind for entry in entries] == [EntryKind.REQUEST] * 3 + [EntryKind.LOST, EntryKind.REQUEST]
    assert bytes(entries[3].frame) == b"7"
    assert (made.frames, made.lost) == (4, 7)
