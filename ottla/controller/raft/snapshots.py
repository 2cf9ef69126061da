"""Snapshot files: the state at one offset, as batches between a SnapshotHeader and a SnapshotFooter (KIP-630).

    <end offset, 20 digits>-<epoch, 10 digits>.checkpoint     batches are numbered from 0 inside the file
    ….checkpoint.part                                         being written or downloaded; removed at start

A file gets its final name only after it is synced, and never changes afterwards. `bootstrap.checkpoint`, written when a
directory is formatted, has the same format; the first leader appends its records to the log first.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

from ottla.controller.raft.batches import (
    CommittedBatch,
    data_batch,
    decode,
    encode,
    read_control,
    split,
    voter_rows,
)
from ottla.controller.raft.log_state import BOOTSTRAP_SNAPSHOT, OffsetAndEpoch
from ottla.controller.raft.messages import ControlRecords
from ottla.controller.raft.voters import VoterSet
from ottla.protocol.errors import KafkaError, ProtocolError
from ottla.protocol.internal_topics import control_messages as wire
from ottla.protocol.primitives import Buffer
from ottla.protocol.records.batch import HEADER_BYTES, BatchView, batch_size, check_batch
from ottla.protocol.records.control import ControlType, control_batch, control_type
from ottla.protocol.work import Turn, Work
from ottla.server.clock import run_in_turns
from ottla.server.world import World
from ottla.storage.errors import CorruptFile, DiskFull
from ottla.storage.files import Files

logger = logging.getLogger(__name__)

SUFFIX = ".checkpoint"
PART = ".part"
BOOTSTRAP_FILE = "bootstrap.checkpoint"
_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")

#: Batches in a snapshot stay small enough to be read one by one; Kafka's limit for the log is 8 MB.
BATCH_BYTES_MAX = 1024 * 1024
#: The size of a read when a snapshot is loaded.
READ_BYTES = 4 * 1024 * 1024


def file_name(snapshot: OffsetAndEpoch) -> str:
    return f"{snapshot.offset:020d}-{snapshot.epoch:010d}{SUFFIX}"


class SnapshotReplaced(Exception):
    """The leader sent a newer snapshot while this one was read, and the file may have been deleted."""


class Snapshots:
    """The snapshots in the directory of one metadata log."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory

    def open(self) -> list[OffsetAndEpoch]:
        """Remove unfinished files of an earlier process; return the snapshots, oldest first."""
        for name in self._files.list_dir(self._directory):
            if name.endswith(SUFFIX + PART):
                self._files.remove(f"{self._directory}/{name}")
        return self.known()

    def known(self) -> list[OffsetAndEpoch]:
        """Return the snapshots, oldest first, without unfinished ones, which this node may be writing."""
        names = (_NAME.fullmatch(name) for name in self._files.list_dir(self._directory))
        return sorted(OffsetAndEpoch(int(name[1]), int(name[2])) for name in names if name)

    def path(self, snapshot: OffsetAndEpoch) -> str:
        return f"{self._directory}/{file_name(snapshot)}"

    def size(self, snapshot: OffsetAndEpoch) -> int | None:
        return self._files.size(self.path(snapshot))

    def modified_ms(self, snapshot: OffsetAndEpoch) -> int:
        return self._files.modified_ms(self.path(snapshot))

    def read(self, snapshot: OffsetAndEpoch, position: int, bytes_max: int) -> bytes:
        return self._files.pread(self.path(snapshot), position, bytes_max)

    def reader(self, snapshot: OffsetAndEpoch) -> SnapshotReader:
        return SnapshotReader(self._files, self.path(snapshot), snapshot)

    def check(self, snapshot: OffsetAndEpoch) -> None:
        """Raise CorruptFile unless the whole snapshot is valid. Call it before a log is reset to the snapshot."""
        for _ in self.reader(snapshot):
            pass

    def remove(self, snapshot: OffsetAndEpoch) -> None:
        self._files.remove(self.path(snapshot))

    # Downloads from the leader

    def store_chunk(self, snapshot: OffsetAndEpoch, position: int, data: Buffer) -> None:
        part = self.path(snapshot) + PART
        if position == 0:
            self._files.remove(part)
        self._files.pwrite(part, position, bytes(data))

    def checking(self, snapshot: OffsetAndEpoch) -> Work[ControlRecords]:
        """Check a whole download, in slices. Raises CorruptFile if it is not a complete snapshot, and removes it."""
        part = self.path(snapshot) + PART
        reader, turn = SnapshotReader(self._files, part, snapshot), Turn()
        try:
            for _ in reader.values():
                if turn.spend(1):
                    yield None
        except CorruptFile:
            self._files.remove(part)
            raise
        return reader.control

    def finish(self, snapshot: OffsetAndEpoch) -> None:
        """Make a checked download durable under its final name."""
        part = self.path(snapshot) + PART
        self._files.sync_file(part)
        self._files.rename(part, self.path(snapshot))
        self._files.sync_dir(self._directory)


class SnapshotReader:
    """Iterates over the batches of one snapshot, and checks that it is complete.

    `control` (voters and kraft.version) and `last_contained_log_timestamp` are known after the first batch. A caller that reads
    it in several turns of the loop sets `is_replaced` when a newer snapshot arrives.
    """

    def __init__(self, files: Files, path: str, snapshot: OffsetAndEpoch) -> None:
        self._files = files
        self.path = path
        self.snapshot_id = snapshot
        self.control = ControlRecords()
        self.last_contained_log_timestamp = -1
        self.is_replaced = False

    @property
    def offset(self) -> int:
        """The end offset: the snapshot has the state of the log below it."""
        return self.snapshot_id.offset

    @property
    def epoch(self) -> int:
        return self.snapshot_id.epoch

    def load_control(self) -> ControlRecords:
        """Read the control records of the header alone."""
        next(iter(self), None)
        return self.control

    def __iter__(self) -> Iterator[CommittedBatch]:
        """Yield data batches and control batches in order.

        Raises:
            CorruptFile: a batch is damaged, its records cannot be read, or header or footer are missing.
        """
        for view in self._checked():
            batch = CommittedBatch(view)
            try:
                batch.records  # noqa: B018  decodes them, because a valid CRC does not prove that they can be decoded
            except KafkaError as fault:
                raise self._unreadable(view, fault) from None
            yield batch

    def values(self) -> Iterator[bytes]:
        """Yield the values of the data records one by one: a batch of Kafka's may have 8 MB of them.

        Raises:
            CorruptFile, SnapshotReplaced
        """
        for view in self._checked():
            if view.is_control:
                continue
            try:
                for record in view.iter_records():
                    yield record.value or b""
            except KafkaError as fault:
                raise self._unreadable(view, fault) from None

    def _checked(self) -> Iterator[BatchView]:
        expected, footer_seen = 0, False
        for view in self._views():
            if footer_seen or view.base_offset != expected:
                raise CorruptFile(self.path, f"batch at offset {view.base_offset} where {expected} is expected")
            if expected == 0 and not self._read_header(view):
                raise CorruptFile(self.path, "does not begin with a snapshot header")
            try:
                footer_seen = view.is_control and _is_footer(view)
            except KafkaError as fault:
                raise self._unreadable(view, fault) from None
            expected = view.next_offset
            yield view
        if not footer_seen:
            raise CorruptFile(self.path, "has no footer: the file is incomplete")

    def _unreadable(self, view: BatchView, fault: KafkaError) -> CorruptFile:
        return CorruptFile(self.path, f"batch at offset {view.base_offset}: {fault}")

    def _read_header(self, view: BatchView) -> bool:
        try:
            records = view.records() if view.is_control else []
            if not records or control_type(records[0]) is not ControlType.SNAPSHOT_HEADER:
                return False
            header = decode(wire.SnapshotHeaderRecord, records[0].value or b"")
            self.control = read_control(view)
        except (KafkaError, ProtocolError) as fault:
            raise CorruptFile(self.path, f"the snapshot header: {fault}") from None
        self.last_contained_log_timestamp = header.last_contained_log_timestamp
        return True

    def _views(self) -> Iterator[BatchView]:
        size = self._files.size(self.path)
        if size is None:
            raise CorruptFile(self.path, "is not there")
        position, wanted = 0, READ_BYTES
        while position < size:
            if self.is_replaced:
                raise SnapshotReplaced(self.path)
            data = memoryview(self._files.pread(self.path, position, min(wanted, size - position)))
            taken = 0
            try:
                while (batch_bytes := batch_size(data, taken, len(data))) is not None:
                    check_batch(data, taken, taken + batch_bytes)
                    yield BatchView(data, taken)
                    taken += batch_bytes
            except KafkaError as fault:
                raise CorruptFile(self.path, f"at byte {position + taken}: {fault}") from None
            if taken == 0:
                # The batch is larger than the read, or it is the torn end of the file.
                if len(data) >= size - position or len(data) < HEADER_BYTES:
                    raise CorruptFile(self.path, f"ends inside the batch at byte {position}")
                wanted *= 4
            position += taken


async def completed(world: World, snapshots: Snapshots, snapshot: OffsetAndEpoch) -> ControlRecords | None:
    """Check the download, a slice in each turn, and make it durable on a worker.

    Return its control records; None if it is damaged, or the disk has no room for its name: it is downloaded again.

    Raises:
        StorageFailure: the disk has failed.
    """
    try:
        control = await run_in_turns(world.clock, snapshots.checking(snapshot))
        await world.workers.run(snapshots.finish, snapshot)
    except (CorruptFile, DiskFull) as fault:
        logger.error("the downloaded snapshot %s is not used: %s", snapshot, fault)
        return None
    return control


class SnapshotWriter:
    """Writes one snapshot: append records, then `freeze`, or `abandon`."""

    def __init__(
        self,
        files: Files,
        path: str,
        snapshot: OffsetAndEpoch,
        *,
        now_ms: int,
        last_contained_log_timestamp: int = 0,
        kraft_version: int = 0,
        voters: VoterSet | None = None,
    ) -> None:
        self._files = files
        self._path = path
        self._part = path + PART
        self.snapshot_id = snapshot
        self._now_ms = now_ms
        self._next_offset = 0
        self._position = 0
        self.is_frozen = False
        files.remove(self._part)
        header = wire.SnapshotHeaderRecord(0, last_contained_log_timestamp)
        rows = [(ControlType.SNAPSHOT_HEADER, encode(header, 0))]
        if kraft_version > 0:
            rows += voter_rows(kraft_version, voters)
        self._write(self._control(rows), len(rows))

    def append(self, records: list[bytes]) -> None:
        """Append data records, as raw values."""
        assert not self.is_frozen
        for values in split(records, BATCH_BYTES_MAX):
            batch = data_batch(values, base_offset=self._next_offset, epoch=self.snapshot_id.epoch, now_ms=self._now_ms)
            self._write(batch, len(values))

    def freeze(self) -> int:
        """Write the footer and make the file durable under its final name. Return its size in bytes."""
        assert not self.is_frozen
        self._write(self._control([(ControlType.SNAPSHOT_FOOTER, encode(wire.SnapshotFooterRecord(0), 0))]), 1)
        self.is_frozen = True
        self._files.sync_file(self._part)
        self._files.rename(self._part, self._path)
        self._files.sync_dir(self._path.rpartition("/")[0])
        return self._position

    def abandon(self) -> None:
        if not self.is_frozen:
            self._files.remove(self._part)

    def _control(self, rows: list[tuple[ControlType, bytes]]) -> bytes:
        return control_batch(
            rows, timestamp=self._now_ms, base_offset=self._next_offset, leader_epoch=self.snapshot_id.epoch
        )

    def _write(self, batch: bytes, count: int) -> None:
        self._files.pwrite(self._part, self._position, batch)
        self._position += len(batch)
        self._next_offset += count


def write_bootstrap(files: Files, directory: str, records: list[bytes], now_ms: int) -> None:
    """Write `bootstrap.checkpoint`: the records that the first leader of a new cluster appends first."""
    writer = SnapshotWriter(files, f"{directory}/{BOOTSTRAP_FILE}", BOOTSTRAP_SNAPSHOT, now_ms=now_ms)
    writer.append(records)
    writer.freeze()


def read_bootstrap(files: Files, directory: str) -> list[bytes] | None:
    """Read the records of `bootstrap.checkpoint`; return None if the file is missing."""
    path = f"{directory}/{BOOTSTRAP_FILE}"
    if files.size(path) is None:
        return None
    return [record for batch in SnapshotReader(files, path, BOOTSTRAP_SNAPSHOT) for record in batch.records]


def write_initial_voters(files: Files, directory: str, voters: VoterSet, now_ms: int) -> None:
    """Write the snapshot 0-0 of a directory formatted for dynamic voters: kraft.version 1 and the first voters."""
    files.make_dirs(directory)
    path = f"{directory}/{file_name(BOOTSTRAP_SNAPSHOT)}"
    SnapshotWriter(files, path, BOOTSTRAP_SNAPSHOT, now_ms=now_ms, kraft_version=1, voters=voters).freeze()


def _is_footer(view: BatchView) -> bool:
    return any(control_type(record) is ControlType.SNAPSHOT_FOOTER for record in view.records())
