"""A topic's table as a folder of Parquet files, for readers that know no table format: `rows/*.parquet`.

A file that a leader offers is not committed yet, so that it lies elsewhere. A commit gives it a second name in the folder of rows, then writes the
number of the decision unless it is there. The names follow from the offers, so that doing it again, or twice at once, changes nothing; a
reader may see some files of a commit before the others, which the formats with a log prevent.
"""

from __future__ import annotations

import json

from ottla.tables.store import Store
from ottla.tables.table import CommitConflict, Owner, TableCommit, TableRefused, TableState

ROWS, NUMBERS = "rows", "published"


class ParquetFiles:
    """One folder of files."""

    def __init__(self, store: Store, owner: Owner, folder: str = ROWS) -> None:
        self._store = store
        self._owner = json.dumps(list(owner))
        self._folder = folder
        self._numbers = f"{NUMBERS}/{folder}"

    def load(self) -> TableState | None:
        owner = self._store.get(f"{self._numbers}/owner.json")
        if owner is None:
            return None
        if owner.decode(errors="replace") != self._owner:
            raise TableRefused(f"{self._store.url} has the rows of {owner.decode(errors='replace')}")
        names = [each.name.rpartition("/")[2] for each in self._store.list(self._numbers)]
        numbers = [int(name) for name in names if name.isdecimal()]
        return TableState(None, max(numbers, default=0))

    def create(self, sequence: int) -> None:
        if sequence:
            self._store.put_if_absent(f"{self._numbers}/{sequence:012}", b"")
        self._store.put_if_absent(f"{self._numbers}/owner.json", self._owner.encode())

    def commit(self, state: TableState, commit: TableCommit) -> None:
        for file in commit.files:
            folder, _, name = file.name.rpartition("/")
            self._store.copy(file.name, f"{self._folder}/{folder.rpartition('/')[2]}-{name}")
        if not self._store.put_if_absent(f"{self._numbers}/{commit.sequence:012}", b""):
            raise CommitConflict(f"commit {commit.sequence} is published already")
