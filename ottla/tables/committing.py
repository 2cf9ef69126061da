"""The committer decides which offers a topic's tables take, and makes the tables repeat the decisions.

It has no state of its own: the store and the tables have everything that it knows. So it may be killed anywhere, and there may
be two committers, an old one and a new one. After a conflict, or a lost response, it reads again: that is the whole recovery.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from ottla.server.config.tables.topic_tables import DAY, HOUR, UNPARTITIONED
from ottla.tables import offers
from ottla.tables.decisions import DecisionLog, TableDecision
from ottla.tables.offers import NOT_BEGUN, Offer, TablePosition
from ottla.tables.partitioning import parts_of
from ottla.tables.store import Store
from ottla.tables.table import AddedFile, CommitConflict, CommitUnknown, Table, TableCommit, TableRefused, TableState

#: The most files of one commit: offers from a long outage are taken in several commits.
FILES_MAX = 1_000
#: One call reads again at most this often, and then leaves the rest to the next interval.
TURNS_MAX = 5


class CommitProgress(NamedTuple):
    """The result of one call: the last decision, the rows and rejected records that it took, and whether offers remain."""

    last: TableDecision | None
    rows: int = 0
    rejected: int = 0
    is_behind: bool = False


class FilesOf(Protocol):
    """The files of an offer that a table has: those of the rows, or those of the rejected records."""

    def __call__(self, store: Store, offer: Offer) -> list[AddedFile]:
        """Return the files. Raises TableRefused if one is gone, StoreFailure."""


def rows_of(store: Store, offer: Offer) -> list[AddedFile]:
    if offer.suffix not in (DAY, HOUR):
        return _file(store, offer.name, offer.rows)
    data = store.get(offer.name)
    if data is None:
        raise TableRefused(f"{offer.name} is gone, which a commit takes")
    try:
        return [AddedFile(offer.part_name(part.value), part.size, part.rows, part.value) for part in parts_of(data)]
    except ValueError as fault:
        raise TableRefused(f"{offer.name} is no list of parts: {fault!r}") from fault


def rejected_of(store: Store, offer: Offer) -> list[AddedFile]:
    return _file(store, offer.rejected_name, offer.rejected)


def _file(store: Store, name: str, rows: int) -> list[AddedFile]:
    if not rows:
        return []
    size = store.size(name)
    if size is None:
        raise TableRefused(f"{name} is gone, which a commit takes")
    return [AddedFile(name, size, rows)]


class TableFollower:
    """Makes one table repeat the decisions."""

    def __init__(
        self,
        table: Table,
        files_of: FilesOf,
        store: Store,
        *,
        is_lazy: bool,
        schema_of: Callable[[tuple[AddedFile, ...]], Any] = lambda files: None,
    ) -> None:
        """A table that `is_lazy` is created with the first decision that has files for it.

        `schema_of` reads the columns of files.
        """
        self._schema_of = schema_of
        self._table = table
        self._files_of = files_of
        self._store = store
        self._is_lazy = is_lazy

    def load(self) -> TableState | None:
        """Return the state of the table, or None if it does not exist. Raises as `follow`."""
        return self._table.load()

    def follow(self, log: DecisionLog, last: TableDecision, state: TableState | None) -> TableState | None:
        """Bring the table to this decision, and return its state then.

        Commits are conditional on the state that was loaded before.

        Raises:
            TableRefused: the table is ahead, belongs to something else, or was dropped. CommitUnknown, CommitConflict,
            StoreFailure: the next call finds out what the table has now.
        """
        if state is None:
            first = self._first_with_files(log, last) if self._is_lazy else 1
            if first is None:
                return None
            if not self._is_lazy and last.sequence > 1:
                raise TableRefused(
                    f"the table was dropped after {last.sequence} commits: `ottla table rebuild` makes it again from the log"
                )
            self._table.create(first - 1)
            state = self._table.load()
            if state is None:
                raise CommitUnknown("the table that was made is not there")
        if state.sequence > last.sequence:
            newest = log.last()  # another committer has decided since `last` was read, and the table has followed
            if newest is None or newest.sequence < state.sequence:
                raise TableRefused(f"the table has commit {state.sequence}, and the store knows {last.sequence} only")
            raise CommitConflict(f"another committer has made commit {state.sequence}")
        for number in range(state.sequence + 1, last.sequence + 1):
            self._table.commit(state, self._read(log, number, last))
            state = self._table.load()
            if state is None or state.sequence < number:
                raise CommitUnknown(f"the table does not show commit {number}")
        return state

    def _read(self, log: DecisionLog, number: int, last: TableDecision) -> TableCommit:
        """Return the commit for a decision.

        If a file is missing, another committer was faster and a sweep has deleted it, or a user has.
        """
        try:
            return self._commit_of(last if number == last.sequence else log.get(number))
        except TableRefused as gone:
            state = self._table.load()
            if state is not None and state.sequence >= number:
                raise CommitConflict(f"another committer has made commit {number}") from gone
            raise

    def _first_with_files(self, log: DecisionLog, last: TableDecision) -> int | None:
        """Return the number of the newest decision if it has files for this table. Earlier decisions had none for it."""
        return last.sequence if any(self._files_of(self._store, offer) for offer in last.offers) else None

    def _commit_of(self, decision: TableDecision) -> TableCommit:
        files = [file for offer in decision.offers for file in self._files_of(self._store, offer)]
        text = ", ".join(f"{partition}: {row.next}" for partition, row in sorted(decision.positions.items()))
        return TableCommit(decision.sequence, tuple(files), text, self._schema_of(tuple(files)))


class Committer:
    """Commits the offers of one topic to its tables."""

    def __init__(
        self, store: Store, log: DecisionLog, followers: Iterable[TableFollower], partition: str = UNPARTITIONED
    ) -> None:
        """Take the partitioning for tables that do not exist yet."""
        self._partition = partition
        self._store = store
        self._log = log
        self._followers = tuple(followers)

    def run(self, partitions: int) -> CommitProgress:
        """Commit the offers of the partitions below this number.

        Raises:
            TableRefused, StoreFailure: see there.
            CommitUnknown, CommitConflict: TURNS_MAX times in sequence; the next call may do better.
        """
        rows = rejected = 0
        states: dict[TableFollower, TableState | None] = {}  # loading a table may take as long as a commit
        last = self._log.last()
        for turn in range(TURNS_MAX):
            try:
                if last is not None:
                    for follower in self._followers:
                        state = states[follower] if follower in states else follower.load()
                        states[follower] = follower.follow(self._log, last, state)
            except (CommitConflict, CommitUnknown):
                if turn == TURNS_MAX - 1:
                    raise
                states.clear()
                last = self._log.last()
                continue
            decision = self._decide(last, partitions)
            if decision is None:
                return CommitProgress(last, rows, rejected)
            if self._log.append(decision):
                last = decision
                rows += decision.rows
                rejected += decision.rejected
            else:
                last = self._log.last()
        return CommitProgress(last, rows, rejected, is_behind=True)

    def _decide(self, last: TableDecision | None, partitions: int) -> TableDecision | None:
        """Return the next decision, or None if there is no offer.

        The first decision creates the table, perhaps without any offer.
        """
        positions = dict(last.positions) if last is not None else {}
        parted = self._partition if last is None else last.partition
        taken: list[Offer] = []
        for partition in range(partitions):
            chain = self._chain(partition, positions.get(partition), parted)[: FILES_MAX - len(taken)]
            if chain:
                taken += chain
                positions[partition] = chain[-1].position
        if not taken and last is not None:
            return None
        return TableDecision(1 if last is None else last.sequence + 1, positions, tuple(taken), parted)

    def _chain(self, partition: int, position: TablePosition | None, parted: str) -> list[Offer]:
        """Return the offers that may be taken.

        A leader that does not know the partitioning of the tables yet offers again later.
        """
        after = offers.names_after(partition, 0 if position is None else position.next)
        found = self._store.list(offers.folder_of(partition), after)
        fits = (offers.SUFFIX_OF[parted], offers.NO_ROWS, offers.LOST)
        offered = [
            offer for each in found if (offer := offers.offer_of(each.name)) is not None and offer.suffix in fits
        ]
        if position is None:  # a leader begins a new partition at the start of its log
            begun = [offer.after for offer in offered if offer.after.epoch == NOT_BEGUN]
            position = min(begun, default=TablePosition(0, NOT_BEGUN))
        return offers.chain(offered, position)
