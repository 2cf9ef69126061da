"""The decisions about a topic's tables: a log of small objects, each written only if there is none of its number yet.

A decision names the offers that it takes and the positions after them. The committer that writes number N has decided; a second one finds
it there, and goes on from it. Tables only repeat decisions, each once and in their order, as a table keeps the number of the last one that
it has. So a table, the one of rejected records beside it, and a format that is added later cannot differ, and none needs to know more
than one number.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ottla.server.config.tables.topic_tables import UNPARTITIONED
from ottla.tables.offers import Offer, TablePosition, offer_of
from ottla.tables.store import Store, StoredObject
from ottla.tables.table import Owner, TableRefused

FOLDER = "_commits"  # hidden from what cleans the table: see offers.FOLDER
FORMAT = 1


class TableDecision(NamedTuple):
    """Number `sequence`, from 1 on: these offers, and where the tables then end in all partitions."""

    sequence: int
    positions: dict[int, TablePosition]
    offers: tuple[Offer, ...]
    #: The partitioning of the tables, which the first decision says for all.
    partition: str = UNPARTITIONED

    @property
    def rows(self) -> int:
        return sum(offer.rows for offer in self.offers)

    @property
    def rejected(self) -> int:
        return sum(offer.rejected for offer in self.offers)


class DecisionLog:
    """The decisions in a store, of one topic."""

    def __init__(self, store: Store, owner: Owner) -> None:
        self._store = store
        self._owner = owner
        #: The number of the newest decision that was listed, 0 for none.
        self._known = 0

    def last(self) -> TableDecision | None:
        """Return the last decision, or None. Raises TableRefused if they are another topic's, or of a newer version of Ottla; StoreFailure."""
        newest = self._newest()
        while newest is not None:
            try:
                return self.get(newest[0])
            except TableRefused:
                before, newest = newest, self._newest()
                if newest is not None and newest[0] == before[0]:
                    raise  # and not swept since it was listed
        return None

    def _newest(self) -> tuple[int, StoredObject] | None:
        """Return the newest decision in a listing that goes on from the one that was known: a day has 1,440 of them.

        A sweep leaves the last one. Where there is none from there on, the log was deleted, and is listed from its start.
        """
        found = newest_of(self._store.list(FOLDER, _name_of(self._known - 1))) if self._known else None
        if found is None:
            found = newest_of(self._store.list(FOLDER))
        self._known = 0 if found is None else found[0]
        return found

    def get(self, sequence: int) -> TableDecision:
        """Return a decision. Raises as `last`, also if it is not there any more: tables have all of them before they are swept."""
        name = _name_of(sequence)
        data = self._store.get(name)
        if data is None:
            raise TableRefused(f"{name} is gone, and a table has not repeated it yet: rebuild the table")
        try:
            return self._parsed(sequence, json.loads(data))
        except (KeyError, TypeError, ValueError, RecursionError) as fault:
            raise TableRefused(f"{name} is no decision of ours: {fault!r}") from fault

    def written_ms(self, sequence: int) -> int:
        """Return when a decision was written, 0 if it is not there. Raises StoreFailure."""
        found = (each.modified_ms for each in self._store.list(FOLDER) if _number_of(each.name) == sequence)
        return next(found, 0)

    def append(self, decision: TableDecision) -> bool:
        """Decide, unless there is another decision of this number; return whether it is this one. Raises StoreFailure."""
        body = {
            "format": FORMAT,
            **self._owner._asdict(),
            "partition": decision.partition,
            "positions": {str(partition): list(row) for partition, row in sorted(decision.positions.items())},
            "offers": [offer.name for offer in decision.offers],
        }
        return self._store.put_if_absent(_name_of(decision.sequence), json.dumps(body, indent=1).encode())

    def sweep(self, below: int, before_ms: int) -> Iterator[str]:
        """Delete those of lower numbers that were written before this time, and yield the name of each. Raises StoreFailure.

        All tables have them. A committer that was cut off before then may write one of their numbers again: it is never read, as the
        last one stays and all tables are beyond.
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
    """Return whose tables a store has, or None without a decision. Raises StoreFailure, TableRefused."""
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
    """Return the number and the object of the newest decision in a listing of their folder, None if there is none."""
    found = ((number, each) for each in listed if (number := _number_of(each.name)) is not None)
    return max(found, default=None)


def _name_of(sequence: int) -> str:
    return f"{FOLDER}/{sequence:012}.json"


def _number_of(name: str) -> int | None:
    number = name.rpartition("/")[2].removesuffix(".json")
    return int(number) if number.isdecimal() else None
