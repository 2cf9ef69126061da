"""Logs of stopped nodes, which are read from their files. Nothing is changed, and no log is opened."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from ottla.local.snapshots.copying import LOG, SEGMENT_FILE
from ottla.protocol.errors import KafkaError
from ottla.protocol.internal_topics.coordinator_records import RecordTypes, UnknownRecord, decode_key, decode_value
from ottla.protocol.records.batch import HEADER, BatchView, Header
from ottla.storage.checkpoint import read_offsets
from ottla.storage.epochs import FILE as EPOCHS
from ottla.storage.epochs import LeaderEpochs
from ottla.storage.errors import CorruptFile
from ottla.storage.files import OsFiles
from ottla.storage.log.partition_dir import partition_of, read_topic_id
from ottla.storage.log_files import spans

Partition = tuple[str, int]


class StoredLog(NamedTuple):
    """One replica: its path, and its contents."""

    node: int
    path: str
    topic_id: bytes
    end: int
    #: The leader epochs as (epoch, first offset), in order.
    epochs: tuple[tuple[int, int], ...]

    @property
    def rank(self) -> tuple[int, int]:
        """Epoch and end of its batches. As in an election, the replica with the larger pair has all that the other one has."""
        return (self.epochs[-1][0] if self.epochs else -1, self.end)


def stored_logs(node: int, data: str) -> Iterator[tuple[Partition, StoredLog]]:
    """Return the logs in a log directory, except the metadata log.

    Raises:
        CorruptFile: the partition of a log is not known.
    """
    files = OsFiles()
    for name in sorted(os.listdir(data)):
        path = os.path.join(data, name)
        partition = partition_of(name)
        topic_id = read_topic_id(files, path) if partition else None
        if partition is not None and topic_id is not None and topic_id != (1).to_bytes(16, "big"):
            epochs = LeaderEpochs(files, os.path.join(path, EPOCHS))
            with suppress(FileNotFoundError, CorruptFile):  # a log without records has none
                epochs.load()
            yield partition, StoredLog(node, path, topic_id, _end(path), tuple(epochs.entries))


def headers(path: str) -> Iterator[Header]:
    """Return the headers of all batches of a log, in order."""
    for segment in _segments(path):
        for view, position in _batches(segment):
            yield HEADER.unpack_from(view, position)


def entries(path: str, end: int, types: RecordTypes) -> Iterator[tuple[object, object | None]]:
    """Return the keys and values of a coordinator's records below an offset. Records of a newer version are left out."""
    for segment in _segments(path):
        for view, position in _batches(segment):
            batch = BatchView(view, position)
            if batch.base_offset >= end:
                return
            if batch.is_control:
                continue
            for record in batch.iter_records():
                try:
                    key = decode_key(types, record.key or b"")
                    yield key, None if record.value is None else decode_value(types, key, record.value)
                except UnknownRecord:
                    continue


def checkpoint(data: str, name: str) -> dict[Partition, int]:
    """Return the offsets of a checkpoint; none if there is no such file."""
    path = os.path.join(data, name)
    return read_offsets(OsFiles(), path) if os.path.isfile(path) and os.path.getsize(path) else {}


def _end(path: str) -> int:
    end = 0
    for segment in _segments(path)[-2:]:
        end = int(os.path.basename(segment)[:20])
        for view, position in _batches(segment):
            batch = HEADER.unpack_from(view, position)
            end = batch[0] + batch[6] + 1
    return end


def _segments(path: str) -> list[str]:
    found = (SEGMENT_FILE.fullmatch(name) for name in os.listdir(path))
    return [
        os.path.join(path, each[1] + LOG)
        for each in sorted((e for e in found if e and e[2] == "log"), key=lambda e: e[1])
    ]


def _batches(segment: str) -> Iterator[tuple[memoryview, int]]:
    """Return the positions of all complete batches of a file."""
    if not os.path.getsize(segment):
        return
    with open(segment, "rb") as file:
        view = memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))  # unmapped with its last view
    with suppress(KafkaError):  # a fork has no use for anything behind the damage of a log
        for position, _ in spans(view):
            yield view, position
