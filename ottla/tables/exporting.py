"""An export of a topic to a table: it does the work of the leaders and the committer, without a broker, until nothing is left."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ottla.server.table_work import TableSettings
from ottla.tables.committing import CommitProgress
from ottla.tables.layout import SchemaMoved
from ottla.tables.offline import FoundTopic, find_topic
from ottla.tables.opening import OpenTables, open_tables
from ottla.tables.segment_source import SegmentSource
from ottla.tables.table import CommitConflict
from ottla.tables.translating import Translator


class Exported(NamedTuple):
    """The result of an export, and the state of the table now."""

    topic: FoundTopic
    url: str
    rows: int
    rejected: int
    positions: dict[int, int]


def export(directories: Iterable[str], topic: str, settings: TableSettings, new_uid: Callable[[], str]) -> Exported:
    """Write the committed records in a topic's log directories to its table, and create the table if there is none.

    If an export ends early, the next one continues.

    Raises:
        Failure: the directories have no such topic.
        TableRefused, StoreFailure, CommitUnknown, CommitConflict, ColumnsError, SegmentsGone: see there.
    """
    found = find_topic(directories, topic)
    opened = open_tables(settings, found.owner)
    translators = _translators(found, opened, new_uid)
    partitions = max(found.partitions) + 1
    rows = rejected = 0
    while True:
        last = opened.log.last()
        if not opened.is_partitioned_as(last):
            opened = open_tables(settings, found.owner)
            translators = _translators(found, opened, new_uid)
        try:
            offers = [
                translator.offer(
                    found.partitions[number].span, last.positions.get(number) if last is not None else None
                )
                for number, translator in translators.items()
            ]
        except SchemaMoved:
            opened = open_tables(settings, found.owner)
            translators = _translators(found, opened, new_uid)
            continue
        done = _committed(opened.committer.run, partitions)
        rows, rejected = rows + done.rows, rejected + done.rejected
        if done.last is not None and not any(offers) and not done.is_behind:
            positions = {number: row.next for number, row in done.last.positions.items()}
            return Exported(found, opened.store.url, rows, rejected, positions)


def _translators(found: FoundTopic, opened: OpenTables, new_uid: Callable[[], str]) -> dict[int, Translator]:
    return {
        number: Translator(
            opened.store,
            SegmentSource(each.folder, found.owner, number, opened.layout, opened.partition),
            number,
            each.span.leader_epoch,
            new_uid,
        )
        for number, each in sorted(found.partitions.items())
    }


def _committed(run: Callable[[int], CommitProgress], partitions: int) -> CommitProgress:
    try:
        return run(partitions)
    except CommitConflict:  # written by another export, or by a broker's committer
        return run(partitions)
