"""The recording: what a tap receives becomes entries, and a spool writes their bytes on a thread, with a bounded queue.

Clients never wait for the disk. Frames that do not fit are lost, and an entry counts them. A full disk, or a reader that has
gone, ends the recording, and the traffic goes on.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import BinaryIO

from ottla.protocol.primitives import Buffer
from ottla.server.clock import Clock
from ottla.server.world import World
from ottla.traffic.entries import Entry, EntryKind, Opened, encode_entry, encode_header
from ottla.traffic.masking import Masking

#: The bytes that may wait for the disk: at 1 GB/s that is a pause of 0.06 s, at a usual 20 MB/s one of 3 s.
SPOOL_BYTES_MAX = 64 * 1024 * 1024
#: This many bytes are written at once. Fewer wait for more, so that a busy connection does not need a call for each frame.
WRITE_BYTES = 256 * 1024
#: They wait no longer than this, so that a user who stops a recording, or follows it, has everything older.
WRITE_MS = 100


class Spool:
    """The bytes on their way to a file or a pipe, in order."""

    def __init__(self, world: World, file: BinaryIO, on_failure: Callable[[OSError], object]) -> None:
        self._world = world
        self._workers = world.workers.apart("recording")
        self._file = file
        self._on_failure = on_failure
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._writing_bytes = 0
        self._task: asyncio.Task[None] | None = None
        self._is_timed = False
        #: The reason why nothing more is written.
        self.failure: OSError | None = None

    @property
    def is_full(self) -> bool:
        return self._waiting_bytes + self._writing_bytes > SPOOL_BYTES_MAX

    def give_up(self, failure: OSError) -> None:
        """Drop the waiting bytes, and write nothing more."""
        if self.failure is None:
            self.failure = failure
            self._waiting.clear()
            self._waiting_bytes = 0
            self._on_failure(failure)

    def add(self, data: bytes) -> None:
        """Take bytes to write. After a failure they are dropped."""
        if self.failure is not None:
            return
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes >= WRITE_BYTES:
            self._write()
        elif not self._is_timed:
            self._is_timed = True
            self._world.clock.call_later(WRITE_MS, self._due)

    async def close(self) -> None:
        """Write the waiting bytes."""
        while self.failure is None and (self._waiting or self._task is not None):
            self._write()
            if self._task is not None:
                await asyncio.wait([self._task])

    def _due(self) -> None:
        self._is_timed = False
        self._write()

    def _write(self) -> None:
        if self._task is None and self._waiting:
            self._task = self._world.spawn(self._write_waiting(), "recording")

    async def _write_waiting(self) -> None:
        try:
            while self._waiting and self.failure is None:
                data = b"".join(self._waiting)
                self._waiting.clear()
                self._waiting_bytes, self._writing_bytes = 0, len(data)
                await self._workers.run(self._write_all, data)
                self._writing_bytes = 0
        except OSError as failure:
            self.give_up(failure)
        finally:
            self._task = None

    def _write_all(self, data: bytes) -> None:
        view = memoryview(data)
        while view:  # the file has no buffer of its own, so a write may be partial
            view = view[self._file.write(view) or 0 :]


class Recorder:
    """A tap of a proxy that writes entries."""

    def __init__(self, clock: Clock, spool: Spool, masking: Masking, *, is_whole: bool = False) -> None:
        """With `is_whole` a recording with a gap is useless, so it ends at the first frame that does not fit."""
        self._is_whole = is_whole
        self._clock = clock
        self._spool = spool
        self._masking = masking
        self._begun_ns = clock.mono_ns()
        #: The frames that were written, the responses among them, and the frames that were lost since the last entry.
        self.frames = 0
        self.responses = 0
        self.lost = 0
        self._lost_now = 0
        spool.add(encode_header(clock.wall_ms()))

    def opened(self, connection: int, ends: Opened) -> None:
        self._add(EntryKind.OPENED, connection, frame=ends.encode())

    def closed(self, connection: int) -> None:
        self._add(EntryKind.CLOSED, connection)

    def request(self, connection: int, api_key: int, version: int, correlation_id: int, frame: Buffer) -> None:
        if self._has_room():
            masked = self._masking.request(api_key, frame)
            self._add(EntryKind.REQUEST, connection, api_key, version, correlation_id, *masked)

    def response(self, connection: int, api_key: int, version: int, correlation_id: int, frame: Buffer) -> None:
        if self._has_room():
            self.responses += 1
            masked = self._masking.response(api_key, version, frame)
            self._add(EntryKind.RESPONSE, connection, api_key, version, correlation_id, *masked)

    def _has_room(self) -> bool:
        if self._spool.failure is not None:
            return False
        if self._spool.is_full and self._is_whole:
            late = f"it is more than {SPOOL_BYTES_MAX >> 20} MiB behind"
            self._spool.give_up(OSError(errno.ENOBUFS, late))
            return False
        if self._spool.is_full:
            self._lost_now += 1
            self.lost += 1
            return False
        if self._lost_now:
            self._add(EntryKind.LOST, 0, frame=str(self._lost_now).encode())
            self._lost_now = 0
        self.frames += 1
        return True

    def _add(
        self,
        kind: EntryKind,
        connection: int,
        api_key: int = 0,
        version: int = 0,
        correlation_id: int = 0,
        frame: Buffer = b"",
        flags: int = 0,
    ) -> None:
        time_us = (self._clock.mono_ns() - self._begun_ns) // 1000
        entry = Entry(kind, connection, time_us, api_key, version, correlation_id, bytes(frame), flags)
        self._spool.add(encode_entry(entry))
