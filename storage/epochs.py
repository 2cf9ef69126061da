"""Which leader epoch began at which offset (`leader-epoch-checkpoint`): how replicas find where they diverged (KIP-101).

Entries grow in both epoch and start offset. The file is text: version 0, number of entries, then `epoch offset` lines.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

from storage.checkpoint import read_pairs, write_pairs
from storage.errors import CorruptFile
from storage.files import Files

FILE = "leader-epoch-checkpoint"
NO_EPOCH = -1
NO_OFFSET = -1


class LeaderEpochs:
    __slots__ = ("_files", "_in_file", "_unsynced", "entries", "latest", "path", "saved", "stored")

    def __init__(self, files: Files, path: str, *, stored: bool = True) -> None:
        """`stored` False: in memory until `store`, because the log has no directory yet."""
        self._files = files
        self._in_file: list[tuple[int, int]] | None = None  # None: not known
        self._unsynced = False
        self.stored = stored
        self.path = path
        self.entries: list[tuple[int, int]] = []
        self.latest = NO_EPOCH
        #: The latest in the file: an append of another one comes to `assign`.
        self.saved = NO_EPOCH

    def load(self) -> None:
        """Reads the file; no file is an empty history.

        Raises:
            CorruptFile: the text is not valid, or the entries do not grow.
        """
        entries = read_pairs(self._files, self.path)
        for (epoch, start), (next_epoch, next_start) in pairwise(entries):
            if next_epoch <= epoch or next_start < start:
                raise CorruptFile(self.path, f"epoch {next_epoch} at {next_start} follows epoch {epoch} at {start}")
        self._in_file = entries
        self._set(entries)
        self.saved = self.latest

    def begin(self, epoch: int, start_offset: int) -> None:
        """A leader begins, in memory: `assign` writes it down with the epoch's first batch.

        Nobody asks where an epoch ended that has none, and a broker takes over thousands of partitions in one turn of its
        loop: a file for each stopped it for seconds, longer than the quorum waits.
        """
        self._set(self._with(epoch, start_offset))

    def assign(self, epoch: int, start_offset: int) -> None:
        """Records that `epoch` begins at `start_offset`; entries that contradict it are dropped."""
        entries = self._with(epoch, start_offset)
        if entries is not self.entries or self.saved != epoch:
            self._replace(entries)

    def _with(self, epoch: int, start_offset: int) -> list[tuple[int, int]]:
        assert epoch >= 0 and start_offset >= 0
        if self.entries and self.entries[-1][0] == epoch and start_offset >= self.entries[-1][1]:
            return self.entries
        kept = [entry for entry in self.entries if entry[0] < epoch and entry[1] < start_offset]
        return [*kept, (epoch, start_offset)]

    def assign_in_memory(self, epoch: int, start_offset: int) -> None:
        """As `assign`, for recovery, which saves once at its end."""
        if epoch > self.latest:
            kept = [entry for entry in self.entries if entry[1] < start_offset]
            self._set([*kept, (epoch, start_offset)])

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

    def save(self) -> None:
        """Replaces the file without waiting for the disk.

        After a crash recovery reads the epochs beyond the recovery point from the batches themselves, and `flush` comes
        before the recovery point moves; so no epoch that has records is ever missing.
        """
        if self.entries == self._in_file and (data := self._files.read(self.path)):
            # The same bytes, to make them dirty: if a sync of them failed earlier, the kernel takes them for clean. Not by a
            # rename: after a crash each of 10,000 logs comes here, and with renames their start took 25 s instead of 13.
            self._files.pwrite(self.path, 0, data)
            self._unsynced = True
            self.saved = self.latest
        else:
            self._replace(self.entries)

    def store(self) -> None:
        """From now on in the file."""
        self.stored = True
        if self.entries:
            self.save()

    def flush(self) -> bool:
        """True when the directory must be synced as well."""
        unsynced, self._unsynced = self._unsynced, False
        if unsynced:
            self._files.sync_file(self.path)
        return unsynced

    def _replace(self, entries: list[tuple[int, int]]) -> None:
        if self.stored:
            write_pairs(self._files, self.path, entries, sync=False)  # first: with a full disk nothing has changed
            self._unsynced = True
            self._in_file = entries
        self._set(entries)
        self.saved = self.latest

    def _set(self, entries: list[tuple[int, int]]) -> None:
        self.entries = entries
        self.latest = entries[-1][0] if entries else NO_EPOCH
