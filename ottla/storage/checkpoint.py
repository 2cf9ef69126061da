"""Kafka's small text checkpoints: a version line, a count line, then one entry per line. Always replaced as a whole.

leader-epoch-checkpoint                  epoch offset
recovery-point-offset-checkpoint, replication-offset-checkpoint,
log-start-offset-checkpoint, cleaner-offset-checkpoint      topic partition offset
leader-epoch-floor-checkpoint                               topic partition epoch

The four of offsets are those of a log directory (directories/log_checkpoints.py). The last one is Ottla's own, beside the metadata of a cluster
that was set back (ottla/local/snapshots/raised_epochs.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.storage.errors import CorruptFile
from ottla.storage.files import Files

VERSION = 0

RECOVERY_POINT = "recovery-point-offset-checkpoint"
REPLICATION = "replication-offset-checkpoint"
LOG_START = "log-start-offset-checkpoint"
CLEANER = "cleaner-offset-checkpoint"
EPOCH_FLOOR = "leader-epoch-floor-checkpoint"
NAMES = (RECOVERY_POINT, LOG_START, REPLICATION, CLEANER)

#: The offsets of a checkpoint by (topic, partition).
Offsets = dict[tuple[str, int], int]


def read_lines(files: Files, path: str) -> list[list[str]]:
    """Return the entries, split at blanks; a missing file has no entries. Raises as `parse_lines`."""
    data = files.read(path)
    return [] if data is None else parse_lines(path, data)


def parse_lines(path: str, data: bytes) -> list[list[str]]:
    """Return the entries, split at blanks.

    Raises:
        CorruptFile: it is no text, has another version, or not the number of lines in its second line.
    """
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


def read_offsets(files: Files, path: str) -> dict[tuple[str, int], int]:
    """Return offsets by (topic, partition)."""
    try:
        return {(topic, int(partition)): int(offset) for topic, partition, offset in read_lines(files, path)}
    except ValueError as error:
        raise CorruptFile(path, "an entry is not `topic partition offset`") from error


def write_offsets(files: Files, path: str, offsets: Mapping[tuple[str, int], int]) -> None:
    write_lines(files, path, (f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()))
