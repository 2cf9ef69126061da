"""A description of a topic's tables in the store, for people: files, rows, positions, and the last rejected records.

Of the formats' libraries it needs only delta-rs, for Delta. Its results are bounded, and it may be killed at any time: the
console runs it in a separate process (`ottla/console/table_process.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from heapq import nlargest
from io import BytesIO
from itertools import islice
from typing import Any, NamedTuple

from ottla.server.config.tables.topic_tables import DELTA, ICEBERG, REJECTED_SUFFIX
from ottla.tables.decisions import FOLDER as DECISIONS
from ottla.tables.offers import (
    FOLDER,
    NO_ROWS,
    PARQUET,
    PARTS_FOLDER,
    REJECTED_FOLDER,
    Offer,
    offer_of,
    offer_of_part,
)
from ottla.tables.store import StoreFailure
from ottla.tables.table_location import PARQUET_REJECTED, TableLocation, TablePlace, delta_options, place_of

#: The most objects of a listing that are read, and the most partitions whose positions are shown.
OBJECTS_MAX, POSITIONS_MAX = 100_000, 10_000
#: The newest files of rejected records that are read for their reasons, the most bytes and rows of one, and the most reasons
#: that are shown.
REASON_FILES_MAX, REASON_BYTES_MAX, REASON_ROWS_MAX = 3, 16 * 1024 * 1024, 10_000
REASONS_MAX, REASON_CHARS_MAX = 5, 200


class TableCounts(NamedTuple):
    """Files, rows and bytes of a table. A number is None if the metadata does not have it."""

    files: int | None
    rows: int | None
    bytes: int | None


class SeenTable(NamedTuple):
    """A topic's table, as it is in the store."""

    topic: str
    format: str
    cluster_id: str
    topic_id: str
    counts: TableCounts
    #: The time of the last commit, and its number.
    committed_ms: int | None
    commits: int
    #: The next offset of each partition.
    positions: dict[int, int]
    rejected: int | None
    #: The reasons of the last rejected records, each with the number of records.
    reasons: list[tuple[int, str]]


class TableLook:
    """Reads the tables of one location. All calls block, and raise StoreFailure."""

    def __init__(self, location: TableLocation, options: Mapping[str, str]) -> None:
        self._location = location
        self._options = dict(options)

    def topics(self) -> list[str]:
        """Return the names of the topics with a folder in the location."""
        names = self._location.topics()
        return [name for name in names if name.removesuffix(REJECTED_SUFFIX) not in {*names} - {name}]

    def topic(self, topic: str) -> SeenTable | None:
        """Return a topic's table, or None if it has none yet."""
        place = next((each for each in self._location.places(topic) if each.name == topic), None)
        if place is None:
            return None
        decision = self._location.last_decision(topic)
        rejected = self._location.place(topic + REJECTED_SUFFIX)
        body = {} if decision is None else decision.body
        return SeenTable(
            topic,
            place.format,
            str(body.get("cluster_id", "")),
            str(body.get("topic_id", "")),
            self._counts(place),
            None if decision is None else decision.modified_ms,
            0 if decision is None else decision.sequence,
            _positions(body, f"{DECISIONS} of {topic}"),
            0 if rejected is None else self._counts(rejected).rows,
            [] if rejected is None else self._reasons(topic),
        )

    def _counts(self, place: TablePlace) -> TableCounts:
        if place.format == ICEBERG:
            return self._iceberg_counts(place.name)
        return self._delta_counts(place) if place.format == DELTA else self._parquet_counts(place)

    def _iceberg_counts(self, name: str) -> TableCounts:
        found = self._location.metadata(name)
        if found is None:
            return TableCounts(None, None, None)
        current = found.body.get("current-snapshot-id")
        try:
            summary = next(row["summary"] for row in found.body.get("snapshots", ()) if row["snapshot-id"] == current)
            files, rows, size = (int(summary[f"total-{each}"]) for each in ("data-files", "records", "files-size"))
        except StopIteration:  # the table has no snapshot
            return TableCounts(0, 0, 0)
        except (KeyError, TypeError, ValueError, AttributeError) as fault:
            raise StoreFailure(f"{found.url} is no metadata of a table: {fault!r:.200}") from fault
        return TableCounts(files, rows, size)

    def _delta_counts(self, place: TablePlace) -> TableCounts:
        try:
            from deltalake import DeltaTable
            from deltalake.exceptions import DeltaError
        except ImportError:  # the extra `console` is installed without `tables`
            return TableCounts(None, None, None)
        try:
            url = f"{self._location.store.url}/{place.folder}"
            files = DeltaTable(url, storage_options=delta_options(self._options)).get_add_actions()
        except (DeltaError, OSError) as fault:
            raise StoreFailure(f"{place.name}: {fault}") from fault
        rows, sizes = (files.column(name).to_pylist() for name in ("num_records", "size_bytes"))
        return TableCounts(len(sizes), None if None in rows else sum(rows), sum(sizes))

    def _parquet_counts(self, place: TablePlace) -> TableCounts:
        folder = f"{place.folder}/rows" if place.name == place.topic else f"{place_of(place.topic)}/{PARQUET_REJECTED}"
        files = size = 0
        offers = set[Offer]()  # one decision may have several files
        for each in islice(self._location.store.list(folder), OBJECTS_MAX):
            offer = _offer(each.name)
            if offer is not None:
                files, size = files + 1, size + each.size
                offers.add(offer)
        rows = sum(offer.rows if place.name == place.topic else offer.rejected for offer in offers)
        return TableCounts(files, rows, size)

    def _reasons(self, topic: str) -> list[tuple[int, str]]:
        """Return the reasons in the newest files of rejected records; none if pyarrow is not installed."""
        try:
            import pyarrow.parquet as pq
            from pyarrow import ArrowException
        except ImportError:
            return []
        store, folder = self._location.store, f"{place_of(topic)}/{REJECTED_FOLDER}"
        listed = (each for each in islice(store.list(folder), OBJECTS_MAX) if each.size <= REASON_BYTES_MAX)
        newest = nlargest(REASON_FILES_MAX, listed, lambda each: (each.name.endswith(".parquet"), each.modified_ms))
        found: Counter[str] = Counter()
        for each in newest:
            if not each.name.endswith(".parquet"):  # Delta's log is there, too
                continue
            try:
                file = pq.ParquetFile(BytesIO(store.get_range(each.name, 0, each.size)))
                for batch in islice(file.iter_batches(REASON_ROWS_MAX, columns=["reason"]), 1):
                    found.update(str(reason)[:REASON_CHARS_MAX] for reason in batch.column("reason").to_pylist())
            except (ArrowException, OSError, KeyError) as fault:
                raise StoreFailure(f"{each.name} has no reasons: {fault!r:.200}") from fault
        return [(count, reason) for reason, count in found.most_common(REASONS_MAX)]


def _offer(name: str) -> Offer | None:
    """Return the offer that a file of Parquet's rows comes from. The file's name begins with the partition."""
    partition, _, file = name.rpartition("/")[2].partition("-")
    whole = f"{FOLDER}/{partition}/{file}"
    part = offer_of_part(f"{PARTS_FOLDER}/{partition}/{file}")
    return part or offer_of(whole) or offer_of(f"{whole.removesuffix(PARQUET)}{NO_ROWS}")  # all records were rejected


def _positions(body: Mapping[str, Any], name: str) -> dict[int, int]:
    rows = body.get("positions", {})
    try:
        return {int(partition): int(row[0]) for partition, row in islice(rows.items(), POSITIONS_MAX)}
    except (AttributeError, TypeError, ValueError, KeyError, IndexError) as fault:
        raise StoreFailure(f"{name}: the positions are none: {fault!r:.200}") from fault
