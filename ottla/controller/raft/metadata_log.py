"""The files of one replica of the metadata log: a storage Log, its snapshots, quorum-state and partition.metadata; and its flushes.

It executes the core's decisions. It decides itself only which old snapshots and segments are deleted.

An idle quorum writes a batch every half second, 1.2 million in the week for which the log is kept; a start must not read all
of them. So the active segment is rolled at each snapshot, and the recovery point is the newest snapshot's offset, once
everything up to there is flushed: it is committed, so no truncation goes below it. Recovery begins with the segment that
contains it; for the log below, epochs and voters are in the snapshot and in leader-epoch-checkpoint.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from ottla.controller.raft.batches import CommittedBatch, committed_batches, control_bytes, data_batch, read_control
from ottla.controller.raft.effects import Effects
from ottla.controller.raft.election_store import ElectionStore
from ottla.controller.raft.log_state import LogState, OffsetAndEpoch
from ottla.controller.raft.messages import Batch, ControlRecords, FetchReply, FetchSnapshotReply, ReplyBody
from ottla.controller.raft.raft_config import RaftConfig
from ottla.controller.raft.snapshots import Snapshots, SnapshotWriter
from ottla.controller.raft.voters import VoterHistory
from ottla.protocol.errors import ErrorCode, KafkaError, ProtocolError
from ottla.protocol.primitives import uuid_to_str
from ottla.protocol.records.batch import BatchView
from ottla.storage.checkpoint import RECOVERY_POINT, read_offsets, write_offsets
from ottla.storage.directories.recovery import open_log
from ottla.storage.errors import CorruptFile, DiskFull, OutOfResources
from ottla.storage.files import Files, Mappings
from ottla.storage.log.durability import FlushJob
from ottla.storage.log.log import Log, Origin
from ottla.storage.log.partition_dir import LogSpec
from ottla.storage.log.retention import apply_retention, delete_records
from ottla.storage.log.truncate import truncate_fully_and_start_at, truncate_to
from ottla.storage.log.trusted_append import append_trusted
from ottla.storage.log_config import LogConfig
from ottla.storage.reserve import Reserve
from ottla.storage.segment.walk import DamagedLog

logger = logging.getLogger(__name__)

TOPIC = "__cluster_metadata"
PARTITION = 0
#: Uuid.METADATA_TOPIC_ID
TOPIC_ID = (1).to_bytes(16, "big")
DIRECTORY = f"{TOPIC}-{PARTITION}"
#: Retention of this log is decided by snapshots (`start_at`), so the log's own retention is off.
UNLIMITED = -1
#: Left out of snapshots of a local cluster, as every unfinished file (`.part`).
RESERVE = "reserve.part"


class MetadataFlush(NamedTuple):
    """A flush of the log, and the recovery point that is on the disk after it: a committed snapshot's end; None if it stays."""

    job: FlushJob
    path: str
    recovery_point: int | None

    def run(self) -> None:
        """The system calls, on any thread."""
        self.job.run()
        if self.job.synced and self.recovery_point is not None:
            write_offsets(self.job.durability.partition_dir.files, self.path, {(TOPIC, PARTITION): self.recovery_point})


class MetadataLog:
    def __init__(self, files: Files, directory: str, config: RaftConfig, now_ms: int) -> None:
        """Open or create the log in `directory` (the log directory, not `__cluster_metadata-0` itself).

        Raises:
            CorruptFile: flushed data is damaged, and continuing could lose committed records.
        """
        self.directory = f"{directory}/{DIRECTORY}"
        self._files = files
        self._config = config
        files.make_dirs(self.directory)
        self.snapshots = Snapshots(files, self.directory)
        self.election = ElectionStore(files, self.directory)
        self.reserve = Reserve(files, f"{self.directory}/{RESERVE}", config.reserve_bytes)
        self.state = LogState()
        self.voters = VoterHistory(config.static_voters)
        known = self._readable(self.snapshots.open())
        try:
            self.log = self._open_log(list(known), now_ms)
            self._load(known)
        except DamagedLog as damage:
            raise CorruptFile(damage.path, f"damaged at byte {damage.position}: {damage.reason}") from None

    @property
    def end_offset(self) -> int:
        """The end of the written batches. The core may be ahead of it while the disk has no room."""
        return self.log.log_end_offset

    @property
    def _recovery_point_path(self) -> str:
        return f"{self.directory}/{RECOVERY_POINT}"

    def _read_recovery_point(self) -> int:
        try:
            return read_offsets(self._files, self._recovery_point_path).get((TOPIC, PARTITION), 0)
        except CorruptFile as fault:
            logger.warning("%s: the whole log is recovered", fault)
            return 0

    def _readable(self, snapshots: list[OffsetAndEpoch]) -> dict[OffsetAndEpoch, ControlRecords]:
        """Return the snapshots with a readable header, oldest first, and the header's control records."""
        found = {}
        for snapshot in snapshots:
            try:
                found[snapshot] = self.snapshots.reader(snapshot).load_control()
            except CorruptFile as fault:
                # The snapshot was damaged after it was written. The log may still start before it; `_load` checks that.
                logger.error("snapshot %s is not usable: %s", snapshot, fault)
        return found

    def _open_log(self, snapshots: list[OffsetAndEpoch], now_ms: int) -> Log:
        log_config = LogConfig(
            retention_ms=UNLIMITED,
            retention_bytes=UNLIMITED,
            max_message_bytes=2**31 - 1,
            segment_bytes=self._config.segment_bytes,
            segment_ms=self._config.segment_ms,
        )
        self._recovery_point = self._read_recovery_point()
        log = open_log(
            LogSpec(self._files, Mappings(), self.directory, TOPIC, PARTITION, TOPIC_ID, log_config, now_ms=now_ms),
            clean=False,
            recovery_point=self._recovery_point,
        )
        partition_metadata = f"{self.directory}/partition.metadata"
        if not self._files.exists(partition_metadata):
            text = f"version: 0\ntopic_id: {uuid_to_str(TOPIC_ID)}"
            self._files.write_atomic(partition_metadata, text.encode())
        if snapshots and snapshots[-1].offset > log.log_end_offset:
            # The node crashed after a snapshot was downloaded and before the log was reset to it.
            self.snapshots.check(snapshots[-1])
            truncate_fully_and_start_at(log, snapshots[-1].offset)
        log.flush(now_ms)
        return log

    def _load(self, snapshots: dict[OffsetAndEpoch, ControlRecords]) -> None:
        """Load the core's state of the log: epochs and voters, from the snapshots and the log."""
        state, log, voters = self.state, self.log, self.voters
        if log.log_start_offset > 0:
            self._start_at_oldest_snapshot(snapshots)
        for snapshot, control in snapshots.items():
            state.snapshots.append(snapshot)
            voters.append(snapshot.offset - 1, control.voters, control.kraft_version)
        latest = state.latest_snapshot
        known_to = log.log_start_offset
        if latest is not None and log.log_start_offset < latest.offset <= log.log_end_offset:
            known_to = latest.offset
        state.start_offset, state.end_offset = log.log_start_offset, known_to
        state.epochs = _epochs_between(log.epochs.entries, log.log_start_offset, known_to)
        for view in log.batches(known_to):
            state.append(view.base_offset, view.last_offset, view.partition_leader_epoch)
            if view.is_control:
                control = self._control_of(view)
                if control.voters is not None or control.kraft_version is not None:
                    voters.merge(view.last_offset, control.voters, control.kraft_version)
        state.flushed_offset = state.end_offset
        if latest is not None and latest.offset > 0 and state.epoch_at(latest.offset) != latest.epoch:
            # The same crash, with a log that is longer than the snapshot but diverges from it.
            self.snapshots.check(latest)
            truncate_fully_and_start_at(log, latest.offset)
            state.reset_to_snapshot(latest)
            control = snapshots[latest]
            voters.reset_to_snapshot(latest.offset, control.voters, control.kraft_version)

    def _start_at_oldest_snapshot(self, snapshots: dict[OffsetAndEpoch, ControlRecords]) -> None:
        """The log starts at the oldest snapshot: only complete segments are deleted, so on disk it starts before that.

        Older snapshots, which a crash kept from being removed after the segments, are dropped: a leader that takes one for the
        start of its log would send a follower at that start the same snapshot for ever.
        """
        log = self.log
        base = next((snapshot for snapshot in snapshots if snapshot.offset >= log.log_start_offset), None)
        if base is None:
            raise CorruptFile(
                self.directory, f"the log starts at {log.log_start_offset}, and no snapshot covers what was before"
            )
        log.advance_high_watermark(base.offset)
        delete_records(log, base.offset)
        for older in [snapshot for snapshot in snapshots if snapshot.offset < base.offset]:
            self.snapshots.remove(older)
            del snapshots[older]

    def _control_of(self, view: BatchView) -> ControlRecords:
        """Decode a control batch. Raises CorruptFile if it is malformed: it may have the voters, and a guess could elect two leaders."""
        try:
            return read_control(view)
        except (KafkaError, ProtocolError) as fault:
            raise CorruptFile(self.directory, f"the control batch at offset {view.base_offset}: {fault}") from None

    # Effects of the core

    def write(self, effects: Effects, now_ms: int) -> None:
        """Write what a step of the core changes, in the order in which Effects declares it. On a full disk the reserve is used.

        Raises:
            DiskFull: there is no room left at all, or no descriptor. What is written has been taken out of the effects: call it again
                with what is left, before the core takes another step.
        """
        while True:
            try:
                self._write(effects, now_ms)
                return
            except OutOfResources:
                raise
            except DiskFull:
                if not self.reserve.give():
                    raise

    def _write(self, effects: Effects, now_ms: int) -> None:
        if effects.election is not None:
            self.election.write(effects.election, self.voters.kraft_version, self.voters.last.ids)
            effects.election = None
        if effects.reset_to_snapshot is not None:
            self.reset_to_snapshot(effects.reset_to_snapshot)
            effects.reset_to_snapshot = None
        if effects.truncate_to is not None:
            self.truncate_to(effects.truncate_to)
            effects.truncate_to = None
        while effects.appends:
            self.append(effects.appends[0], now_ms)
            del effects.appends[0]
        chunk = effects.snapshot_chunk
        if chunk is not None:
            self.snapshots.store_chunk(chunk.snapshot, chunk.position, chunk.data)

    def make_room(self, sizes: Sequence[int], count: int, now_ms: int) -> None:
        """Make room for batches of these sizes with `count` records in all, before the core has them. The reserve is not for them.

        Raises:
            DiskFull: nothing has changed.
        """
        log, room = self.log, self.log.room
        total = sum(sizes)
        size = total if total <= self._config.segment_bytes else sizes[0]
        first = log.log_end_offset
        if not room.has_room(self.log.segments.active.file, size, first + count - 1, now_ms, now_ms):
            room.make_room(size, first, first + count - 1, now_ms, now_ms, first)

    def append(self, batch: Batch, now_ms: int) -> None:
        data = batch.data
        if isinstance(data, ControlRecords):
            data = control_bytes(data, base_offset=batch.base_offset, epoch=batch.epoch, now_ms=now_ms)
        elif isinstance(data, list):
            data = data_batch(data, base_offset=batch.base_offset, epoch=batch.epoch, now_ms=now_ms)
        appended = append_trusted(self.log, data, leader_epoch=batch.epoch, now_ms=now_ms, origin=Origin.RAFT)
        assert (appended.first_offset, appended.last_offset) == (batch.base_offset, batch.last_offset)

    def truncate_to(self, offset: int) -> None:
        truncate_to(self.log, offset)

    def reset_to_snapshot(self, snapshot: OffsetAndEpoch) -> None:
        for older in self.snapshots.known():
            if older != snapshot:
                self.snapshots.remove(older)
        truncate_fully_and_start_at(self.log, snapshot.offset)

    def flush(self, now_ms: int) -> None:
        job = self.begin_flush()
        if job is not None:
            job.run()
            self.end_flush(job, now_ms)

    def begin_flush(self) -> MetadataFlush | None:
        """Return the work of a flush, for a worker; None if there is nothing to flush."""
        job, latest = self.log.begin_flush(), self.state.latest_snapshot
        if job is None:
            return None
        is_due = latest is not None and self._recovery_point < latest.offset <= job.end
        return MetadataFlush(job, self._recovery_point_path, latest.offset if is_due and latest is not None else None)

    def end_flush(self, flushed: MetadataFlush, now_ms: int) -> bool:
        """Return False if the log was truncated meanwhile: then another flush is needed."""
        if not self.log.end_flush(flushed.job, now_ms):
            return self.log.closed
        if flushed.recovery_point is not None:
            self._recovery_point = flushed.recovery_point
        return True

    def new_snapshot(self, snapshot: OffsetAndEpoch, last_contained_log_timestamp: int, now_ms: int) -> SnapshotWriter:
        return SnapshotWriter(
            self._files,
            self.snapshots.path(snapshot),
            snapshot,
            last_contained_log_timestamp=last_contained_log_timestamp,
            kraft_version=self.voters.kraft_version_at(snapshot.offset),
            voters=self.voters.at(snapshot.offset),
            now_ms=now_ms,
        )

    def snapshot_created(self, now_ms: int) -> None:
        """Roll the active segment, so that recovery reads only the batches since the previous snapshot."""
        if self.log.log_end_offset > self.log.segments.active.base_offset:
            self.log.roll(now_ms)

    # Reads

    def committed(self, offset: int, high_watermark: int, bytes_max: int) -> list[CommittedBatch]:
        return committed_batches(self.log.read(offset, max_bytes=bytes_max, up_to_offset=high_watermark).records)

    def with_contents(self, body: ReplyBody) -> tuple[ReplyBody, memoryview | None]:
        """Return a reply of the core with the chunk of the snapshot in it, and the records of a Fetch, which are not copied."""
        if isinstance(body, FetchReply) and body.records_from is not None:
            return body, self.log.read(body.records_from, max_bytes=body.bytes_max).records
        if isinstance(body, FetchSnapshotReply) and body.error is ErrorCode.NONE:
            return self._with_chunk(body), None
        return body, None

    def _with_chunk(self, reply: FetchSnapshotReply) -> FetchSnapshotReply:
        assert reply.snapshot is not None
        size = self.snapshots.size(reply.snapshot)
        if size is None:
            return replace(reply, error=ErrorCode.SNAPSHOT_NOT_FOUND)
        if reply.position >= size:
            return replace(reply, error=ErrorCode.POSITION_OUT_OF_RANGE)
        bytes_max = min(reply.bytes_max, self._config.snapshot_fetch_bytes_max)
        data = self.snapshots.read(reply.snapshot, reply.position, bytes_max)
        return replace(reply, size=size, data=data)

    def oldest_to_keep(self, wall_ms: int) -> OffsetAndEpoch | None:
        """Return the snapshot at which the log may start from now on, or None if nothing would be deleted (Kafka's rule).

        Old snapshots are deleted while log and snapshots together are over `retention_bytes`, or if they are older than
        `retention_ms`. The newest is always kept, and so is the log from the oldest kept snapshot on.
        """
        kept = list(self.state.snapshots)
        total = self.log.segments.size + sum(self.snapshots.size(snapshot) or 0 for snapshot in kept)
        while len(kept) > 1:
            age_ms = wall_ms - self.snapshots.modified_ms(kept[0])
            if total <= self._config.retention_bytes and age_ms <= self._config.retention_ms:
                break
            total -= self.snapshots.size(kept[0]) or 0
            del kept[0]
        return kept[0] if kept != self.state.snapshots else None

    def start_at(self, snapshot: OffsetAndEpoch, removed: list[OffsetAndEpoch], now_ms: int) -> None:
        if snapshot.offset > self.log.log_start_offset:
            self.log.advance_high_watermark(snapshot.offset)
            delete_records(self.log, snapshot.offset)
            apply_retention(self.log, now_ms)
            for path in self.log.partition_dir.take_deleted():
                self._files.remove(path)
        for older in removed:
            self.snapshots.remove(older)

    def close(self) -> None:
        self.log.close()


def opened(files: Files, directory: str, config: RaftConfig, now_ms: int) -> MetadataLog:
    """Return the log of a replica that is about to run, with its reserve."""
    log = MetadataLog(files, directory, config, now_ms)
    log.reserve.fill()
    return log


def _epochs_between(entries: list[tuple[int, int]], start: int, end: int) -> list[tuple[int, int]]:
    """Return the epochs in [start, end) of the log; the first of them begins at `start` or later."""
    before = [(epoch, start) for epoch, began in entries if began <= start][-1:]
    return [entry for entry in (*before, *((e, began) for e, began in entries if start < began)) if entry[1] < end]
