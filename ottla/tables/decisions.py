"""The decisions about a topic's tables.

They form a log of small objects; each is written only if its number does not exist yet.

A decision names the offers that it takes and the positions after them. The committer that writes number N has decided; a second
committer finds the decision, and continues from it. Tables only repeat decisions, each once and in order, because a table
stores the number of its last decision. So a table, its table of rejected records, and a format that is added later cannot
differ, and each stores only one number.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ottla.server.config.tables.topic_tables import UNPARTITIONED
from ottla.tables.offers import Offer, TablePosition, offer_of
from ottla.tables.store import Store, StoredObject
from ottla.tables.table import Owner, TableRefused

FOLDER = "_commits"  # the name hides it from programs that clean the table: see offers.FOLDER
FORMAT = 1


class TableDecision(NamedTuple):
    """The decision with number `sequence` (from 1 on): its offers, and the positions of the tables in all partitions after it."""

    sequence: int
    positions: dict[int, TablePosition]
    offers: tuple[Offer, ...]
    #: The partitioning of all tables. The first decision sets it.
    partition: str = UNPARTITIONED

    @property
    def rows(self) -> int:
        return sum(offer.rows for offer in self.offers)

    @property
    def rejected(self) -> int:
        return sum(offer.rejected for offer in self.offers)


class DecisionLog:
    """The decisions about one topic in a store."""

    def __init__(self, store: Store, owner: Owner) -> None:
        self._store = store
        self._owner = owner
        #: The number of the newest decision in the last listing; 0 for none.
        self._known = 0

    def last(self) -> TableDecision | None:
        """Return the last decision, or None.

        Raises TableRefused if the decisions belong to another topic, or to a newer version of Ottla; StoreFailure.
        """
        newest = self._newest()
        while newest is not None:
            try:
                return self.get(newest[0])
            except TableRefused:
                before, newest = newest, self._newest()
                if newest is not None and newest[0] == before[0]:
                    raise  # and it was not swept since the listing
        return None

    def _newest(self) -> tuple[int, StoredObject] | None:
        """Return the newest decision, from a listing that begins at the last known one: a day has 1,440 decisions.

        A sweep keeps the last decision. If the listing is empty, the decisions were deleted, and they are listed from the
        start.

        A sweep leaves the last one. Where there is none from there on, the log was deleted, and is listed from its start.
        """
        found = newest_of(self._store.list(FOLDER, _name_of(self._known - 1))) if self._known else None
        if found is None:
            found = newest_of(self._store.list(FOLDER))
        self._known = 0 if found is None else found[0]
        return found

    def get(self, sequence: int) -> TableDecision:
        """Return a decision. Raises as `last`, also if it no longer exists: all tables have a decision before it is swept."""
        name = _name_of(sequence)
        data = self._store.get(name)
        if data is None:
            raise TableRefused(f"{name} is gone, and a table has not repeated it yet: rebuild the table")
        try:
            return self._parsed(sequence, json.loads(data))
        except (KeyError, TypeError, ValueError, RecursionError) as fault:
            raise TableRefused(f"{name} is no decision of ours: {fault!r}") from fault

    def written_ms(self, sequence: int) -> int:
        """Return the time when a decision was written, or 0 if it does not exist. Raises StoreFailure."""
        found = (each.modified_ms for each in self._store.list(FOLDER) if _number_of(each.name) == sequence)
        return next(found, 0)

    def append(self, decision: TableDecision) -> bool:
        """Write the decision, unless another one has its number. Return whether it is this one. Raises StoreFailure."""
        body = {
            "format": FORMAT,
            **self._owner._asdict(),
            "partition": decision.partition,
            "positions": {str(partition): list(row) for partition, row in sorted(decision.positions.items())},
            "offers": [offer.name for offer in decision.offers],
        }
        return self._store.put_if_absent(_name_of(decision.sequence), json.dumps(body, indent=1).encode())

    def sweep(self, below: int, before_ms: int) -> Iterator[str]:
        """Delete the decisions with lower numbers that were written before this time, and yield the name of each.

        Raises StoreFailure.

        All tables have these decisions. A committer that was cut off for long may write one of the numbers again. Such a
        decision is never read, because the last one stays and all tables are further.
        """
        old = [
            each.name
            for each in self._store.list(FOLDER)
            if (number := _number_of(each.name)) is not None and number < below and each.modified_ms <= before_ms
        ]
        for name in old:
            self._store.delete(name)
            yield name

    def _parsed(self, sequence: int, body: dict[str, object]) -> TableDecision:
        if body["format"] != FORMAT:
            raise ValueError(f"format {body['format']}, which a newer version of Ottla has written")
        found = Owner(*(str(body[name]) for name in Owner._fields))
        if found != self._owner:
            raise TableRefused(f"{self._store.url} has the rows of {found.text}, and this is {self._owner.text}")
        positions, names = body["positions"], body["offers"]
        assert isinstance(positions, dict) and isinstance(names, list)
        taken = tuple(offer for name in names if (offer := offer_of(name)) is not None)
        if len(taken) != len(names):
            raise ValueError("a name that is no offer's")
        rows = {int(partition): TablePosition(*row) for partition, row in positions.items()}
        return TableDecision(sequence, rows, taken, str(body.get("partition", UNPARTITIONED)))


def owner_of(store: Store) -> Owner | None:
    """Return the owner of the tables in a store, or None if there is no decision. Raises StoreFailure, TableRefused."""
    newest = newest_of(store.list(FOLDER))
    if newest is None:
        return None
    name = _name_of(newest[0])
    try:
        body = json.loads(store.get(name) or b"")
        return Owner(*(str(body[field]) for field in Owner._fields))
    except (KeyError, TypeError, ValueError, RecursionError) as fault:
        raise TableRefused(f"{name} is no decision of ours: {fault!r}") from fault


def newest_of(listed: Iterable[StoredObject]) -> tuple[int, StoredObject] | None:
    """Return the number and the object of the newest decision in a listing of the folder, or None."""
    found = ((number, each) for each in listed if (number := _number_of(each.name)) is not None)
    return max(found, default=None)


def _name_of(sequence: int) -> str:
    return f"{FOLDER}/{sequence:012}.json"


def _number_of(name: str) -> int | None:
    number = name.rpartition("/")[2].removesuffix(".json")
    return int(number) if number.isdecimal() else None
