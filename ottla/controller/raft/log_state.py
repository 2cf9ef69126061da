"""The core's model of the log: its start and end, the start offset of each epoch, the snapshots.

It has no records. The driver applies its changes to the log on disk by executing the effects, and rebuilds it from the log
at start-up.

Divergence (KIP-595): a follower sends the end offset and last epoch of its log. If the leader's log has that epoch ending
at or after that offset, the follower's log is a prefix of it. If not, the leader names its largest epoch not above the
follower's, and where that epoch ends; the follower truncates and asks again.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import field
from typing import NamedTuple

from ottla.protocol.slotted import mutable


class OffsetAndEpoch(NamedTuple):
    """A prefix of the log, by its end offset and the epoch of its last record. It also identifies a snapshot."""

    offset: int
    epoch: int

    def is_up_to_date_with(self, other: OffsetAndEpoch) -> bool:
        """Raft's rule for votes: the later last epoch wins, then the longer log."""
        return (self.epoch, self.offset) >= (other.epoch, other.offset)

    def __str__(self) -> str:
        return f"{self.offset}@{self.epoch}"


#: The snapshot that a formatted directory starts from (KIP-853); it is never sent to a follower.
BOOTSTRAP_SNAPSHOT = OffsetAndEpoch(0, 0)


class Diverging(NamedTuple):
    """The follower must truncate: `end` is our largest epoch not above its last epoch, and that epoch's end offset."""

    end: OffsetAndEpoch


class NeedsSnapshot(NamedTuple):
    """The follower's fetch offset is below the log's start: it must download a snapshot."""

    snapshot: OffsetAndEpoch


@mutable
class LogState:
    """Ends and epochs of the log. `epochs` are (epoch, start offset), both strictly ascending; `snapshots` ascend too."""

    start_offset: int = 0
    end_offset: int = 0
    epochs: list[tuple[int, int]] = field(default_factory=list)
    snapshots: list[OffsetAndEpoch] = field(default_factory=list)
    #: All below is flushed. A leader counts only this for itself, and a voter's fetch offset is at most this.
    flushed_offset: int = 0
    #: Counts truncations: a flush that began before one does not cover later appends.
    generation: int = 0

    @property
    def last_epoch(self) -> int:
        if self.epochs:
            return self.epochs[-1][0]
        return self.snapshots[-1].epoch if self.snapshots and self.snapshots[-1].offset == self.end_offset else 0

    @property
    def end(self) -> OffsetAndEpoch:
        return OffsetAndEpoch(self.end_offset, self.last_epoch)

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None:
        return self.snapshots[-1] if self.snapshots else None

    @property
    def is_flushed(self) -> bool:
        return self.flushed_offset >= self.end_offset

    def append(self, base_offset: int, last_offset: int, epoch: int) -> None:
        assert base_offset == self.end_offset, f"append at {base_offset}, the log ends at {self.end_offset}"
        assert last_offset >= base_offset
        last_epoch = self.last_epoch
        assert epoch >= last_epoch, f"epoch {epoch} follows {last_epoch}"
        if not self.epochs or epoch > self.epochs[-1][0]:
            self.epochs.append((epoch, base_offset))
        self.end_offset = last_offset + 1

    def truncate_to(self, offset: int) -> None:
        assert self.start_offset <= offset <= self.end_offset, f"truncate to {offset} of {self}"
        self.end_offset = offset
        while self.epochs and self.epochs[-1][1] >= offset:
            self.epochs.pop()
        self.flushed_offset = min(self.flushed_offset, offset)
        self.generation += 1

    def reset_to_snapshot(self, snapshot: OffsetAndEpoch) -> None:
        """Empty the log, which then starts at the end of a snapshot."""
        self.start_offset = self.end_offset = self.flushed_offset = snapshot.offset
        self.epochs.clear()
        self.snapshots = [snapshot]
        self.generation += 1

    def add_snapshot(self, snapshot: OffsetAndEpoch) -> None:
        if snapshot not in self.snapshots:
            self.snapshots.append(snapshot)
            self.snapshots.sort()

    def start_at_snapshot(self, snapshot: OffsetAndEpoch) -> None:
        """Drop the log and the snapshots before one of our own snapshots."""
        assert snapshot in self.snapshots, f"{snapshot} is not one of {self.snapshots}"
        self.snapshots = [kept for kept in self.snapshots if kept.offset >= snapshot.offset]
        if snapshot.offset <= self.start_offset:
            return
        assert snapshot.offset <= self.end_offset
        self.start_offset = snapshot.offset
        first_kept = max(0, bisect_right(self.epochs, snapshot.offset, key=lambda entry: entry[1]) - 1)
        del self.epochs[:first_kept]
        if self.epochs and self.epochs[0][1] < snapshot.offset:
            self.epochs[0] = (self.epochs[0][0], snapshot.offset)
            if snapshot.offset == self.end_offset:
                self.epochs.clear()

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """Return our largest epoch not above `epoch`, and its end offset."""
        earliest = self.snapshots[0] if self.snapshots else None
        if not self.epochs or epoch >= self.epochs[-1][0]:
            return self.end
        after = bisect_right(self.epochs, epoch, key=lambda entry: entry[0])
        ends_at = self.epochs[after][1]
        if after == 0:
            # The epoch is older than the log: the snapshot at the log's start may still have it.
            if earliest is not None and earliest.offset == ends_at and epoch >= earliest.epoch:
                return earliest
            return OffsetAndEpoch(ends_at, epoch)
        return OffsetAndEpoch(ends_at, self.epochs[after - 1][0])

    def epoch_at(self, offset: int) -> int:
        """Return the epoch of the record before `offset`, which is in the name of a snapshot that ends there; -1 if unknown."""
        if offset > self.end_offset or offset < self.start_offset:
            return -1
        if offset == self.start_offset:
            return next((snapshot.epoch for snapshot in self.snapshots if snapshot.offset == offset), -1)
        index = bisect_right(self.epochs, offset - 1, key=lambda entry: entry[1]) - 1
        return self.epochs[index][0] if index >= 0 else -1

    def validate(self, fetched: OffsetAndEpoch) -> Diverging | NeedsSnapshot | None:
        """Return how a follower whose log ends at `fetched` must continue; None if its log is a prefix of ours."""
        latest = self.latest_snapshot
        if fetched.offset == 0 and latest is not None and latest != BOOTSTRAP_SNAPSHOT:
            # An empty follower catches up faster with the snapshot than with the log before it.
            return NeedsSnapshot(latest)
        if self.start_offset == 0 and fetched.offset == 0:
            return None
        if latest is not None:
            earliest = self.snapshots[0]
            if (
                fetched.offset < self.start_offset
                or (fetched.offset == self.start_offset and fetched.epoch != earliest.epoch)
                or fetched.epoch < earliest.epoch
            ):
                return NeedsSnapshot(latest)
        end = self.end_offset_for_epoch(fetched.epoch)
        if end.epoch != fetched.epoch or end.offset < fetched.offset:
            return Diverging(end)
        return None

    def truncation_point(self, diverging: OffsetAndEpoch) -> int:
        """Return the end of the part of our log that can still be a prefix of the leader's, given its response."""
        if diverging.epoch == 0:
            return min(diverging.offset, self.end_offset)
        local = self.end_offset_for_epoch(diverging.epoch)
        return min(local.offset, diverging.offset) if local.epoch == diverging.epoch else local.offset
