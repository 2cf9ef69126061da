"""What of a log is on the disk: its recovery point, and what a power loss could still take back.

All below the recovery point is flushed. Three things keep it true beside a flush on another thread, and in the checkpoint:

    truncation    lowers the recovery point first, and is counted: a flush that began before it does not advance the point
    gap           a truncation may leave no batch before the log's end; the checkpoint then names the gap's start
    roll          a new segment's entry is synced by the next flush (`rolls`, `rolls_synced`)
"""

from __future__ import annotations

from threading import Lock

from ottla.storage.config import NEVER

NO_GAP = (0, 0)


class Durability:
    """The recovery point of one log. Its methods run on the log's own thread; a flush on another one only reads."""

    def __init__(self, recovery_point: int) -> None:
        self.recovery_point = recovery_point
        self.flushed_ms = 0
        self.flush_mark = (-1, 0)  # base offset and size of the active segment when it was last flushed
        self.flush_lock = Lock()  # held while a flush makes its system calls
        self.truncations = 0  # a flush that began before one does not advance the recovery point
        self.entry_synced = False  # True once the entry of the log's directory is synced
        self.rolls = self.rolls_synced = 0  # the newest segment's entry is synced if both are equal
        self.end_gap = NO_GAP  # a truncation left no batch in these offsets, and the log continues after them
        # During a truncation: the log end offset and log start offset after it. Checkpoints written meanwhile must not exceed them.
        self.truncating_to = NEVER
        self.truncating_start: int | None = None

    # Flushes

    def flushed(self, end: int, mark: tuple[int, int], now_ms: int) -> None:
        """All batches below `end` are synced."""
        self.recovery_point = max(self.recovery_point, end)
        self.flush_mark, self.flushed_ms = mark, now_ms

    def unflushed_of(self, base_offset: int, size: int) -> int:
        """Returns how many bytes of a segment above the recovery point the last flush did not sync."""
        base, flushed = self.flush_mark
        return size - (flushed if base_offset == base else 0)

    def entry_is_synced(self) -> None:
        self.entry_synced = True

    def entry_is_new(self) -> None:
        """The log's directory was renamed: the next flush syncs its entry before the recovery point advances."""
        self.entry_synced = False

    def rolled(self) -> None:
        self.rolls += 1

    def rolls_are_synced(self, rolls: int) -> None:
        """The entries of the first `rolls` segments are synced."""
        self.rolls_synced = rolls

    def take_over(self, replaced: Durability) -> None:
        """Takes the place of another log: until the new name is on the disk, a power loss leaves what is flushed in that one."""
        self.recovery_point = min(self.recovery_point, replaced.recovery_point)
        self.flush_mark, self.flushed_ms = (-1, 0), replaced.flushed_ms

    # Truncation

    def begin_truncation(self, offset: int, start: int) -> None:
        """From now on no checkpoint exceeds the log's end and start after the truncation."""
        self.truncating_to, self.truncating_start = offset, start

    def truncated(self, offset: int) -> None:
        """Lowers the recovery point, after the checkpoint."""
        self.truncations += 1
        self.recovery_point = min(self.recovery_point, offset)

    def end_truncation(self) -> None:
        self.truncating_to, self.truncating_start = NEVER, None

    # What checkpoints say

    def recovery_point_to_write(self, end_offset: int) -> int:
        """The recovery point for the checkpoint: a restart that finds no batches up to there treats the log as damaged."""
        return self._before_gap(min(self.recovery_point, self.truncating_to, end_offset))

    def log_start_to_write(self, start_offset: int) -> int:
        return start_offset if self.truncating_start is None else self.truncating_start

    def high_watermark_to_write(self, high_watermark: int) -> int:
        # `min` of the two takes twice as long.
        return high_watermark if self.truncating_to == NEVER else min(high_watermark, self.truncating_to)

    # The gap

    def leave_gap(self) -> tuple[int, int]:
        """Moves a recovery point inside the gap at the log's end to the gap's start, before the gap is forgotten; returns the gap.

        A power loss may take the batches that were appended after the gap. Recovery would then find the log to end below its
        recovery point, and treat it as damaged.
        """
        gap_from, gap_to = self.end_gap
        if gap_from < gap_to:
            self.truncations += 1  # a flush that has begun must not advance the recovery point
            self.recovery_point = self._before_gap(self.recovery_point)
        return self.end_gap

    def set_gap(self, gap: tuple[int, int]) -> None:
        """The log's end is the end of this gap."""
        self.end_gap = gap

    def _before_gap(self, offset: int) -> int:
        gap_from, gap_to = self.end_gap
        return gap_from if gap_from < offset <= gap_to else offset
