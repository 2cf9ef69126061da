"""The aborted transactions of one segment (`.txnindex`), written as their markers are appended.

34 bytes per entry: version i16 (0), producer id, first offset, last offset (of the marker), last stable offset after
the marker, all i64. The file exists only if a transaction was aborted. Committed transactions have no entry.
"""

from __future__ import annotations

from ottla.storage.files import Files
from ottla.storage.log_files import ABORTED_ENTRY, ABORTED_VERSION, AbortedTxn, aborted_txns


class TransactionIndex:
    """Entries in the order of their markers' offsets, mirrored in the file."""

    __slots__ = ("_created", "_entries", "_unsynced", "path")

    def __init__(self, path: str, entries: list[AbortedTxn] | None = None) -> None:
        self.path = path
        self._entries = entries  # None: not read yet
        self._unsynced = True  # the first flush syncs the file of an earlier process, too
        self._created = False

    def rename(self, path: str) -> None:
        """The file has another name from now on."""
        self.path = path

    def is_missing(self) -> None:
        """Return whether there is no file, which then need not be read: most of 10,000 logs have none."""
        self._entries = []

    def entries(self, files: Files) -> list[AbortedTxn]:
        if self._entries is None:
            self._entries = aborted_txns(self.path, files.read(self.path) or b"")
        return self._entries

    def make_room(self, files: Files, count: int) -> None:
        """Make room for `count` entries, before their markers are appended: an appended marker can no longer be rejected.

        Raises:
            StorageFailure, DiskFull: nothing has changed.
        """
        entries = self.entries(files)
        self._created |= not entries
        files.reserve(self.path, (len(entries) + count) * ABORTED_ENTRY.size)

    def append(self, files: Files, txn: AbortedTxn) -> None:
        entries = self.entries(files)
        assert not entries or entries[-1].last_offset < txn.last_offset, (
            "markers are appended in the order of their offsets"
        )
        self._created |= not entries
        self._unsynced = True
        files.pwrite(self.path, len(entries) * ABORTED_ENTRY.size, ABORTED_ENTRY.pack(ABORTED_VERSION, *txn))
        entries.append(txn)

    def append_if_missing(self, files: Files, txn: AbortedTxn) -> None:
        entries = self.entries(files)
        if not entries or entries[-1].last_offset < txn.last_offset:
            self.append(files, txn)

    def truncate_to(self, files: Files, offset: int) -> None:
        """Drop the entries whose markers are at or after `offset`."""
        entries = self.entries(files)
        kept = [txn for txn in entries if txn.last_offset < offset]
        if len(kept) < len(entries):
            self._unsynced = True
            files.truncate(self.path, len(kept) * ABORTED_ENTRY.size)
            self._entries = kept

    def replace(self, files: Files, entries: list[AbortedTxn]) -> None:
        """Rewrite and sync all entries: the lost ones may belong to markers below the recovery point."""
        files.write_atomic(self.path, b"".join(ABORTED_ENTRY.pack(ABORTED_VERSION, *txn) for txn in entries))
        self._entries = entries

    def collect(self, files: Files, start: int, end: int, into: list[AbortedTxn]) -> bool:
        """Add the transactions that overlap [start, end); return True if later segments cannot have more of them.

        That is so once an entry's last stable offset is at or above `end`.
        """
        for txn in self.entries(files):
            if txn.last_offset >= start and txn.first_offset < end:
                into.append(txn)
            if txn.last_stable_offset >= end:
                return True
        return False

    def flush(self, files: Files) -> bool:
        """Sync the file; return True if it is new, so that the directory must be synced as well."""
        created, self._created = self._created, False
        if self._unsynced:
            self._unsynced = False
            if files.exists(self.path):
                files.sync_file(self.path)
        return created
