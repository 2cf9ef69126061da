"""Which leader epoch began at which offset (`leader-epoch-checkpoint`): how replicas find where they diverged (KIP-101).

Entries grow in both epoch and start offset. The file is text: version 0, number of entries, then `epoch offset` lines.
An epoch that begins is in memory until the next flush, as in Kafka: after a crash it is read from the batches, because the
recovery point moves behind the file. What a truncation takes away leaves the file at once.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from threading import Lock

from ottla.storage.checkpoint import read_pairs, write_pairs
from ottla.storage.errors import CorruptFile, StorageFailure
from ottla.storage.files import Files

FILE = "leader-epoch-checkpoint"
NO_EPOCH = -1
NO_OFFSET = -1


class LeaderEpochs:
    __slots__ = ("_files", "_lock", "_outdated", "_unsynced", "assigned", "entries", "latest", "path", "stored")

    def __init__(self, files: Files, path: str, *, stored: bool = True) -> None:
        """`stored` False: in memory only, because the log has no directory yet, or no longer."""
        self._files = files
        self._lock = Lock()  # of the file: flushes write it on another thread, truncations on the log's own
        self._outdated = False  # the next flush writes the file
        self._unsynced = False
        self.stored = stored
        self.path = path
        self.entries: list[tuple[int, int]] = []
        self.latest = NO_EPOCH
        #: The latest that has a batch: an append of another one comes to `assign`.
        self.assigned = NO_EPOCH

    def load(self) -> None:
        """Reads the file; no file is an empty history.

        Raises:
            CorruptFile: the text is not valid, or the entries do not grow.
        """
        entries = read_pairs(self._files, self.path)
        for (epoch, start), (next_epoch, next_start) in pairwise(entries):
            if next_epoch <= epoch or next_start < start:
                raise CorruptFile(self.path, f"epoch {next_epoch} at {next_start} follows epoch {epoch} at {start}")
        self._set(entries)
        self.assigned = self.latest

    def begin(self, epoch: int, start_offset: int) -> None:
        """An epoch begins, in memory. The file gets it once the epoch has a batch, because no replica asks where another one ended.

        Recovery reads epochs from the batches by it, and saves once at its end.
        """
        self._set(self._with(epoch, start_offset))

    def assign(self, epoch: int, start_offset: int) -> None:
        """The first batch of `epoch` is about to be written at `start_offset`; entries that contradict it are dropped.

        No file is written here: after a failover each of thousands of partitions comes here with its first batch.
        """
        self._set(self._with(epoch, start_offset))
        self.assigned = epoch
        self._outdated = True  # last: a flush on another thread takes this back before it reads the entries

    def _with(self, epoch: int, start_offset: int) -> list[tuple[int, int]]:
        assert epoch >= 0 and start_offset >= 0
        if self.entries and self.entries[-1][0] == epoch and start_offset >= self.entries[-1][1]:
            return self.entries
        kept = [entry for entry in self.entries if entry[0] < epoch and entry[1] < start_offset]
        return [*kept, (epoch, start_offset)]

    def forget_from(self, offset: int) -> None:
        """In memory: recovery reads the epochs from here on from the batches. The file may be from before a truncation."""
        self._set([entry for entry in self.entries if entry[1] < offset])

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(epoch, end offset): the largest known epoch at or below `epoch`, and where it ended; (-1, -1) if unknown."""
        if epoch < 0 or not self.entries:
            return NO_EPOCH, NO_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        if epoch > self.latest:
            return NO_EPOCH, NO_OFFSET
        at = bisect_right(self.entries, (epoch, 2**63))
        if at == 0:
            # Older than all we know: it held nothing here, and ended where our first epoch starts.
            return epoch, self.entries[0][1]
        return self.entries[at - 1][0], self.entries[at][1]

    def epoch_of(self, offset: int) -> int:
        """The epoch that `offset` was written in, or -1."""
        for epoch, start in reversed(self.entries):
            if start <= offset:
                return epoch
        return NO_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Drops the epochs that start at or after `end_offset`."""
        if self.entries and self.entries[-1][1] >= end_offset:
            self._replace([entry for entry in self.entries if entry[1] < end_offset])

    def truncate_from_start(self, start_offset: int) -> None:
        """Drops the epochs that ended at or before `start_offset`; the one that holds it starts there now."""
        at = 0
        for i, (_, start) in enumerate(self.entries):
            if start <= start_offset:
                at = i
        if self.entries and (at or self.entries[at][1] < start_offset):
            self._replace([(self.entries[at][0], start_offset), *self.entries[at + 1 :]])

    def clear(self) -> None:
        if self.entries:
            self._replace([])

    def store(self) -> None:
        """From now on in the file, written anew by the next flush.

        Also where it has the same bytes: if a sync of them failed in an earlier process, the kernel takes them for clean.
        """
        self.stored = True
        self.assigned = self.latest
        self._outdated = True

    def leave(self) -> None:
        """The directory is about to lose its name: a flush that is on its way must not write into a successor's."""
        with self._lock:
            self.stored = False

    def flush(self) -> bool:
        """Brings the file up to date, on the disk. On any thread. True when the directory must be synced as well.

        It comes before the recovery point moves, so that no epoch that has records is ever missing.
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
        """At once, without waiting for the disk; with a full disk nothing has changed."""
        with self._lock:
            if self.stored:
                self._write(entries)
                self._outdated = False
        self._set(entries)
        self.assigned = self.latest

    def _write(self, entries: list[tuple[int, int]]) -> None:
        write_pairs(self._files, self.path, entries, sync=False)
        self._unsynced = True

    def _set(self, entries: list[tuple[int, int]]) -> None:
        self.entries = entries
        self.latest = entries[-1][0] if entries else NO_EPOCH
