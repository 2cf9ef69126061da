"""Maintenance of a topic's tables: small files are merged, old versions expire, and files that nothing names are deleted.

The rule of deletion does not depend on a clock; ages only protect readers that have already begun. There are two kinds of
files:

- **An offer** is taken only by a decision whose positions are exactly those that the offer follows, and positions only grow: by
  the epoch, and within an epoch by the offset. So neither the last decision nor a later one takes an offer that follows an
  earlier position. Earlier decisions have taken their offers, and every table has repeated them (otherwise nothing is swept).
  Of the remaining files, those that no version of a table names are deleted.
- **A file that a format has made** (a manifest, a file of merged rows) is named by one commit only, which is conditional on the
  version that was loaded before the file was written. So after listing the files, maintenance makes a commit: a writer that has
  loaded the table before that can no longer commit. Files that the table does not name then will never be named.

A leader, a committer or another maintenance that continues after being cut off for days finds files missing, and can only fail:
the simulator delays them so on purpose (`tests/sim/table_history.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce
from typing import NamedTuple, Protocol

from ottla.tables import offers
from ottla.tables.decisions import DecisionLog, TableDecision
from ottla.tables.store import Store, StoredObject
from ottla.tables.table import CommitConflict, Table, TableState

EVER_MS = 1 << 62
MIB, DAY_MS = 1024 * 1024, 24 * 60 * 60 * 1000


class MaintenancePolicy(NamedTuple):
    """The limits of what is merged, and of what is old."""

    #: As soon as a partition has more files below the first size than the third number, these are merged into files of up to
    #: the second size. One merge, whose length the second size bounds, is one step: nothing else is committed meanwhile.
    small_bytes: int = 32 * MIB
    merged_bytes: int = 256 * MIB
    small_files_max: int = 4
    #: The versions of a table that readers may open: this many, and none older than `age_ms` except the last.
    versions_max: int = 100
    #: Younger files are never deleted.
    age_ms: int = DAY_MS


class MaintainedTable(Table, Protocol):
    """A table whose files can be merged and swept."""

    def merge(self, state: TableState, policy: MaintenancePolicy) -> int:
        """Merge some small files in one commit that keeps the number.

        Return how many were merged; 0 at the end. Raises as `commit`.
        """

    def expire(self, state: TableState, policy: MaintenancePolicy, now_ms: int) -> int:
        """Let old versions expire. Return how many. Raises as `commit`."""

    def touch(self, state: TableState) -> None:
        """Make a commit without changes, so that commits of others who loaded the table before it fail. Raises as `commit`."""

    def own_files(self) -> Iterator[StoredObject]:
        """Yield the files that only commits of this table name, whether committed or not."""

    def size(self, state: TableState) -> tuple[int, int]:
        """Return the number of its rows and of its files."""

    def drop(self) -> None:
        """Remove the table from its catalog. Its files stay. Raises CommitUnknown, StoreFailure."""

    def unnamed(self, state: TableState, names: set[str], policy: MaintenancePolicy) -> set[str]:
        """Return those of the names that no version has which readers may open."""


#: A broker's tables are merged in steps of some seconds, and it commits between two steps.
IN_STEPS = MaintenancePolicy(merged_bytes=64 * MIB)


class Maintained(NamedTuple):
    """The result of a run, or of a step of it."""

    merged: int = 0
    expired: int = 0
    #: The deleted files that nothing named, and the deleted decisions that all tables have.
    orphans: int = 0
    decisions: int = 0
    #: Another writer was faster at a step. The next run repeats it.
    conflicts: int = 0

    def plus(self, other: Maintained) -> Maintained:
        return Maintained(*map(sum, zip(self, other, strict=True)))


class Maintenance:
    """Maintains the tables of one topic. Several may run at once, and beside committers."""

    def __init__(
        self, store: Store, log: DecisionLog, tables: Iterable[MaintainedTable], policy: MaintenancePolicy
    ) -> None:
        self._store = store
        self._log = log
        self._tables = tuple(tables)
        self._policy = policy

    def run(self, now_ms: int) -> Maintained:
        """Do all steps once.

        Raises:
            TableRefused, StoreFailure, CommitUnknown, CommitConflict: see there. The next run goes on.
        """
        return _sum(self.steps(now_ms))

    def steps(self, now_ms: int) -> Iterator[Maintained]:
        """Do all steps once, and yield the result of each. Between two steps other commits may happen. Raises as `run`."""
        for table in self._tables:
            try:
                while (state := table.load()) is not None and (merged := table.merge(state, self._policy)):
                    yield Maintained(merged=merged)
                if state is not None:
                    yield Maintained(expired=table.expire(state, self._policy, now_ms))
            except CommitConflict:
                yield Maintained(conflicts=1)
        yield from self._sweep(now_ms - self._policy.age_ms)

    def sweep(self, before_ms: int) -> Maintained:
        """Delete orphans and decisions that were written before this time. Return how many of each. Raises as `run`."""
        return _sum(self._sweep(before_ms))

    def _sweep(self, before_ms: int) -> Iterator[Maintained]:
        for _ in self._store.sweep(before_ms):
            yield Maintained(orphans=1)
        for table in self._tables:
            yield from self._sweep_own(table, before_ms)
        last = self._log.last()
        if last is not None and (names := self._orphans(last, before_ms)) is not None:
            yield from self._delete(names)
            for _ in self._log.sweep(last.sequence, before_ms):
                yield Maintained(decisions=1)

    def orphans(self, last: TableDecision) -> set[str]:
        """Return the offered files that are orphans now, of any age. Raises as `run`."""
        return self._orphans(last, EVER_MS) or set()

    def _orphans(self, last: TableDecision, before_ms: int) -> set[str] | None:
        """Return the orphans, or None as long as a table has not repeated the last decision."""
        names = {each.name for each in self._passed(last, before_ms)}
        for table in self._tables:
            state = table.load()
            if state is None:
                if table is self._tables[0] or last.rejected:
                    return None  # the table has to be created first, with files
            elif state.sequence < last.sequence:
                return None
            else:
                names = table.unnamed(state, names, self._policy)
        return names

    def _passed(self, last: TableDecision, before_ms: int) -> Iterator[StoredObject]:
        """Yield the offered files that neither this decision nor a later one takes: those in the tables, and orphans."""
        for folder, offer_of in (
            (offers.FOLDER, offers.offer_of),
            (offers.REJECTED_FOLDER, offers.offer_of_rejected),
            (offers.PARTS_FOLDER, offers.offer_of_part),
        ):
            for each in self._store.list(folder):
                offer = offer_of(each.name)
                if offer is None or each.modified_ms > before_ms:
                    continue
                position = last.positions.get(offer.partition)
                if position is not None and offer.after.is_below(position):
                    yield each

    def _sweep_own(self, table: MaintainedTable, before_ms: int) -> Iterator[Maintained]:
        found = {each.name for each in table.own_files() if each.modified_ms <= before_ms}
        state = table.load()
        if state is None or not table.unnamed(state, found, self._policy):
            return
        table.touch(state)
        state = table.load()
        assert state is not None, "dropped since its commit"
        yield from self._delete(table.unnamed(state, found, self._policy))

    def _delete(self, names: set[str]) -> Iterator[Maintained]:
        for name in sorted(names):
            self._store.delete(name)
            yield Maintained(orphans=1)


def _sum(steps: Iterable[Maintained]) -> Maintained:
    return reduce(Maintained.plus, steps, Maintained())
