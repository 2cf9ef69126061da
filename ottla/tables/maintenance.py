"""Maintenance of a topic's tables: small files become large ones, old versions end, and what nothing names is deleted.

The rule of deletion rests on no clock; ages only spare readers that have begun. There are two kinds of files:

- **An offer** is taken only by a decision whose positions are exactly those that it comes after, and positions only grow: by the epoch, and
  within an epoch by the offset. So no decision from the last one on takes an offer that comes after an earlier position. Those before it
  have taken theirs, and each table has repeated them, or nothing is swept. What is left must be named by no version of a table.
- **A file that a format has made** (a manifest, a file of merged rows) is named by one commit only, which is conditional on the version that was
  loaded before the file was written. So a commit is made after the files were listed: a writer that had loaded the table before has lost.
  What the table then does not name will never be named.

A leader, a committer or another maintenance that was cut off for days and goes on meets files that are gone, and can do no more than
fail: the simulator leaves them behind on purpose (`tests/sim/table_history.py`).
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
    """The rules of what is merged, and what is old."""

    #: Files below this size are merged, up to the second one, as soon as a partition has more of them than the third number. One
    #: merge, whose length the second one bounds, is one step: nothing else is committed meanwhile.
    small_bytes: int = 32 * MIB
    merged_bytes: int = 256 * MIB
    small_files_max: int = 4
    #: Versions of a table that readers may open: so many, and none that is older than `age_ms` but the last.
    versions_max: int = 100
    #: Nothing younger is deleted.
    age_ms: int = DAY_MS


class MaintainedTable(Table, Protocol):
    """A table whose files can be merged and swept."""

    def merge(self, state: TableState, policy: MaintenancePolicy) -> int:
        """Merge some small files in one commit that keeps the number; return how many are merged, 0 at the end. Raises as `commit`."""

    def expire(self, state: TableState, policy: MaintenancePolicy, now_ms: int) -> int:
        """End old versions; return how many. Raises as `commit`."""

    def touch(self, state: TableState) -> None:
        """Make a commit that changes nothing: commits of others who have loaded the table before it fail. Raises as `commit`."""

    def own_files(self) -> Iterator[StoredObject]:
        """Yield what only commits of this table name, of those that are committed and others."""

    def size(self, state: TableState) -> tuple[int, int]:
        """Return its rows and its files."""

    def drop(self) -> None:
        """Take it out of its catalog. Its files stay. Raises CommitUnknown, StoreFailure."""

    def unnamed(self, state: TableState, names: set[str], policy: MaintenancePolicy) -> set[str]:
        """Return those of the names that no version of the table has which readers may open."""


#: The tables of a broker are merged in steps of some seconds, between which it commits.
IN_STEPS = MaintenancePolicy(merged_bytes=64 * MIB)


class Maintained(NamedTuple):
    """The work of one run, or of a step of it."""

    merged: int = 0
    expired: int = 0
    #: Files that nothing named, and decisions that all tables have.
    orphans: int = 0
    decisions: int = 0
    #: Another writer was faster at a step: the next run does it.
    conflicts: int = 0

    def plus(self, other: Maintained) -> Maintained:
        return Maintained(*map(sum, zip(self, other, strict=True)))


class Maintenance:
    """Keeps the tables of one topic in order. Several may run at once, and beside committers."""

    def __init__(
        self, store: Store, log: DecisionLog, tables: Iterable[MaintainedTable], policy: MaintenancePolicy
    ) -> None:
        self._store = store
        self._log = log
        self._tables = tuple(tables)
        self._policy = policy

    def run(self, now_ms: int) -> Maintained:
        """Do all of it once.

        Raises:
            TableRefused, StoreFailure, CommitUnknown, CommitConflict: see there. The next run goes on.
        """
        return _sum(self.steps(now_ms))

    def steps(self, now_ms: int) -> Iterator[Maintained]:
        """Do all of it once, and yield what each step has done. Between two of them anything may be committed. Raises as `run`."""
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
        """Delete orphans and decisions that were written before this time; return how many of each. Raises as `run`."""
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
        """Return the offers' files that are orphans now, of any age. Raises as `run`."""
        return self._orphans(last, EVER_MS) or set()

    def _orphans(self, last: TableDecision, before_ms: int) -> set[str] | None:
        """Return them, or None while a table has not repeated the last decision."""
        names = {each.name for each in self._passed(last, before_ms)}
        for table in self._tables:
            state = table.load()
            if state is None:
                if table is self._tables[0] or last.rejected:
                    return None  # it has to be made yet, with files
            elif state.sequence < last.sequence:
                return None
            else:
                names = table.unnamed(state, names, self._policy)
        return names

    def _passed(self, last: TableDecision, before_ms: int) -> Iterator[StoredObject]:
        """Yield the offers' files that no decision takes from this one on: those of tables, and orphans."""
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
