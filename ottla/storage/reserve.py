"""Room that is kept on a disk for small writes which must not fail when others have filled it: votes, epochs, a follower's batches.

A file of this many allocated bytes. It is given up piece by piece, each at the moment at which a write has found no room and is
made again at once, because other writers to the disk would take the free room. Once there is room, it is allocated again.
"""

from __future__ import annotations

from ottla.storage.errors import DiskFull
from ottla.storage.files import Files

#: Some hours of an idle quorum, which writes 200 bytes a second.
RESERVE_BYTES = 1 << 20
#: A new segment needs blocks for four files and its directory.
PIECE_BYTES = 64 << 10


class Reserve:
    """The reserve of one directory. Its methods run on one thread at a time."""

    def __init__(self, files: Files, path: str, size: int = RESERVE_BYTES) -> None:
        self._files = files
        self._path = path
        self._size = size

    def fill(self) -> bool:
        """Allocate the missing pieces. Return False if the disk has not even room for one piece more.

        Raises:
            StorageFailure: the disk has failed.
        """
        try:
            self._files.create(self._path)
            mapped = self._files.map(self._path, 0, True)
            try:
                mapped.fill_holes(0)
                mapped.ensure(self._size + PIECE_BYTES)
            finally:
                mapped.close()
        except DiskFull:
            return False
        self._files.truncate(self._path, self._size)
        return True

    def give(self) -> bool:
        """Give up a piece; return False if none is left.

        Raises:
            StorageFailure: the disk has failed.
        """
        left = self._files.size(self._path)
        if not left:
            return False
        self._files.truncate(self._path, max(0, left - PIECE_BYTES))
        return True
