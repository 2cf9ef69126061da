"""Files with a second name: they belong to a snapshot of the cluster as well (docs/SNAPSHOTS.md), and are never written.

Whatever would write to one gives the name a file of its own first. That is the whole rule, and `own` is all that knows it: files
that are mapped for writing call it, and so do writes at a position and truncations. Other writes replace whole files. Recovery makes
pages dirty by the bytes that they have (`Files.touch`), which changes no file: so it copies none of the segments that it checks.
"""

from __future__ import annotations

import os
from contextlib import suppress
from threading import Lock

from ottla.storage.errors import failure_of

#: Of a copy that is being made: recovery removes it.
COPY_SUFFIX = ".own.tmp"
COPY_BYTES = 8 << 20
_copying = Lock()


def own(path: str) -> None:
    """Replaces a file that has further names by a copy, which is on the disk before it takes this name. Others are left as they are.

    Raises:
        StorageFailure, DiskFull: nothing has changed.
    """
    if not _is_shared(path):
        return
    with _copying:  # a flush on another thread may need the same file
        if _is_shared(path):
            try:
                _copy(path, path + COPY_SUFFIX)
            except OSError as error:
                with suppress(OSError):
                    os.unlink(path + COPY_SUFFIX)
                raise failure_of(path, error) from error


def _is_shared(path: str) -> bool:
    try:
        return os.stat(path).st_nlink > 1
    except OSError:
        return False  # the call itself will say what is wrong


def _copy(path: str, new: str) -> None:
    with open(path, "rb") as shared, open(new, "wb") as copy:
        while piece := shared.read(COPY_BYTES):
            copy.write(piece)
        was = os.fstat(shared.fileno())
        copy.flush()
        os.fchmod(copy.fileno(), was.st_mode)
        os.utime(copy.fileno(), ns=(was.st_atime_ns, was.st_mtime_ns))
        os.fsync(copy.fileno())
    os.replace(new, path)
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
