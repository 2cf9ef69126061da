"""Room for the next append: the active segment is mapped and allocated, or sealed and followed by a new one.

The files of a log are created before its first append, then segment by segment, and are renamed when a segment is deleted.

The parts of this that wait for the disk can run before the append, on another thread (`disk_job`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.work import DiskJob
from ottla.storage.errors import DiskFull, StorageFailure
from ottla.storage.log.durability import NO_GAP, Durability
from ottla.storage.log.partition_dir import LogSpec
from ottla.storage.log_config import NEVER, LogConfig
from ottla.storage.segment.index import RELATIVE_OFFSET_MAX
from ottla.storage.segment.segment import Segment
from ottla.storage.segment.segment_file import SegmentFile

logger = logging.getLogger(__name__)

#: The number of other logs whose files are created with a log's first files. Each takes 0.1 ms, on a slow file system 0.6 ms.
FILES_AHEAD = 15


class Room:
    """The room in the active segment of one log, and the rolls that make more of it."""

    # fmt: off
    __slots__ = (
        "_config", "_dir", "_durability", "_epochs", "_jitter", "_last_offset_max", "_mappings", "_roll_timestamp", "_roll_wall_ms",
        "_segments", "_snapshots", "append_failure", "on_growth", "without_files",
    )
    # fmt: on

    def __init__(self, spec: LogSpec, durability: Durability) -> None:
        self._mappings, self._jitter = spec.mappings, spec.jitter
        self._durability = durability
        self._dir, self._segments = durability.partition_dir, durability.segments
        self._epochs, self._snapshots = durability.epochs, durability.snapshots
        # The failure of the last append, also if the disk was only full.
        self.append_failure: StorageFailure | None = None
        self.without_files: deque[Room] = deque()  # those of the same topic and disk that had no files either
        self.on_growth: Callable[[], None] | None = None
        self.update_config(spec.config)

    def update_config(self, config: LogConfig) -> None:
        self._config = config
        for segment in self._segments:
            segment.update_config(config)
        self.on_new_active()

    def call_on_growth(self, on_growth: Callable[[], None]) -> None:
        """Set the function that is called when an append has asked for room, and once now: the next flush check looks at the log."""
        self.on_growth = on_growth
        on_growth()

    def has_room(self, file: SegmentFile, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        """Return True if `size` bytes can be written to the active segment's file as it is; if not, call `make_room`."""
        return (
            file.size + size <= file.room
            and max_timestamp <= self._roll_timestamp
            and now_ms <= self._roll_wall_ms
            and last_offset <= self._last_offset_max
        )

    def on_new_active(self) -> None:
        """Note that the active segment has changed, or has its first batch."""
        segment, config = self._segments.active, self._config
        self._roll_timestamp = self._roll_wall_ms = NEVER
        if segment.file.size:
            limit = config.roll_ms - int(self._jitter * min(config.segment_jitter_ms, config.roll_ms))
            first = segment.first_timestamp()
            if first >= 0:
                self._roll_timestamp = first + limit
            else:
                self._roll_wall_ms = segment.created_ms + limit
        self._last_offset_max = segment.base_offset + RELATIVE_OFFSET_MAX
        self._grown()

    def _must_roll(self, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        """Return True if a batch must start a new segment, by the conditions of Kafka's LogSegment.shouldRoll.

        The age of a segment is measured from its first batch's timestamp, or from its creation if that batch has none. In a compacted
        topic max.compaction.lag.ms limits the age as well as segment.ms, because the active segment is never compacted.
        """
        segment = self._segments.active
        return (
            segment.file.size > self._config.segment_bytes - size
            or max_timestamp > self._roll_timestamp
            or now_ms > self._roll_wall_ms
            or last_offset > self._last_offset_max
            or segment.indexes.full
        )

    def _grown(self) -> None:
        if self.on_growth is not None:
            self.on_growth()

    def check_size(self, size: int) -> None:
        """Raise KafkaError(RECORD_LIST_TOO_LARGE) for a batch that is larger than a segment."""
        if size > self._config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE, f"{size} bytes, segment.bytes is {self._config.segment_bytes}"
            )

    def make_room(
        self, size: int, first_offset: int, last_offset: int, max_timestamp: int, now_ms: int, end_offset: int
    ) -> Segment:
        """Return the segment for an append of `size` bytes; it is rolled, mapped and allocated as needed.

        Batches larger than a segment get one of their own: a follower takes what its leader has (`check_size` is the leader's).
        """
        self._dir.check_usable()
        segment = self._segments.active
        try:
            if not self._dir.exists:
                self.create_files()
            # A segment may have been created after a gap for a batch whose append failed; a new leader's batch has a lower offset now.
            begun_too_late = not segment.file.size and segment.base_offset > first_offset
            if begun_too_late or self._must_roll(size, last_offset, max_timestamp, now_ms):
                segment = self.roll(end_offset, now_ms, first_offset)
            segment.make_room(size)
            self._dir.check_usable()  # checked again: a flush on another thread may have failed since
        except StorageFailure as failure:
            self.fail(failure)
            raise
        self.append_failure = None
        self._grown()
        return segment

    def roll(self, end_offset: int, now_ms: int, base_offset: int = 0) -> Segment:
        """Seal the active segment; the new one begins at the log end offset, or at the later offset of a replicated batch.

        Raises:
            StorageFailure: the caller takes the log offline.
        """
        self._dir.check_usable()
        old = self._segments.active
        base_offset = max(base_offset, end_offset)
        if old.base_offset == base_offset:
            return old  # empty: nothing to seal
        # The sync comes before the old segment is trimmed and before the new one has batches: a file that lost its end in a power
        # loss is then too short or ends with zeros. Otherwise its lost end would look like a gap, and later batches would be kept.
        new = self.new_segment(base_offset, now_ms, sync=base_offset > end_offset or not old.file.length_synced)
        self._durability.rolled()
        if old.file.size:
            try:
                old.seal()
            except StorageFailure:
                self._dir.remove(new)
                raise
            self._segments.append(new)
            try:
                self._snapshots.take(end_offset, self._segments.bases, self._durability.recovery_point)
            except DiskFull as failure:
                logger.warning(
                    "producers of %s: %s", self._dir.path, failure
                )  # without it, a restart only reads more batches
        else:
            self._segments.replace([*list(self._segments)[:-1], new])
            self._dir.delete([old])
        if old.file.size:
            logger.info(
                "Rolled new log segment at offset %d in %s-%d", base_offset, self._dir.topic, self._dir.partition
            )
        self._durability.leave_gap()
        self._durability.set_gap(NO_GAP)  # the new segment's base offset says where the log continues
        self.on_new_active()
        return new

    def disk_job(self, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> DiskJob | None:
        """Return the file system calls that the next roll needs for a worker thread: the event loop must not wait for them.

        They do not raise: if it fails, the append tries again and raises the error.
        """
        segment = self._segments.active
        if self.has_room(segment.file, size, last_offset, max_timestamp, now_ms) or self._dir.failure is not None:
            return None
        if not self._dir.exists:
            return DiskJob(self._dir.log_dir, self._create_files_ahead)
        if segment.file.length_synced or not segment.file.size:
            return None
        if not self._must_roll(size, last_offset, max_timestamp, now_ms):
            return None
        return DiskJob(self._dir.log_dir, partial(self.run_disk_job, self.sync_lengths))

    def _create_files_ahead(self) -> None:
        """Create the files of this log, and of some other logs of the topic in the same log directory.

        A client that writes to one partition of a new topic soon writes to the next ones. Without that each first record waits for a thread:
        10,000 of them took 6.9 s, and a third of the CPU time was for handing over.
        """
        self.run_disk_job(self.create_files)
        ahead = self.without_files
        for _ in range(min(len(ahead), FILES_AHEAD)):
            with suppress(IndexError):  # another thread has taken the last one
                other = ahead.popleft()
                other.run_disk_job(other.create_files)

    def run_disk_job(self, job: Callable[[], None]) -> None:
        """Run a disk job on any thread. If it fails, the next append fails again, or finds the log directory offline."""
        try:
            job()
        except (StorageFailure, FileNotFoundError) as error:
            if self._dir.closed:
                return  # deleted meanwhile
            failure = StorageFailure(self._dir.path, error) if isinstance(error, FileNotFoundError) else error
            if not isinstance(failure, DiskFull):
                self.fail(failure)

    def sync_lengths(self) -> None:
        """Sync the log's directory, and the current lengths of its files, before a roll."""
        active = self._segments.active
        allocated = active.file.allocated
        self._dir.files.sync_dir(self._dir.path)
        active.file.length_is_synced(allocated)

    def create_files(self) -> None:
        """Create the partition directory and its files before the first append."""
        self._dir.create(self._segments.active, self._epochs)

    def new_segment(self, base_offset: int, now_ms: int, allocate: bool = True, sync: bool = True) -> Segment:
        segment = Segment(
            SegmentFile(self._dir.files, self._mappings, self._dir.path, base_offset, self._config), now_ms
        )
        try:
            segment.create_file()
            if allocate:
                segment.make_room(1)
            if sync:
                self._dir.files.sync_dir(self._dir.path)
        except StorageFailure:
            self._dir.remove(segment)
            raise
        return segment

    def create_with(self, without_files: deque[Room]) -> None:
        """The files of the log are created with those of these logs, of the same topic and disk, which had no files either."""
        self.without_files = without_files
        without_files.append(self)

    def explain_order(self, error: KafkaError) -> KafkaError | StorageFailure:
        """Return the failure of the earlier append if it explains an out-of-order sequence, else `error`.

        After a failed append the producer's next batch is out of order. OUT_OF_ORDER_SEQUENCE_NUMBER would make librdkafka bump
        its epoch, and in-flight batches of other partitions could then be duplicated.
        """
        failure = self.append_failure
        if failure is None or error.code != ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            return error
        return type(failure)(failure.path, failure.cause)

    def fail(self, failure: StorageFailure) -> None:
        """Count a failure of the disk (`PartitionDir.fail`): the next append calls `make_room`, which raises."""
        self.append_failure = failure
        self._segments.active.file.close_room()
        self._dir.fail(failure)
