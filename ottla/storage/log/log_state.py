"""The in-memory state of one log, and values derived from it. This module does not read or write files.

Changes of a log on the disk, and lookups in it, are functions of this state in modules of their own (`roll`, `truncate`,
`flush`, `lookup`, ...). They import this module; `storage.log.log.Log` appends, and has them as methods.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from ottla.protocol.records.convert import TARGET_CODECS
from ottla.protocol.records.validate import RecordRules
from ottla.storage.config import NEVER, LogConfig
from ottla.storage.epochs import LeaderEpochs
from ottla.storage.errors import DiskFull, LogDirectoryOffline, StorageFailure
from ottla.storage.files import Files
from ottla.storage.log.durability import Durability
from ottla.storage.log.partition_dir import PartitionDir
from ottla.storage.log.preparation import Preparation
from ottla.storage.producers.producer_snapshots import ProducerSnapshots
from ottla.storage.producers.producer_states import ProducerStates
from ottla.storage.segment.index import RELATIVE_OFFSET_MAX
from ottla.storage.segment.segment import Segment
from ottla.storage.segment.segment_file import Mappings, SegmentFile
from ottla.storage.segment.segments import Segments, roll_deadline


class Cleaning:
    """What the log cleaner knows of a log: up to where it is clean, and why it is skipped (storage/cleaner)."""

    def __init__(self) -> None:
        self.cleaned_until = 0  # all below is clean (cleaner-offset-checkpoint)
        self.uncleanable: str | None = None  # why the log cleaner skips it
        # True while a future log copies this one. It is not compacted then: the copy could keep a record whose tombstone is gone.
        self.is_moving = False

    def cleaned(self, until: int) -> None:
        """All below `until` is clean: a pass has ended, or the checkpoint says so at the start."""
        self.cleaned_until = until

    def truncated(self, offset: int) -> None:
        """Records that are appended in the place of truncated ones were never cleaned."""
        self.cleaned_until = min(self.cleaned_until, offset)

    def skip(self, reason: str) -> None:
        self.uncleanable = reason

    def begin_move(self) -> None:
        self.is_moving = True

    def end_move(self) -> None:
        self.is_moving = False

    def take_over(self, replaced: Cleaning) -> None:
        """Takes the place of another log with the same records."""
        self.cleaned_until, self.uncleanable = replaced.cleaned_until, replaced.uncleanable
        self.is_moving = False


NO_BYTES = memoryview(b"")


class Appended(NamedTuple):
    """The result of an append. A duplicate gets the result of the first append."""

    first_offset: int
    last_offset: int
    log_append_time: int  # -1 with CreateTime
    log_start_offset: int
    duplicate: bool = False


class Read(NamedTuple):
    """Complete batches; `records` stays valid as long as a reference to it exists."""

    records: memoryview
    first_batch_offset: int  # base offset of the first batch, or the requested offset if there is none
    next_offset: int  # the first offset not in `records`: where the next read continues


class Retiring(Protocol):
    """See `retention.RetentionJob`."""

    segments: int

    def run(self) -> None: ...
    def end(self) -> None: ...


@dataclass(frozen=True, slots=True)
class LogSpec:
    """What a log is opened, or created, with."""

    files: Files
    mappings: Mappings
    directory: str
    topic: str
    partition: int
    topic_id: bytes
    config: LogConfig
    now_ms: int = 0
    jitter: float = 0.0

    def segment(self, base_offset: int, *, size: int = 0, active: bool = True) -> Segment:
        file = SegmentFile(
            self.files, self.mappings, self.directory, base_offset, self.config, size=size, active=active
        )
        return Segment(file, self.now_ms)


class LogState:
    """The state of one log. `Log` inherits it, because access to the fields through another object would slow down every append and read."""

    def __init__(
        self,
        spec: LogSpec,
        *,
        segments: Segments,
        epochs: LeaderEpochs,
        producers: ProducerStates,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
    ) -> None:
        assert 0 <= log_start_offset <= log_end_offset
        self.files, self.mappings = spec.files, spec.mappings
        self.partition_dir = PartitionDir(spec.files, spec.directory)
        self.topic, self.partition, self.topic_id = spec.topic, spec.partition, spec.topic_id
        self.segments, self.epochs, self.producers = segments, epochs, producers
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.high_watermark = log_start_offset
        self.durability = Durability(recovery_point)
        self.grown: dict[LogState, None] = {}  # logs that the next flush check looks at (`Logs.flush_due`)
        self.failure: StorageFailure | None = None
        # The failure of the last append, also if the disk was only full.
        self.append_failure: StorageFailure | None = None
        self.on_failure: Callable[[StorageFailure], None] | None = None
        self.closed = False
        self.snapshots = ProducerSnapshots(spec.files, spec.directory, self.partition_dir.lock)
        self.without_files: deque[LogState] = deque()  # those of the same topic and disk that had no files either
        self.retiring: Retiring | None = None  # segments that retention has taken out, whose files are being renamed
        self.before_truncation: Callable[[int, int | None], None] | None = None
        self.cleaning = Cleaning()
        for segment in segments:
            segment.file.cold.know_epochs(epochs.epoch_of)
        self._jitter = spec.jitter
        self._roll_timestamp = self._roll_wall_ms = NEVER
        self.update_config(spec.config)

    @property
    def size(self) -> int:
        """The size of all batches in bytes."""
        return sum(segment.file.size for segment in self.segments)

    @property
    def recovery_point(self) -> int:
        """All below this offset is flushed."""
        return self.durability.recovery_point

    @property
    def recovery_point_to_write(self) -> int:
        return self.durability.recovery_point_to_write(self.log_end_offset)

    @property
    def log_start_to_write(self) -> int:
        return self.durability.log_start_to_write(self.log_start_offset)

    @property
    def latest_epoch(self) -> int:
        return self.epochs.latest

    @property
    def last_stable_offset(self) -> int:
        """The last stable offset: no transaction below it is open, or ended by a marker that is not yet replicated."""
        if not self.producers.in_transaction:
            return self.high_watermark
        # DeleteRecords and retention may remove the first record of an open transaction.
        return min(max(self.producers.first_unstable_offset(), self.log_start_offset), self.high_watermark)

    # Moving the offsets. Only an append moves the log end offset forward by itself, because it is the hot path.

    def advance_high_watermark(self, offset: int) -> bool:
        """Raises the high watermark, at most to the log end offset. Returns False if it did not change."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        if self.producers.unreplicated:
            self.producers.on_high_watermark(offset)
        return True

    def start_at(self, offset: int) -> None:
        """Raises the log start offset."""
        self.log_start_offset = offset
        self.epochs.truncate_from_start(offset)

    def end_at(self, offset: int) -> None:
        """Lowers the log end offset: batches were truncated."""
        self.log_end_offset = offset
        self.high_watermark = min(self.high_watermark, offset)
        self.log_start_offset = min(self.log_start_offset, offset)

    def restart_at(self, offset: int, start: int) -> None:
        """The log is empty: the next append is at `offset`."""
        self.log_end_offset = offset
        self.log_start_offset = self.high_watermark = start

    def take_over(self, replaced: LogState) -> None:
        """Takes the place of another log, all of whose batches it has, and takes over what is known of that one and is not in them.

        An epoch may have begun without a batch, compaction may have removed all batches of one, and transactions may be verified.
        """
        if self.log_end_offset < replaced.log_end_offset:
            # The replaced log ends with a gap, which a truncation or compaction left.
            self.durability.set_gap((self.log_end_offset, replaced.log_end_offset))
            self.log_end_offset = replaced.log_end_offset
        self.epochs.replace(replaced.epochs.entries, replaced.epochs.assigned)
        self.epochs.truncate_from_start(self.log_start_offset)
        self.producers = replaced.producers
        self.high_watermark = replaced.high_watermark
        self.cleaning.take_over(replaced.cleaning)
        self.durability.take_over(replaced.durability)
        if self.config is not replaced.config:
            self.update_config(replaced.config)
        assert self.log_start_offset <= self.high_watermark <= self.log_end_offset <= NEVER

    def __repr__(self) -> str:
        return f"Log({self.topic}-{self.partition} [{self.log_start_offset}, {self.log_end_offset}))"

    def update_config(self, config: LogConfig) -> None:
        self.config = config
        self.rules = RecordRules(
            max_message_bytes=config.max_message_bytes,
            log_append_time=config.log_append_time,
            timestamp_before_max_ms=config.message_timestamp_before_max_ms,
            timestamp_after_max_ms=config.message_timestamp_after_max_ms,
            compacted=config.compact,
            check_records=config.validate_records,
            max_decompressed_bytes=config.max_decompressed_message_bytes,
        )
        self.needs_records = self.rules.needs_records
        codec = self.target_codec = TARGET_CODECS[config.compression_type]
        self.preparation = Preparation(self.rules, codec, None if codec is None else config.compression_level(codec))
        for segment in self.segments:
            segment.update_config(config)
        self.on_new_active()

    @property
    def directory(self) -> str:
        return self.partition_dir.path

    @property
    def log_dir(self) -> str:
        """The log directory that contains this log's directory: one disk."""
        return self.directory.rpartition("/")[0]

    def roll_jitter_ms(self) -> int:
        return int(self._jitter * min(self.config.segment_jitter_ms, self.config.roll_ms))

    def has_room(self, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        """Returns True if `size` bytes can be written to the active segment as it is; if not, call `make_room`."""
        segment = self.segments.active
        file = segment.file
        return (
            file.size + size <= file.room
            and max_timestamp <= self._roll_timestamp
            and now_ms <= self._roll_wall_ms
            and last_offset <= self._last_offset_max
        )

    def on_new_active(self) -> None:
        segment = self.segments.active
        self._roll_timestamp, self._roll_wall_ms = roll_deadline(segment, self.config, self.roll_jitter_ms())
        self._last_offset_max = segment.base_offset + RELATIVE_OFFSET_MAX
        self.grown[self] = None

    def take_snapshot(self, at_once: bool = False) -> None:
        """Writes a producer snapshot at the log end offset (`ProducerSnapshots.take`)."""
        self.snapshots.take(self.producers, self.log_end_offset, self.segments.bases, self.recovery_point, at_once)

    def join(
        self,
        grown: dict[LogState, None],
        *,
        on_failure: Callable[[StorageFailure], None],
        before_files: Callable[[], None],
        before_truncation: Callable[[int, int | None], None],
    ) -> None:
        """Takes the log into the logs of a node.

        `grown` is the set of logs that the next flush check looks at. `before_truncation` is called with the new log end, and the new
        log start if there is one, to lower the checkpoints.
        """
        self.grown = grown
        self.grown[self] = None
        self.on_failure, self.before_truncation = on_failure, before_truncation
        self.partition_dir.call_before_files(before_files)

    def create_with(self, without_files: deque[LogState]) -> None:
        """The files of the log are created with those of these logs, of the same topic and disk, which had no files either."""
        self.without_files = without_files
        without_files.append(self)

    def retired(self, job: Retiring | None) -> None:
        """Retention has taken segments out of the log, or has ended that."""
        self.retiring = job

    def room_was_made(self) -> None:
        """An append has its room: the disk is not full any more, and the next flush check looks at the log."""
        self.append_failure = None
        self.grown[self] = None

    def stop(self) -> None:
        """From now on no thread creates files of the log."""
        with self.partition_dir.lock:
            self.closed = True

    def check_usable(self) -> None:
        if self.failure is not None:
            raise LogDirectoryOffline(self.directory, self.failure)
        assert not self.closed, f"{self} is closed"

    def fail(self, failure: StorageFailure) -> None:
        """Takes the log offline after a failure of the disk. A full disk is not such a failure, because nothing was changed."""
        self.append_failure = failure
        self.segments.active.file.close_room()  # `make_room` raises
        if not isinstance(failure, DiskFull | LogDirectoryOffline):
            self.failure = failure
            if self.on_failure is not None:
                self.on_failure(failure)
