"""A topic's table as a folder of Parquet files, for readers that know no table format: `rows/*.parquet`.

A file that a leader offers is not committed yet, so it is in another folder. A commit gives it a second name in the folder of
rows, and then writes the number of the decision, unless it exists. The names follow from the offers, so repeating a commit, or
doing it twice at once, changes nothing. A reader may see some files of a commit before the others; formats with a log prevent
that.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from ottla.server.config.tables.topic_tables import PARQUET, UNPARTITIONED
from ottla.tables.maintenance import MaintenancePolicy
from ottla.tables.offers import (
    FOLDER,
    PARTS_FOLDER,
    REJECTED_FOLDER,
    Offer,
    offer_of,
    offer_of_part,
    offer_of_rejected,
)
from ottla.tables.partitioning import column_of, text_of
from ottla.tables.store import Store, StoredObject
from ottla.tables.table import CommitConflict, Owner, TableCommit, TableRefused, TableState
from ottla.tables.table_location import FOLDER_OF

ROWS, NUMBERS = "rows", FOLDER_OF[PARQUET]


class ParquetFiles:
    """The files of one table in a folder."""

    def __init__(self, store: Store, owner: Owner, folder: str = ROWS, partition: str = UNPARTITIONED) -> None:
        """A partitioned table has folders kafka_day=2026-11-29, as Hive's tables do."""
        self._partition = partition
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
            part = ""
            if file.part is not None:  # readers of folders ignore names that begin with an underscore
                part = f"{column_of(self._partition).name.lstrip('_')}={text_of(self._partition, file.part)}/"
            self._store.copy(file.name, f"{self._folder}/{part}{folder.rpartition('/')[2]}-{name}")
        if not self._store.put_if_absent(f"{self._numbers}/{commit.sequence:012}", b""):
            raise CommitConflict(f"commit {commit.sequence} is published already")

    # The files are not merged: it takes two changes, and between them readers would see rows twice, or not at all.

    def merge(self, state: TableState, policy: MaintenancePolicy) -> int:
        return 0

    def expire(self, state: TableState, policy: MaintenancePolicy, now_ms: int) -> int:
        return 0

    def touch(self, state: TableState) -> None:
        """Do nothing: only tables with versions need it."""

    def own_files(self) -> Iterator[StoredObject]:
        return iter(())

    def size(self, state: TableState) -> tuple[int, int]:
        names = [each.name.rpartition("/")[2] for each in self._store.list(self._folder)]
        found = {_offer_of(name) for name in names}  # if one of several parts exists, so do all
        if self._folder == ROWS:
            return sum(offer.rows for offer in found if offer is not None), len(names)
        return sum(offer.rejected for offer in found if offer is not None), len(names)

    def drop(self) -> None:
        """Do nothing: without its files there is no table."""

    def unnamed(self, state: TableState, names: set[str], policy: MaintenancePolicy) -> set[str]:
        """Return all names: a committed file has a second name in the folder of rows."""
        return names


def _offer_of(name: str) -> Offer | None:
    partition, _, file = name.partition("-")
    rows = offer_of(f"{FOLDER}/{partition}/{file}") or offer_of_part(f"{PARTS_FOLDER}/{partition}/{file}")
    return rows if rows is not None else offer_of_rejected(f"{REJECTED_FOLDER}/{partition}/{file}")
