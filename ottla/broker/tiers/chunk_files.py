"""Files of chunks on a disk of the broker, so that what many consumers read is asked of the store once (`ottla.tier.cache.directory`).

A start empties the folder. Files of an earlier process could not be trusted: they are written without a flush, and a power loss leaves them
short or with zeros. The bookkeeping belongs to the loop, the calls of a `Passage` to a thread. A disk that is full or broken is no fault of a
read, because the store has the bytes: after a minute the cache begins again, empty.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ottla.protocol.primitives import Buffer
from ottla.server.world import World
from ottla.storage.errors import StorageFailure
from ottla.storage.files import Files

log = logging.getLogger(__name__)

#: The time for which a failed disk is neither written nor read.
REST_MS = 60_000


class ChunkName(NamedTuple):
    """A part of a segment in the store: a numbered part of its log, or the whole of another file."""

    segment_id: bytes
    suffix: str
    number: int = 0


class _File(NamedTuple):
    path: str
    size: int


class ChunkFiles:
    """The files by the names of their chunks. Those that were read last are at the end."""

    def __init__(self, world: World, folder: str, bytes_max: int) -> None:
        """Take no folder, or no bytes, and there are no files."""
        self._world, self._folder, self._bytes_max = world, folder, bytes_max if folder else 0
        self._kept: OrderedDict[ChunkName, _File] = OrderedDict()
        self._doomed: list[str] = []
        self._made = 0
        self._rests_to_ms = float("inf")
        self.bytes_kept = self.hits = 0

    async def open(self) -> None:
        """Empty the folder. Until then nothing is written."""
        if self._bytes_max:
            try:
                await self._world.workers.run(_empty, self._world.files, self._folder)
                self._rests_to_ms = float("-inf")
            except StorageFailure as fault:
                log.warning("Remote segments have no cache on disk until the next start: %s", fault)

    def passage(self, name: ChunkName, fetch: Callable[[], Buffer]) -> Passage:
        """Return the read of a chunk, which runs on a thread. `settle` is called with it afterwards."""
        if not self._bytes_max or self._world.clock.mono_ms() < self._rests_to_ms:
            return Passage(self._world.files, fetch)
        if (kept := self._kept.get(name)) is not None:
            self._kept.move_to_end(name)
        doomed, self._doomed = self._doomed, []
        self._made += 1
        return Passage(self._world.files, fetch, kept, f"{self._folder}/{self._made}", doomed)

    def settle(self, name: ChunkName, done: Passage) -> None:
        """Note whether the files were written or removed."""
        self.hits += done.is_found
        if done.failure is not None:
            log.warning("The cache of remote segments rests for %d s: %s", REST_MS // 1000, done.failure)
            self._rests_to_ms = self._world.clock.mono_ms() + REST_MS
            for each in list(self._kept):
                self.forget(each)
            self._doomed.append(done.path)
        elif done.size:
            self.forget(name)
            self._kept[name] = _File(done.path, done.size)
            self.bytes_kept += done.size
            while self.bytes_kept > self._bytes_max:
                self.forget(next(iter(self._kept)))

    def forget(self, name: ChunkName) -> None:
        """Remove the file of a chunk, if there is one, before the next one is written."""
        found = self._kept.pop(name, None)
        if found is not None:
            self.bytes_kept -= found.size
            self._doomed.append(found.path)


class Passage:
    """One read of a chunk: from its file, or from the store and then into a file, if it may have one."""

    def __init__(
        self,
        files: Files,
        fetch: Callable[[], Buffer],
        kept: _File | None = None,
        path: str = "",
        doomed: Sequence[str] = (),
    ) -> None:
        self._files, self._fetch, self._kept, self.path, self._doomed = files, fetch, kept, path, doomed
        self.is_found = False
        #: The contents that were written to `path`.
        self.size = 0
        self.failure: StorageFailure | None = None

    def __call__(self) -> Buffer:
        try:
            for path in self._doomed:
                self._files.remove(path)
            found = None if self._kept is None else self._files.read(self._kept.path)
            if found is not None and self._kept is not None and len(found) == self._kept.size:
                self.is_found = True
                return found
        except StorageFailure as fault:
            self.failure = fault
        data = self._fetch()
        if self.path and self.failure is None:
            try:
                self._files.pwrite(self.path, 0, bytes(data))
                self.size = len(data)
            except StorageFailure as fault:
                self.failure = fault
        return data

    def undo(self) -> None:
        """Remove a file that was written after its read had been given up."""
        if self.size:
            self._files.remove(self.path)


def _empty(files: Files, folder: str) -> None:
    files.remove_tree(folder)
    files.make_dirs(folder)
