"""The producer snapshots of a log: its `.snapshot` files, and those that the next flush will write.

Recovery loads the newest valid snapshot, and reads only the batches after it for the producer states. A file
`<offset, 20 digits>.snapshot` is Kafka's ProducerSnapshot version 1:

    version i16, crc u32 (CRC-32C of all that follows), count i32, then rows (46 bytes):
    producer id i64, epoch i16, last sequence i32, last offset i64, offset delta i32, timestamp i64,
    coordinator epoch i32, first offset of the current transaction i64

The file has the state after every batch below its offset. A producer has a row for each of its remembered batches, the
newest last. Kafka writes only the newest, and reads the last of several rows. With that alone, a leader that loads the state
rejects the retries of a pipelining producer as out of order; the producer sends them in a new epoch, and they are duplicated.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from struct import Struct
from threading import Lock
from typing import NamedTuple

from ottla.protocol.records.batch import NO_SEQUENCE, NO_TIMESTAMP, crc32c
from ottla.storage.errors import CorruptFile, DiskFull, StorageFailure
from ottla.storage.files import Files
from ottla.storage.producers.producer_states import NO_OFFSET, BatchMetadata, ProducerState, ProducerStates

logger = logging.getLogger(__name__)

VERSION = 1
SUFFIX = ".snapshot"
_HEADER = Struct(">hIi")
_ENTRY = Struct(">qhiqiqiq")
_CRC_END = 6
# The row of a producer that has only a marker.
NO_BATCH = BatchMetadata(NO_SEQUENCE, NO_OFFSET, 0, NO_TIMESTAMP)
assert _HEADER.size == 10 and _ENTRY.size == 46
#: The number of producers whose state is written in one turn of the event loop, at about 1 us each. 50,000 took 68 ms.
PRODUCERS_AT_ONCE = 2_000

#: The states of all producers at an offset, by that offset.
Frozen = Mapping[int, list[ProducerState]]


class Decoded(NamedTuple):
    """A snapshot that was read on another thread. One load may use it while its file is unchanged."""

    offset: int
    states: list[ProducerState]
    #: The log's number of truncations at the read. After another truncation the snapshot of that offset may be a different one.
    truncations: int


class ProducerSnapshots:
    """The snapshots of one log. Only `write_frozen`, and what `decoding` returns, run on another thread than the log's own."""

    def __init__(self, files: Files, directory: str, files_lock: Lock, producers: ProducerStates) -> None:
        """Take `files_lock`, which is held while a file is written: a flush may be writing truncated states at the same
        offset.
        """
        self._files = files
        self._files_lock = files_lock
        self._directory = directory
        self._producers = producers
        self.offsets: list[int] = []  # file names
        self.frozen: dict[int, list[ProducerState]] = {}  # the states that the next flush writes
        # The states that each running flush writes, and those of their offsets that were truncated since it began.
        self._writing: list[tuple[Frozen, set[int]]] = []
        self._left_behind: set[int] = set()  # files of truncated states, which may be written again
        self._unsynced = -1  # the newest snapshot, until it is synced

    def open(self, offsets: list[int]) -> None:
        """Take over the files that are in the directory."""
        self.offsets = offsets

    def relocate(self, directory: str) -> None:
        """The directory has been renamed."""
        self._directory = directory

    def follow(self, producers: ProducerStates) -> None:
        """Take these as the states of the log from now on."""
        self._producers = producers

    def take(self, offset: int, bases: list[int], recovery_point: int, at_once: bool = False) -> None:
        """Write a snapshot at the log end offset, unless it exists. If there are many producers, the next flush writes it.

        Every segment but the first has a snapshot at its base offset (`bases`). Of those in between two are needed: the newest, and
        the newest one at or below the recovery point, because recovery after a crash ignores later ones.
        """
        if offset in self.offsets or offset == 0:
            return
        between = [old for old in self.offsets if old not in set(bases)]
        newest_flushed = max((old for old in between if old <= recovery_point), default=-1)
        producers = self._producers
        if len(producers) > PRODUCERS_AT_ONCE and not at_once:
            self.frozen[offset] = producers.freeze()
        else:
            with self._files_lock:
                self._files.write_atomic(self.path(offset), encode(producers), sync=False)
            self._unsynced = offset
            self.offsets.append(offset)
            self.frozen.pop(offset, None)
        for old in between:
            if old != newest_flushed:
                self._remove(old)

    def write_ahead(self, offset: int, states: list[ProducerState]) -> None:
        """Write and sync a snapshot that is not the log's yet: `open` takes it over."""
        with self._files_lock:
            self._files.write_atomic(self.path(offset), encode(states))

    def sync(self, end_offset: int) -> bool:
        """Sync the snapshot at the log end offset; return True if the directory must be synced as well."""
        if self._unsynced != end_offset:
            return False
        self._files.sync_file(self.path(end_offset))
        self._unsynced = -1
        return True

    # A flush

    def begin_writing(self) -> Frozen:
        """Return the states that a flush is to write. `end_writing` must follow."""
        frozen, self.frozen = self.frozen, {}
        self._writing.append((frozen, set()))
        return frozen

    def write_frozen(self, frozen: Frozen, written: list[int], is_current: Callable[[], bool]) -> None:
        """Write the states of a flush as snapshots, on any thread, and add their offsets to `written`."""
        for offset, states in frozen.items():
            path, data = self.path(offset), encode(states)
            with self._files_lock:
                if not is_current():
                    return  # truncated, or deleted: its directory may belong to a new log of the same name
                try:
                    self._files.write_atomic(path, data, sync=False)
                except DiskFull as failure:
                    logger.warning("producers at offset %d in %s: %s", offset, self._directory, failure)
                    return
            written.append(offset)

    def end_writing(self, frozen: Frozen, written: list[int], *, is_current: bool, is_closed: bool) -> None:
        """Count the files that a flush has written, or remove them if meanwhile the log was truncated, or retention has passed
        them.
        """
        number = next(number for number, (each, _) in enumerate(self._writing) if each is frozen)
        _, left = self._writing.pop(number)
        self._left_behind.update(offset for offset in written if offset in left or not is_current)
        for offset, states in frozen.items() if is_current else ():
            if offset in self.offsets or offset in left:
                continue  # written beside this flush, of the same batches; or not needed any more
            if offset in written:
                self.offsets.append(offset)
                self._unsynced = offset
            else:
                self.frozen.setdefault(offset, states)  # for the next flush: the disk was full
        for offset in [each for each in self._left_behind if not any(each in frozen for frozen, _ in self._writing)]:
            self._left_behind.discard(offset)
            if offset not in self.offsets and not is_closed:
                self._files.remove(self.path(offset))

    # Loading

    def decoding(self, start: int, offset_max: int, truncations: int) -> Callable[[], Decoded | None] | None:
        """Return a function that reads a large snapshot in (start, offset_max] on a worker, because 50,000 producers take 0.2 s."""
        offset = max((old for old in self.offsets if start < old <= offset_max), default=-1)
        if len(self._producers) <= PRODUCERS_AT_ONCE or offset < 0:
            return None
        path = self.path(offset)

        def read() -> Decoded | None:
            """Return the producer states in the file, or None if it is damaged; `load` then reports the damage."""
            try:
                return Decoded(offset, decode(path, self._files.read(path) or b""), truncations)
            except (CorruptFile, StorageFailure):
                return None

        return read

    def load(self, producers: ProducerStates, start: int, offset_max: int, decoded: Decoded | None = None) -> int:
        """Load the newest valid snapshot in (start, offset_max] and return its offset, else `start`. Damaged ones are removed."""
        producers.clear()
        for offset in sorted(self.offsets, reverse=True):
            if offset > offset_max:
                continue
            if offset <= start:
                break
            if decoded is not None and decoded.offset == offset:
                producers.load(decoded.states)
                return offset
            path = self.path(offset)
            try:
                producers.load(decode(path, self._files.read(path) or b""))
            except CorruptFile:
                self._remove(offset)
                continue
            return offset
        return start

    # Removing

    def forget(self, is_gone: Callable[[int], bool]) -> None:
        """Remove these snapshots, and their files."""
        for path in self.leave(is_gone):
            self._files.remove(path)

    def leave(self, is_gone: Callable[[int], bool]) -> list[str]:
        """Forget these snapshots in memory; return the paths of those that have files."""
        for offset in list(filter(is_gone, self.frozen)):
            del self.frozen[offset]
        for frozen, left in self._writing:
            left.update(filter(is_gone, frozen))
        gone = list(filter(is_gone, self.offsets))
        self.offsets = [offset for offset in self.offsets if not is_gone(offset)]
        return [self.path(offset) for offset in gone]

    def paths_at(self, offsets: Iterable[int]) -> list[str]:
        """Return the files of those snapshots that are there."""
        return [self.path(offset) for offset in offsets if offset in self.offsets]

    def _remove(self, offset: int) -> None:
        self._files.remove(self.path(offset))
        self.offsets.remove(offset)

    def path(self, offset: int) -> str:
        """Return the file of a snapshot."""
        return f"{self._directory}/{offset:020d}{SUFFIX}"


def encode(states: Iterable[ProducerState]) -> bytes:
    rows: list[bytes] = []
    add, pack = rows.append, _ENTRY.pack
    for state in states:
        producer_id, epoch = state.producer_id, state.epoch
        coordinator_epoch, first = state.coordinator_epoch, state.current_txn_first_offset
        for sequence, offset, delta, timestamp in state.batches[:-1]:
            add(pack(producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, first))
        sequence, offset, delta, _ = state.batches[-1] if state.batches else NO_BATCH
        add(pack(producer_id, epoch, sequence, offset, delta, state.last_timestamp, coordinator_epoch, first))
    body = len(rows).to_bytes(4, "big") + b"".join(rows)
    return _HEADER.pack(VERSION, crc32c(body), len(rows)) + body[4:]


def decode(path: str, data: bytes) -> list[ProducerState]:
    """Decode the states of a snapshot file.

    Raises:
        CorruptFile: the version is unknown, the CRC is wrong, or the length does not match the count.
    """
    if len(data) < _HEADER.size:
        raise CorruptFile(path, f"{len(data)} bytes are too few for a header")
    version, crc, count = _HEADER.unpack_from(data)
    if version != VERSION:
        raise CorruptFile(path, f"version {version} is not known")
    if crc32c(data[_CRC_END:]) != crc:
        raise CorruptFile(path, "the CRC does not match")
    if len(data) != _HEADER.size + count * _ENTRY.size:
        raise CorruptFile(path, f"{len(data)} bytes do not hold {count} entries")
    states: dict[int, ProducerState] = {}
    for producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, first in _ENTRY.iter_unpack(
        data[_HEADER.size :]
    ):
        state = states.get(producer_id)
        if state is None or state.epoch != epoch:
            state = states[producer_id] = ProducerState(producer_id, epoch)
        state.coordinator_epoch, state.last_timestamp = coordinator_epoch, timestamp
        state.current_txn_first_offset = first if first >= 0 else NO_OFFSET
        if offset >= 0:
            state.batches.append(BatchMetadata(sequence, offset, delta, timestamp))
    return list(states.values())
