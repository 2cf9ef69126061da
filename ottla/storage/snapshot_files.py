"""The producer snapshots of a log: its `.snapshot` files, and those that the next flush will write.

Recovery loads the newest valid snapshot, and reads only the batches after it for the producer states.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ottla.storage import producer_snapshot
from ottla.storage.errors import CorruptFile, DiskFull, StorageFailure
from ottla.storage.log_state import LogState
from ottla.storage.producer_state import ProducerState
from ottla.storage.producers import ProducerStates
from ottla.storage.segment import segment_path

logger = logging.getLogger(__name__)

#: The number of producers whose state is written in one turn of the event loop, at about 1 us each. 50,000 took 68 ms.
PRODUCERS_AT_ONCE = 2_000


def take(log: LogState, at_once: bool = False) -> None:
    """Writes a snapshot at the log end offset, unless it exists. If there are many producers, the next flush writes it.

    Every segment but the first has a snapshot at its base offset. Of those in between two are needed: the newest, and the
    newest one at or below the recovery point, because recovery after a crash ignores later ones.
    """
    offset = log.log_end_offset
    if offset in log.snapshots or offset == 0:
        return
    bases = {segment.base_offset for segment in log.segments}
    between = [old for old in log.snapshots if old not in bases]
    newest_flushed = max((old for old in between if old <= log.recovery_point), default=-1)
    if len(log.producers) > PRODUCERS_AT_ONCE and not at_once:
        log.frozen[offset] = log.producers.freeze()
    else:
        path = segment_path(log.directory, offset, producer_snapshot.SUFFIX)
        with log.files_lock:  # after a flush that is writing what was truncated at this offset
            log.files.write_atomic(path, producer_snapshot.encode(log.producers), sync=False)
        log.unsynced_snapshot = offset
        log.snapshots.append(offset)
    for old in between:
        if old != newest_flushed:
            remove(log, old)


def write_frozen(
    log: LogState, frozen: Mapping[int, list[ProducerState]], written: list[int], is_current: Callable[[], bool]
) -> None:
    """Writes the states of a flush as snapshots, on any thread, and adds their offsets to `written`."""
    for offset, states in frozen.items():
        path, data = segment_path(log.directory, offset, producer_snapshot.SUFFIX), producer_snapshot.encode(states)
        with log.files_lock:
            if not is_current():
                return  # truncated, or deleted: its directory may belong to a new log of the same name
            try:
                log.files.write_atomic(path, data, sync=False)
            except DiskFull as failure:
                logger.warning("producers of %s: %s", log, failure)
                return
        written.append(offset)


def sync(log: LogState) -> bool:
    """Syncs the newest snapshot; returns True if the directory must be synced as well."""
    if log.unsynced_snapshot != log.log_end_offset:
        return False
    log.files.sync_file(segment_path(log.directory, log.unsynced_snapshot, producer_snapshot.SUFFIX))
    log.unsynced_snapshot = -1
    return True


class Decoded(NamedTuple):
    """A snapshot that was read on another thread, good for one load while its file is what it was."""

    offset: int
    states: list[ProducerState]
    #: The log's number of truncations at the read. After another truncation the snapshot of that offset may be a different one.
    truncations: int

    def counts(self, log: LogState) -> bool:
        return self.truncations == log.truncations and self.offset in log.snapshots


def decoding(log: LogState, offset_max: int) -> Callable[[], Decoded | None] | None:
    """Returns a function that reads a large snapshot on a worker thread, because 50,000 producers take 0.2 s."""
    offset = max((old for old in log.snapshots if log.log_start_offset < old <= offset_max), default=-1)
    if len(log.producers) <= PRODUCERS_AT_ONCE or offset < 0:
        return None
    path, truncations = segment_path(log.directory, offset, producer_snapshot.SUFFIX), log.truncations

    def decode() -> Decoded | None:
        """Returns the producer states in the file, or None if it is damaged; `load` then reports the damage."""
        try:
            return Decoded(offset, producer_snapshot.decode(path, log.files.read(path) or b""), truncations)
        except (CorruptFile, StorageFailure):
            return None

    return decode


def load(log: LogState, producers: ProducerStates, offset_max: int, decoded: Decoded | None = None) -> int:
    """Loads the newest valid snapshot up to `offset_max` and returns its offset; damaged ones are removed."""
    producers.clear()
    for offset in sorted(log.snapshots, reverse=True):
        if offset > offset_max:
            continue
        if offset <= log.log_start_offset:
            break
        if decoded is not None and decoded.offset == offset:
            producers.load(decoded.states, offset)
            return offset
        path = segment_path(log.directory, offset, producer_snapshot.SUFFIX)
        try:
            producers.load(producer_snapshot.decode(path, log.files.read(path) or b""), offset)
        except CorruptFile:
            remove(log, offset)
            continue
        return offset
    return log.log_start_offset


def forget(log: LogState, is_gone: Callable[[int], bool]) -> None:
    for offset in leave(log, is_gone):
        remove_file(log, offset)


def leave(log: LogState, is_gone: Callable[[int], bool]) -> list[int]:
    """Forgets these snapshots in memory; returns the offsets of those that have files."""
    for offset in list(filter(is_gone, log.frozen)):
        del log.frozen[offset]
    gone = list(filter(is_gone, log.snapshots))
    log.snapshots = [offset for offset in log.snapshots if not is_gone(offset)]
    return gone


def remove(log: LogState, offset: int) -> None:
    remove_file(log, offset)
    log.snapshots.remove(offset)


def remove_file(log: LogState, offset: int) -> None:
    log.files.remove(segment_path(log.directory, offset, producer_snapshot.SUFFIX))
