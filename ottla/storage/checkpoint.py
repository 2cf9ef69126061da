"""Kafka's small text checkpoints: a version line, a count line, then one entry per line. Always replaced as a whole.

leader-epoch-checkpoint                  epoch offset
recovery-point-offset-checkpoint, replication-offset-checkpoint,
log-start-offset-checkpoint, cleaner-offset-checkpoint      topic partition offset

The latter four are those of a log directory (`OffsetCheckpoints`): read at start, and lowered before what they cover goes. A checkpoint
that exceeds a log's end would cover the records that are appended there next. So the entries are lowered before a truncation, when a
log turns out to be shorter at the start, and when a partition's name gets a new log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from threading import Lock

from ottla.storage.errors import CorruptFile
from ottla.storage.files import Files

logger = logging.getLogger(__name__)

VERSION = 0

RECOVERY_POINT = "recovery-point-offset-checkpoint"
REPLICATION = "replication-offset-checkpoint"
LOG_START = "log-start-offset-checkpoint"
CLEANER = "cleaner-offset-checkpoint"
NAMES = (RECOVERY_POINT, LOG_START, REPLICATION, CLEANER)

#: The offsets of a checkpoint by (topic, partition).
Offsets = dict[tuple[str, int], int]


def read_lines(files: Files, path: str) -> list[list[str]]:
    """Returns the entries, split at blanks; a missing file has no entries.

    Raises:
        CorruptFile: the file is no text, has another version, or not the number of lines in its second line.
    """
    data = files.read(path)
    if data is None:
        return []
    try:
        lines = data.decode().splitlines()
        version, count = int(lines[0]), int(lines[1])
    except (UnicodeDecodeError, ValueError, IndexError) as error:
        raise CorruptFile(path, f"does not start with a version and a count: {data[:40]!r}") from error
    if version != VERSION:
        raise CorruptFile(path, f"version is {version}, not {VERSION}")
    if not data.endswith(b"\n"):
        raise CorruptFile(path, "is cut off: the last line has no end")
    entries = [line.split() for line in lines[2:] if line]
    if len(entries) != count:
        raise CorruptFile(path, f"{count} entries declared, {len(entries)} found")
    return entries


def write_lines(files: Files, path: str, lines: Iterable[str], sync: bool = True) -> None:
    entries = list(lines)
    text = "\n".join((str(VERSION), str(len(entries)), *entries)) + "\n"
    files.write_atomic(path, text.encode(), sync)


def read_pairs(files: Files, path: str) -> list[tuple[int, int]]:
    try:
        return [(int(a), int(b)) for a, b in read_lines(files, path)]
    except ValueError as error:
        raise CorruptFile(path, "an entry is not two whole numbers") from error


def write_pairs(files: Files, path: str, pairs: Iterable[tuple[int, int]], sync: bool = True) -> None:
    write_lines(files, path, (f"{a} {b}" for a, b in pairs), sync)


def read_offsets(files: Files, path: str) -> dict[tuple[str, int], int]:
    """Offsets by (topic, partition)."""
    try:
        return {(topic, int(partition)): int(offset) for topic, partition, offset in read_lines(files, path)}
    except ValueError as error:
        raise CorruptFile(path, "an entry is not `topic partition offset`") from error


def write_offsets(files: Files, path: str, offsets: Mapping[tuple[str, int], int]) -> None:
    write_lines(files, path, (f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()))


class OffsetCheckpoints:
    """Log directories are given by their paths. All methods raise `StorageFailure` if a file cannot be written."""

    def __init__(self, files: Files, directories: Iterable[str]) -> None:
        self._files = files
        self._contents: dict[str, Offsets] = {}  # the contents of the files, by path
        self._written: set[str] = set()  # files that only this process has written
        # Workers write the checkpoints; the lock serializes the writes of one file. A disk that hangs keeps those of no other disk.
        self._locks = {(directory, name): Lock() for directory in directories for name in NAMES}

    def read(self, directory: str) -> None:
        """Reads the checkpoints. A damaged one counts as missing: the logs are then read from their start."""
        for name in NAMES:
            path = f"{directory}/{name}"
            try:
                # Kafka creates them empty, and writes them once there is something to write.
                offsets = read_offsets(self._files, path) if self._files.size(path) else {}
            except CorruptFile as error:
                logger.warning("%s: ignored", error)
                offsets = {}
            self._contents[path] = offsets

    def known(self, directory: str, name: str, key: tuple[str, int]) -> int:
        """Returns the offset in the file, or 0."""
        return self._of(directory, name).get(key, 0)

    def write(self, directory: str, name: str, collect: Callable[[], Offsets]) -> None:
        """Writes the collected offsets. They are collected under the lock, so that an older collection does not replace a newer."""
        with self._locks[directory, name]:
            self._replace(directory, name, collect())

    def lower(self, directory: str, key: tuple[str, int], wanted: Callable[[str, int], int]) -> None:
        """Replaces the entries of one partition: `wanted` gets the name of the checkpoint and the offset in it."""
        for name in NAMES:
            with self._locks[directory, name]:
                now = self.known(directory, name, key)
                offset = wanted(name, now)
                if offset != now:
                    self._replace(directory, name, {**self._of(directory, name), key: offset})

    def lower_to_ends(self, directory: str, ends: Mapping[tuple[str, int], int]) -> None:
        """Lowers entries beyond a log's end."""
        for name in NAMES:
            with self._locks[directory, name]:
                known = self._of(directory, name)
                lowered = {key: min(offset, ends[key]) for key, offset in known.items() if key in ends}
                if any(known[key] != offset for key, offset in lowered.items()):
                    self._replace(directory, name, lowered)

    def forget(self, directory: str, key: tuple[str, int], is_wanted: Callable[[], bool]) -> None:
        """Removes a deleted partition, so that its offsets do not apply to a new topic of the same name, on any thread.

        Once the new one has files, the offsets are its own: then it is not `is_wanted` any more.
        """
        for name in NAMES:
            with self._locks[directory, name]:
                # An entry of 0 is valid for a new topic, too; each write costs time for all partitions.
                if is_wanted() and self.known(directory, name, key):
                    offsets = self._of(directory, name)
                    self._replace(directory, name, {k: offset for k, offset in offsets.items() if k != key})

    def _of(self, directory: str, name: str) -> Offsets:
        return self._contents.get(f"{directory}/{name}", {})

    def _replace(self, directory: str, name: str, offsets: Offsets) -> None:
        path = f"{directory}/{name}"
        known = self._contents.get(path)
        if path in self._written and (offsets is known or offsets == known) and self._files.exists(path):
            return  # the file still exists: a missing disk is noticed even without writes
        write_offsets(self._files, path, offsets)
        self._contents[path] = offsets
        self._written.add(path)
