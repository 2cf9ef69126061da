"""The start offset of each leader epoch (`leader-epoch-checkpoint`): by it replicas find where their logs diverged (KIP-101).

Entries grow in both epoch and start offset. The file is text: version 0, number of entries, then `epoch offset` lines.
A new epoch is kept in memory until the next flush, as in Kafka. After a crash it is read from the batches, because the recovery
point only advances after the file is written. Epochs that a truncation removes are removed from the file at once.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from threading import Lock

from ottla.storage.checkpoint import read_lines, write_lines
from ottla.storage.errors import CorruptFile, StorageFailure
from ottla.storage.files import Files

FILE = "leader-epoch-checkpoint"
NO_EPOCH = -1
NO_OFFSET = -1


def epochs_of(path: str, lines: list[list[str]]) -> list[tuple[int, int]]:
    """Return the entries of a file's lines.

    Raises:
        CorruptFile: they are not numbers, or do not grow.
    """
    try:
        entries = [(int(epoch), int(start)) for epoch, start in lines]
    except ValueError as error:
        raise CorruptFile(path, "an entry is not two whole numbers") from error
    for (epoch, start), (next_epoch, next_start) in pairwise(entries):
        if next_epoch <= epoch or next_start < start:
            raise CorruptFile(path, f"epoch {next_epoch} at {next_start} follows epoch {epoch} at {start}")
    return entries


class LeaderEpochs:
    __slots__ = ("_files", "_lock", "_outdated", "_unsynced", "assigned", "entries", "latest", "path", "stored")

    def __init__(self, files: Files, path: str, *, stored: bool = True) -> None:
        """Take `stored`, which is False while the log has no directory (not yet, or no longer): the epochs are then in memory only."""
        self._files = files
        self._lock = Lock()  # guards the file: flushes write it on another thread, truncations on the log's own
        self._outdated = False  # the next flush writes the file
        self._unsynced = False
        self.stored = stored
        self.path = path
        self.entries: list[tuple[int, int]] = []
        self.latest = NO_EPOCH
        #: The latest epoch that has a batch: an append with another epoch calls `assign`.
        self.assigned = NO_EPOCH

    def relocate(self, directory: str) -> None:
        """The directory of the file has been renamed."""
        self.path = f"{directory}/{FILE}"

    def load(self) -> None:
        """Read the file; a missing file is an empty history.

        Raises:
            CorruptFile: the text is not valid, or the entries do not grow.
        """
        self._set(epochs_of(self.path, read_lines(self._files, self.path)))
        self.assigned = self.latest

    def begin(self, epoch: int, start_offset: int) -> None:
        """Begin an epoch in memory. It is written to the file once it has a batch: no replica requests the end of an epoch without batches.

        Recovery calls it for the epochs that it reads from the batches, and saves once at its end.
        """
        self._set(self._with(epoch, start_offset))

    def assign(self, epoch: int, start_offset: int) -> None:
        """Begin `epoch` with its first batch at `start_offset`; entries that contradict it are dropped.

        It does not write the file: after a failover it is called for the first batch of each of thousands of partitions.
        """
        self._set(self._with(epoch, start_offset))
        self.assigned = epoch
        self._outdated = True  # set last: a flush on another thread resets it before it reads the entries

    def _with(self, epoch: int, start_offset: int) -> list[tuple[int, int]]:
        assert epoch >= 0 and start_offset >= 0
        if self.entries and self.entries[-1][0] == epoch and start_offset >= self.entries[-1][1]:
            return self.entries
        kept = [entry for entry in self.entries if entry[0] < epoch and entry[1] < start_offset]
        return [*kept, (epoch, start_offset)]

    def forget_from(self, offset: int) -> None:
        """Drop later epochs in memory. Recovery reads them from the batches, because the file may be from before a truncation."""
        self._set([entry for entry in self.entries if entry[1] < offset])

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return (epoch, end offset): the largest known epoch at or below `epoch`, and its end offset; (-1, -1) if unknown."""
        if epoch < 0 or not self.entries:
            return NO_EPOCH, NO_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        if epoch > self.latest:
            return NO_EPOCH, NO_OFFSET
        at = bisect_right(self.entries, (epoch, 2**63))
        if at == 0:
            # The epoch is older than all known ones: it has no batches here, and ended where the first known epoch starts.
            return epoch, self.entries[0][1]
        return self.entries[at - 1][0], self.entries[at][1]

    def epoch_of(self, offset: int) -> int:
        """Return the epoch that `offset` was written in, or -1."""
        for epoch, start in reversed(self.entries):
            if start <= offset:
                return epoch
        return NO_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop the epochs that start at or after `end_offset`."""
        if self.entries and self.entries[-1][1] >= end_offset:
            self._replace([entry for entry in self.entries if entry[1] < end_offset])

    def truncate_from_start(self, start_offset: int) -> None:
        """Drop the epochs that ended at or before `start_offset`; the one that contains it now starts there.

        The next flush writes the file, as in Kafka: entries from before the log start do no harm after a crash.
        """
        at = 0
        for i, (_, start) in enumerate(self.entries):
            if start <= start_offset:
                at = i
        if self.entries and (at or self.entries[at][1] < start_offset):
            self._set([(self.entries[at][0], start_offset), *self.entries[at + 1 :]])
            self._outdated = True

    def replace(self, entries: list[tuple[int, int]], assigned: int) -> None:
        """Take over the epochs of another log with the same batches. The next flush writes them."""
        self._set(list(entries))
        self.assigned = assigned
        self._outdated = True

    @property
    def written_ahead(self) -> str:
        """The file of `write_ahead`."""
        return f"{self.path}.ahead"

    def write_ahead(self, entries: list[tuple[int, int]]) -> None:
        """Write and sync the epochs that the log is to take over, beside those that it has."""
        write_lines(self._files, self.written_ahead, (f"{epoch} {start}" for epoch, start in entries))

    def take_over_written(self, entries: list[tuple[int, int]]) -> None:
        """Take over what `write_ahead` has written, file and entries: it needs no room on the disk."""
        with self._lock:
            self._files.rename(self.written_ahead, self.path)
            self._set(list(entries))
        self.assigned = self.latest

    def store(self) -> None:
        """Store the epochs in the file from now on; the next flush rewrites it.

        It is rewritten even with the same bytes: if their fsync failed in an earlier process, the kernel counts them as clean.
        """
        self.stored = True
        self.assigned = self.latest
        self._outdated = True

    def leave(self) -> None:
        """Stop writes before the directory is renamed: a running flush must not write into the directory of a new log of the same name."""
        with self._lock:
            self.stored = False

    def flush(self) -> bool:
        """Write and sync the file, on any thread. Return True if the directory must be synced as well.

        It runs before the recovery point advances, so that the file has every epoch with records below the recovery point.
        """
        with self._lock:
            if self._outdated and self.stored:
                self._outdated = False
                try:
                    self._write(self.entries)
                except StorageFailure:
                    self._outdated = True
                    raise
            unsynced, self._unsynced = self._unsynced, False
        if unsynced:
            self._files.sync_file(self.path)
        return unsynced

    def _replace(self, entries: list[tuple[int, int]]) -> None:
        """Replace the entries, and the file without an fsync. If the disk is full, nothing changes."""
        with self._lock:
            if self.stored:
                self._write(entries)
                self._outdated = False
        self._set(entries)
        self.assigned = self.latest

    def _write(self, entries: list[tuple[int, int]]) -> None:
        write_lines(self._files, self.path, (f"{epoch} {start}" for epoch, start in entries), sync=False)
        self._unsynced = True

    def _set(self, entries: list[tuple[int, int]]) -> None:
        self.entries = entries
        self.latest = entries[-1][0] if entries else NO_EPOCH
