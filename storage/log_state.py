"""What one log knows in memory, and what follows from that alone. Nothing here reads or writes a file.

What changes a log on the disk, or looks things up in it, are functions of this state in modules of their own (`roll`,
`truncate`, `flush`, `lookup`, ...). They import this one; `storage.log.Log` adds them to it as methods and appends.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from ottla.protocol.records.convert import TARGET_CODECS
from ottla.protocol.records.validate import RecordRules
from ottla.storage.config import NEVER, LogConfig
from ottla.storage.epochs import LeaderEpochs
from ottla.storage.errors import DiskFull, LogDirectoryOffline, StorageFailure
from ottla.storage.files import Files
from ottla.storage.index import RELATIVE_OFFSET_MAX
from ottla.storage.mappings import Mappings
from ottla.storage.preparation import Preparation
from ottla.storage.producers import ProducerState, ProducerStates
from ottla.storage.roll_policy import roll_deadline
from ottla.storage.segments import Segments


class LogState:
    """See the module. `Log` inherits it: to reach each field through another object would cost every append and read."""

    def __init__(
        self,
        files: Files,
        mappings: Mappings,
        directory: str,
        topic: str,
        partition: int,
        topic_id: bytes,
        config: LogConfig,
        *,
        segments: Segments,
        epochs: LeaderEpochs,
        producers: ProducerStates,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        jitter: float = 0.0,
    ) -> None:
        assert 0 <= log_start_offset <= log_end_offset
        self.files, self.mappings, self.directory = files, mappings, directory
        self.topic, self.partition, self.topic_id = topic, partition, topic_id
        self.segments, self.epochs, self.producers = segments, epochs, producers
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.high_watermark = log_start_offset
        self.recovery_point = recovery_point
        self.flushed_ms = 0
        self.looked_at_end = -1  # where the log ended when it was found to need no flush
        self.flush_mark = (-1, 0)  # base offset and size of the active segment when it was last flushed
        self.snapshots: list[int] = []  # offsets of producer snapshot files
        self.frozen: dict[int, list[ProducerState]] = {}  # producers at an offset, for the next flush to write
        self.unsynced_snapshot = -1  # the newest of them, while a power loss may still take it
        self.failure: StorageFailure | None = None
        # Why the disk refused the last append, also where it is full for now.
        self.refusal: StorageFailure | None = None
        self.on_failure: Callable[[StorageFailure], None] | None = None
        self.deleted_files: list[str] = []  # renamed, to be removed after file.delete.delay.ms
        self.closed = False
        self.has_files = True  # a log that was never written has none, not even its directory
        self.entry_synced = False  # whether the directory itself is known to be on the disk
        self.rolls = self.rolls_synced = 0  # whether the name of the newest segment is
        self.files_lock = Lock()  # held while the first files are made, on whichever thread
        # While a truncation is under way: where the log will end, and begin. A checkpoint written then says no more.
        self.cut_to = NEVER
        self.cut_start: int | None = None
        self.end_gap = (0, 0)  # a truncation left no batch in these offsets, and the log goes on behind them
        self.truncations = 0  # a flush that runs meanwhile must not move the recovery point
        self.recovery_lock = Lock()  # of recovery point and truncations, which a flush changes on its own thread
        # Told of a truncation (and of a new log start) before it begins, to write it into the checkpoints.
        self.on_cut: Callable[[int, int | None], None] | None = None
        self.cleaned_until = 0  # the log cleaner has been over everything below (cleaner-offset-checkpoint)
        self.uncleanable: str | None = None  # why the log cleaner passes it over
        for segment in segments:
            segment.cold.epoch_at = epochs.epoch_of
        self._jitter = jitter
        self._roll_timestamp = self._roll_wall_ms = NEVER
        self.update_config(config)

    @property
    def size(self) -> int:
        """Bytes of all batches."""
        return sum(segment.size for segment in self.segments)

    @property
    def recovery_point_to_write(self) -> int:
        """Up to there a restart finds batches, or the file has changed since."""
        return self.before_gap(min(self.recovery_point, self.cut_to))

    def before_gap(self, offset: int) -> int:
        gap_from, gap_to = self.end_gap
        return gap_from if gap_from < offset <= gap_to else offset

    def leave_gap(self) -> tuple[int, int]:
        """The gap that the log ended in once, before it is forgotten: no recovery point may be left inside it.

        A power loss may take the batches that were appended behind it, and the log would seem to have lost what was flushed.
        """
        gap_from, gap_to = self.end_gap
        if gap_from < gap_to:
            with self.recovery_lock:
                self.truncations += 1  # a flush that runs meanwhile must not move the recovery point
                self.recovery_point = self.before_gap(self.recovery_point)
        return self.end_gap

    @property
    def log_start_to_write(self) -> int:
        return self.log_start_offset if self.cut_start is None else self.cut_start

    @property
    def latest_epoch(self) -> int:
        return self.epochs.latest

    @property
    def last_stable_offset(self) -> int:
        """Everything below belongs to no transaction that is open, or ended by a marker not yet replicated."""
        if not self.producers.in_transaction:
            return self.high_watermark
        # DeleteRecords and retention may pass the first record of an open transaction.
        return min(max(self.producers.first_unstable_offset(), self.log_start_offset), self.high_watermark)

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

    def roll_jitter_ms(self) -> int:
        return int(self._jitter * min(self.config.segment_jitter_ms, self.config.roll_ms))

    def has_room(self, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        """Whether `size` bytes can be written to the active segment as it is; if not, ask `make_room`."""
        segment = self.segments.active
        return (
            segment.size + size <= segment.room
            and max_timestamp <= self._roll_timestamp
            and now_ms <= self._roll_wall_ms
            and last_offset <= self._last_offset_max
        )

    def on_new_active(self) -> None:
        segment = self.segments.active
        self._roll_timestamp, self._roll_wall_ms = roll_deadline(segment, self.config, self.roll_jitter_ms())
        self._last_offset_max = segment.base_offset + RELATIVE_OFFSET_MAX
        self.looked_at_end = -1

    def check_usable(self) -> None:
        if self.failure is not None:
            raise LogDirectoryOffline(self.directory, self.failure)
        assert not self.closed, f"{self} is closed"

    def fail(self, failure: StorageFailure) -> None:
        """The disk failed: no more writes. A full disk is no such failure, as nothing was changed."""
        self.refusal = failure
        self.segments.active.room = 0  # the next append goes to make_room, and is refused there
        if not isinstance(failure, DiskFull | LogDirectoryOffline):
            self.failure = failure
            if self.on_failure is not None:
                self.on_failure(failure)
