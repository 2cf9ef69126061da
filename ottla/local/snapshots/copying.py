"""The copy of a log directory: files that are never written again are shared by hard links, everything else is copied.

    sealed segments with their indexes, producer    linked: no node writes to a file that has a second name
    snapshots, snapshots of the metadata            (ottla/storage/mapped_file.py)
    the active segment of each log                  copied up to its last whole batch
    checkpoints, epochs, identity, quorum-state     copied
    locks, files that are about to be removed       left out

A copy of a log that is written meanwhile is not valid by itself, but little is missing in it. So everything is copied once
before the fence (`Copies`), and inside the fence only what has changed since then. Two facts show what has changed. A file that
is linked is the one of its name as long as the name has the same inode: no other file gets that number while the link is there.
(A directory's time says less: two changes within one tick of the kernel's clock have one time.) And if two logs have the same
batch at the same offset, they have the same batches before it: a batch has its leader's epoch, and a leader never writes two
batches at one offset. A batch that a node is writing at the moment of a copy may be partial in the copy. So before the fence
only batches with a valid CRC count, and never the last one, whose header may not be written yet.

A node that truncates writes to what was a sealed segment. It may have checked the number of names before the link was made, and
write after the fence. So no file is linked of a log whose `TRUNCATION` says that a truncation is under way.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import re
import struct
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.protocol.errors import KafkaError
from ottla.protocol.records.batch import (
    BASE_OFFSET,
    HEADER,
    HEADER_BYTES,
    LAST_OFFSET_DELTA,
    LENGTH,
    LOG_OVERHEAD_BYTES,
    PARTITION_LEADER_EPOCH,
    Header,
    check_batch,
)
from ottla.storage.log.partition_dir import TRUNCATION

#: A file of a segment, by its base offset and kind.
SEGMENT_FILE = re.compile(r"(\d{20})\.(log|index|timeindex|txnindex)")
#: These files get their names when they are complete, and never change: snapshots of producers and of the metadata.
FINAL = re.compile(r"\d{20}\.snapshot|\d{20}-\d{10}\.checkpoint")
LEFT_OUT = re.compile(r"\.lock|.*(\.deleted|\.cleaned|\.tmp|\.part|-delete)")
LOG = ".log"
PIECE_BYTES = 32 << 20
#: A walk through all headers of a file reads this many bytes at a time.
WALK_BYTES = 8 << 20
INDEX_ENTRY = struct.Struct(">II")
#: The last entries of an index may point to the last batch.
ENTRIES_BACK = 8
#: The beginning of a batch: its base offset, and the number of bytes after these twelve.
BATCH_START = struct.Struct(">qi")
#: Errors of `link` and `copy_file_range` which mean that this file system, or this pair of file systems, does not support them.
CANNOT = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS, errno.EBADF})


#: Flags of sync_file_range: begin to write the dirty pages; wait for the pages that are being written.
BEGIN_WRITING, WAIT_UNTIL_WRITTEN = 2, 1 | 4
if sys.platform == "linux":
    _sync_file_range = ctypes.CDLL(None, use_errno=True).sync_file_range
    _sync_file_range.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]


class CopyState(NamedTuple):
    """The attributes of a file that show whether it has changed since its copy."""

    inode: int
    size: int
    changed_ns: int

    @classmethod
    def of(cls, path: str) -> CopyState:
        found = os.stat(path)
        return cls(found.st_ino, found.st_size, found.st_mtime_ns)


UNKNOWN = CopyState(-1, -1, -1)


class CopiedEnd(NamedTuple):
    """The end of a segment's batches, and the beginning of the last batch."""

    end: int
    last: int


NOTHING = CopiedEnd(0, 0)


@dataclass(slots=True)
class Copied:
    """The state of the copy of a log."""

    #: The inodes of the log's files by name. It is empty if the next call has to check all files.
    inodes: dict[str, int] = field(default_factory=dict)
    #: The active segment: its name, its inode, and the end of what was copied.
    active: str = ""
    inode: int = 0
    end: CopiedEnd = NOTHING
    #: Files that grow in place, or that cannot be linked.
    growing: dict[str, CopyState] = field(default_factory=dict)
    #: Small files that are replaced as a whole. Their inode proves nothing: a later file may get it.
    replaced: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Copies:
    """The copies of a log directory's logs, by name."""

    of: dict[str, Copied] = field(default_factory=dict)
    #: The bytes of active segments that the last call has copied.
    bytes: int = 0

    def bring(self, source: str, target: str, *, fenced: bool) -> None:
        """Make `target` equal to `source`, beginning with the copy of the last call.

        Unless `fenced`, nodes may run, so that the copy is not of one moment, and logs may vanish meanwhile.

        Raises:
            OSError: the disk is full, or fails. `target` is not valid then.
        """
        os.makedirs(target, exist_ok=True)
        self.bytes = 0
        folders = set(_folders(source))
        for name in self.of.keys() - folders:
            _remove(os.path.join(target, name))
            del self.of[name]
        for name in folders:
            try:
                self.bring_log(name, os.path.join(source, name), os.path.join(target, name), fenced=fenced)
            except FileNotFoundError:
                if fenced:
                    raise
                self.of.setdefault(name, Copied())  # the next call begins again, or removes it
        if fenced:
            for name in os.listdir(source):
                path = os.path.join(source, name)
                if name not in folders and not LEFT_OUT.fullmatch(name) and os.path.isfile(path):
                    copy_file(path, os.path.join(target, name))

    def bring_log(self, name: str, source: str, target: str, *, fenced: bool) -> None:
        """Make the copy of a log's directory equal to `source`."""
        copied = self.of.get(name)
        inodes = _inodes(source)
        if copied is None or copied.inodes != inodes:
            copied = self.of[name] = _other_files(source, target, Copied() if copied is None else copied, inodes)
        for file, was in copied.growing.items():
            now = CopyState.of(os.path.join(source, file))
            if was != now:
                copy_file(os.path.join(source, file), os.path.join(target, file))
                copied.growing[file] = now
        for file in copied.replaced:
            if not _same_bytes(os.path.join(source, file), os.path.join(target, file)):
                copy_file(os.path.join(source, file), os.path.join(target, file))
        if copied.active:
            self._extend(copied, os.path.join(source, copied.active), os.path.join(target, copied.active), fenced)

    def _extend(self, copied: Copied, source: str, target: str, fenced: bool) -> None:
        """Copy the batches of the active segment that the copy lacks, or all if the copy's last batch is no longer in place."""
        now = os.stat(source)
        if copied.inode != now.st_ino or not _same_batch(source, target, copied.end):
            copied.inode, copied.end = now.st_ino, NOTHING
            with suppress(FileNotFoundError):
                os.unlink(target)
        start = copied.end
        if start == NOTHING:
            position = indexed_position(source, now.st_size)
            start = CopiedEnd(position, position)
        end = end_of_batches(source, start)
        if end.end > copied.end.end or copied.end == NOTHING:
            copy_range(source, target, copied.end.end, end.end, gently=not fenced)
        if not fenced:
            end = end_of_settled(target, start)
            os.truncate(target, end.end)
        self.bytes += max(0, end.end - copied.end.end)
        copied.end = end


def copy_directory(source: str, target: str) -> None:
    """Copy a log directory that no node writes to. Raises OSError."""
    Copies().bring(source, target, fenced=True)


def copy_log(source: str, target: str) -> None:
    """Copy the directory of one log that no node writes to. Raises OSError."""
    os.makedirs(os.path.dirname(target), exist_ok=True)
    Copies().bring_log(os.path.basename(source), source, target, fenced=True)


def _other_files(source: str, target: str, copied: Copied, inodes: dict[str, int]) -> Copied:
    """Make `target` have the files of `source`, except the content of the active segment. Links that are right stay."""
    with suppress(FileExistsError):
        os.mkdir(target)
    base = _active_base(inodes)
    is_truncated = TRUNCATION in inodes
    active = base + LOG if base else ""
    if active != copied.active:
        copied = Copied(active=active)
    copied.inodes, copied.growing, copied.replaced = dict(inodes), {}, []
    kept = {active}
    there = set(os.listdir(target))
    for name in inodes:
        path, copy = os.path.join(source, name), os.path.join(target, name)
        segment = SEGMENT_FILE.fullmatch(name)
        if name == active:
            continue
        kept.add(name)
        if segment is not None and segment[1] == base:
            copied.growing[name] = UNKNOWN
        elif segment is None and not FINAL.fullmatch(name):
            copied.replaced.append(name)
        elif is_truncated:
            copied.growing[name] = UNKNOWN
        elif name not in there or os.stat(copy).st_ino != inodes[name]:
            was = CopyState.of(path)
            if name in there:
                os.unlink(copy)
            if not link_file(path, copy):
                copied.growing[name] = was
            elif os.stat(copy).st_ino != inodes[name]:
                copied.inodes.clear()  # another file got the name meanwhile
    if is_truncated:
        copied.inodes.clear()
    for name in there - kept:
        os.unlink(os.path.join(target, name))
    return copied


def _inodes(source: str) -> dict[str, int]:
    with os.scandir(source) as entries:
        return {entry.name: entry.inode() for entry in entries if not LEFT_OUT.fullmatch(entry.name)}


def _same_bytes(source: str, target: str) -> bool:
    if not os.path.exists(target):
        return False
    with open(source, "rb", buffering=0) as old, open(target, "rb", buffering=0) as new:
        return old.read() == new.read()


def _same_batch(source: str, target: str, end: CopiedEnd) -> bool:
    if not end.end:
        return False
    batches = []
    for path in (source, target):
        with open(path, "rb", buffering=0) as file:
            batches.append(os.pread(file.fileno(), min(HEADER_BYTES, end.end - end.last), end.last))
    return batches[0] == batches[1]


def link_file(source: str, target: str) -> bool:
    """Link the file, or copy it if the file system does not support links. Return whether it was linked."""
    try:
        os.link(source, target)
        return True
    except OSError as failure:
        if failure.errno not in CANNOT:
            raise
        copy_file(source, target)
        return False


def copy_file(source: str, target: str) -> None:
    was = os.stat(source)
    with suppress(FileNotFoundError):
        os.unlink(target)  # it may be a link, which must not be written through
    copy_range(source, target, 0, was.st_size)
    os.chmod(target, was.st_mode & 0o7777)


def _write_back(descriptor: int, position: int, count: int) -> None:
    """Begin to write these bytes to the disk, and wait for the chunk before. It is only advice: it makes nothing durable."""
    if sys.platform == "linux":
        _sync_file_range(descriptor, position, count, BEGIN_WRITING)
        if (before := max(0, position - PIECE_BYTES)) < position:
            _sync_file_range(descriptor, before, position - before, BEGIN_WRITING | WAIT_UNTIL_WRITTEN)


def copy_range(source: str, target: str, begin: int, end: int, *, gently: bool = False) -> None:
    """Let bytes [begin, end) of `target` be those of `source`, share blocks where the file system can, and keep the time of the last change.

    With `gently` the disk is never behind by more than a chunk, so that the kernel does not make the nodes' writes wait for it.
    """
    old = os.open(source, os.O_RDONLY)
    try:
        new = os.open(target, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            position, in_kernel = begin, hasattr(os, "copy_file_range")
            while position < end:
                length = min(end - position, PIECE_BYTES)
                if in_kernel:
                    try:
                        count = os.copy_file_range(old, new, length, position, position)
                    except OSError as failure:
                        if failure.errno not in CANNOT:
                            raise
                        in_kernel = False
                        continue
                else:
                    count = os.pwrite(new, os.pread(old, length, position), position)
                if not count:
                    raise OSError(errno.EIO, "it ends before its size", source)
                position += count
                if gently:
                    _write_back(new, position - count, count)
            was = os.fstat(old)
            os.utime(new, ns=(was.st_atime_ns, was.st_mtime_ns))
        finally:
            os.close(new)
    finally:
        os.close(old)


# -- The end of a log -----------------------------------------------------------------------------------------------------


def end_of_batches(path: str, start: CopiedEnd) -> CopiedEnd:
    """Return the end of the last complete batch in the row of batches from `start` on."""
    position, last = start
    with open(path, "rb", buffering=WALK_BYTES if position == 0 else 64 << 10) as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(position)
        while len(head := file.read(BATCH_START.size)) == BATCH_START.size:
            length = BATCH_START.unpack(head)[1]
            if length <= 0 or position + BATCH_START.size + length > size:
                break
            last = position
            position += BATCH_START.size + length
            file.seek(position)
    return CopiedEnd(position, last)


def end_of_settled(path: str, start: CopiedEnd) -> CopiedEnd:
    """Return the end of those batches of a copy that no node was writing when it was made; NOTHING if that is not known."""
    if not os.path.getsize(path):
        return NOTHING
    starts = [start.last] if start.last < start.end else []
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data, memoryview(data) as view:
        before = HEADER.unpack_from(view, start.last) if starts else None
        position = start.end
        with suppress(KafkaError):
            while position < len(view):
                header = check_batch(view, position, len(view))
                if before is not None and not _follows(header, before):
                    break
                starts.append(position)
                position, before = position + LOG_OVERHEAD_BYTES + header[LENGTH], header
    return CopiedEnd(starts[-1], starts[-2]) if len(starts) > 1 else NOTHING


def _follows(header: Header, before: Header) -> bool:
    """Return whether offset and epoch follow the batch before. The CRC covers neither, because a leader sets them last."""
    return (
        header[BASE_OFFSET] > before[BASE_OFFSET] + before[LAST_OFFSET_DELTA]
        and header[PARTITION_LEADER_EPOCH] >= before[PARTITION_LEADER_EPOCH]
    )


def indexed_position(log_path: str, size: int) -> int:
    """Return by the index the start of a batch near the end of an active segment; 0 if the index has none."""
    base = int(os.path.basename(log_path)[:20])
    try:
        with open(log_path.removesuffix(LOG) + ".index", "rb") as index:
            index.seek(-INDEX_ENTRY.size * ENTRIES_BACK, os.SEEK_END)
            relative, position = INDEX_ENTRY.unpack(index.read(INDEX_ENTRY.size))
        with open(log_path, "rb", buffering=0) as log:
            header = HEADER.unpack(os.pread(log.fileno(), HEADER_BYTES, position))
    except (OSError, struct.error):
        return 0
    # The index may still have entries of truncated batches.
    return position if position < size and header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] == base + relative else 0


def _folders(directory: str) -> Iterator[str]:
    for entry in os.scandir(directory):
        if entry.is_dir() and not LEFT_OUT.fullmatch(entry.name):
            yield entry.name


def _active_base(names: Iterable[str]) -> str:
    """Return the base offset of the last segment, as in its file name; it is empty if there is no segment."""
    found = (SEGMENT_FILE.fullmatch(name) for name in names)
    return max((each[1] for each in found if each and each[2] == "log"), default="")


def _remove(path: str) -> None:
    with suppress(FileNotFoundError):
        for name in os.listdir(path):
            os.unlink(os.path.join(path, name))
        os.rmdir(path)
