"""The state of a topic's tables, and their end: `ottla table status`, `maintain` and `rebuild`, which do not need the topic's
log.

The decisions say which topic a table belongs to.
"""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple

from ottla.server.config.tables.topic_tables import DELTA, ICEBERG, PARQUET
from ottla.server.table_work import TableSettings
from ottla.tables import decisions, offers, parquet
from ottla.tables.decisions import owner_of
from ottla.tables.maintenance import MaintenancePolicy
from ottla.tables.opening import OpenTables, open_tables
from ottla.tables.store import Store
from ottla.tables.table import NAMESPACE, Owner, TableRefused
from ottla.tables.table_location import FOLDER_OF, MERGED, PARQUET_REJECTED, is_name, open_store

#: The folders below a topic's place, of all formats. The decisions are deleted last, so that a killed rebuild can be run again.
FOLDERS = (
    *FOLDER_OF.values(),
    MERGED,
    parquet.ROWS,
    PARQUET_REJECTED,
    offers.FOLDER,
    offers.REJECTED_FOLDER,
    offers.PARTS_FOLDER,
    decisions.FOLDER,
)


class TableStatus(NamedTuple):
    """Tables of one topic. Times are milliseconds since 1970."""

    owner: Owner
    commits: int
    last_commit_ms: int
    positions: dict[int, int]
    rows: int
    files: int
    rejected: int
    #: Offers that a committer may take next, and files that nothing names and a sweep will delete.
    waiting: int
    orphans: int


def open_existing(settings: TableSettings, topic: str) -> tuple[Owner, OpenTables]:
    """Open the existing tables of a topic. If no format is given, it is found.

    Raises:
        TableRefused: nothing is there.
        StoreFailure, StoreRefused: see there.
    """
    if not is_name(topic):
        raise TableRefused(f"{topic!r} is no name of a topic")
    store = open_store(f"{settings.location.rstrip('/')}/{NAMESPACE}/{topic}", settings.options)
    owner = owner_of(store)
    if owner is None:
        raise TableRefused(f"there is no table of {topic} at {settings.location}")
    return owner, open_tables(settings._replace(format=settings.format or _format_of(store)), owner)


def status(owner: Owner, opened: OpenTables) -> TableStatus:
    """Read the state of the tables. Raises TableRefused, StoreFailure, CommitUnknown."""
    last = opened.log.last()
    assert last is not None, "its owner is known by it"
    table, rejected = opened.tables
    state, rejected_state = table.load(), rejected.load()
    size = table.size(state) if state is not None else (0, 0)
    offered = [offer for each in opened.store.list(offers.FOLDER) if (offer := offers.offer_of(each.name))]
    at = last.positions
    waiting = [each for each in offered if each.partition not in at or not each.after.is_below(at[each.partition])]
    orphans = opened.maintenance(MaintenancePolicy()).orphans(last)
    return TableStatus(
        owner,
        last.sequence,
        opened.log.written_ms(last.sequence),
        {partition: position.next for partition, position in sorted(last.positions.items())},
        *size,
        rejected.size(rejected_state)[0] if rejected_state is not None else 0,
        len(waiting),
        len(orphans),
    )


def drop(opened: OpenTables) -> None:
    """Delete the tables, their files and the decisions about them. Nothing may write them meanwhile. Raises as `status`."""
    own = [each.name for table in opened.tables for each in table.own_files()]
    for table in opened.tables:
        table.drop()
    folders = (opened.store.list(folder) for folder in FOLDERS)
    for name in chain(own, (each.name for each in chain.from_iterable(folders))):
        opened.store.delete(name)


def _format_of(store: Store) -> str:
    found = (format_ for format_ in (DELTA, PARQUET) if next(iter(store.list(FOLDER_OF[format_])), None) is not None)
    return next(found, ICEBERG)
