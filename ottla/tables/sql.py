"""SQL over the tables of a location, by DuckDB. It needs no extension of DuckDB.

The libraries of the formats list a table's files, and pyarrow reads them. DuckDB itself opens no file, no address and no
extension, so a statement can read the tables of the location and nothing else. Its database is in memory, and ends with the
command.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io.pyarrow import PyArrowFileIO, schema_to_pyarrow

from ottla.server.config.tables.topic_tables import DELTA, ICEBERG
from ottla.tables.file_catalog import FileCatalog
from ottla.tables.store import StoreFailure
from ottla.tables.table import NAMESPACE, TableRefused
from ottla.tables.table_location import TableLocation, TablePlace, delta_options, iceberg_options

#: The rows of one batch.
BATCH_ROWS = 1_000
#: DuckDB opens nothing by itself, Python's variables are not tables, and no statement can change these settings.
CLOSED = ("enable_external_access = false", "python_enable_replacements = false", "lock_configuration = true")


class SqlFailed(Exception):
    """DuckDB rejects a statement, or cannot finish it."""


class SqlResult(NamedTuple):
    """The columns of a result, each with a different name, and its rows."""

    columns: list[str]
    rows: Iterator[tuple[Any, ...]]


class TableDatabase:
    """A database in memory, whose tables are those of a location."""

    def __init__(self, location: TableLocation, options: dict[str, str]) -> None:
        self._location = location
        self._options = options
        self._database = duckdb.connect(":memory:")
        self._database.execute("SET TimeZone = 'UTC'")
        for setting in CLOSED:
            self._database.execute(f"SET {setting}")

    def run(self, statement: str) -> SqlResult:
        """Run one statement or several; the result is the last one's.

        Raises:
            SqlFailed: DuckDB rejects it.
            TableRefused: a table in it cannot be read here.
            StoreFailure: the store does not answer.
        """
        try:
            for name, place in self._named(statement).items():
                self._database.register(name, self._dataset(place))
            done = self._database.execute(statement)
            if done is None:  # DuckDB's result for a comment, or for nothing
                raise SqlFailed("there is no statement in it")
            if done.description is None:
                return SqlResult([], iter(()))
            batches = done.fetch_record_batch(BATCH_ROWS)
        except (duckdb.Error, RuntimeError) as fault:
            raise SqlFailed(str(fault)) from fault
        return SqlResult(_own_names(batches.schema.names), _rows(batches))

    def _named(self, statement: str) -> dict[str, TablePlace]:
        """Return the tables in a statement, by the names that it uses for them. As in SQL, case does not matter."""
        try:
            names = self._database.get_table_names(statement)
        except duckdb.Error:  # several statements, or one that DuckDB splits into several
            names = {name for name in self._names() if name.casefold() in statement.casefold()}
        by_folded: dict[str, list[str]] = {}
        for name in self._names() if names else ():
            by_folded.setdefault(name.casefold(), []).append(name)
        found: dict[str, TablePlace] = {}
        for name in sorted(names):
            among = by_folded.get(name.casefold(), [])
            if len(among) > 1 and (name not in among or any(other in found for other in among)):
                raise TableRefused(f"{' and '.join(among)} are one name in SQL: ask for one of them, as it is written")
            place = self._location.place(among[0] if among and name not in among else name)
            if place is not None:
                found[name] = place
        return found

    def _names(self) -> list[str]:
        return [place.name for topic in self._location.topics() for place in self._location.places(topic)]

    def _dataset(self, place: TablePlace) -> Any:
        """Return the files of a table in a form that DuckDB can scan, with only the statement's filters and columns."""
        if place.format == DELTA:
            return self._delta(place)
        return self._iceberg(place) if place.format == ICEBERG else self._parquet(place)

    def _iceberg(self, place: TablePlace) -> Any:
        catalog = FileCatalog(self._location.store, **iceberg_options(self._options))
        try:
            table = catalog.load_table((NAMESPACE, place.name))
        except NoSuchTableError as fault:
            raise TableRefused(str(fault)) from fault
        tasks = list(table.scan().plan_files())
        if any(task.delete_files for task in tasks):
            cause = "another writer has added delete files to it, which only Iceberg's own readers apply"
            raise TableRefused(f"{place.name}: {cause}")
        schema = schema_to_pyarrow(table.schema(), include_field_ids=False)
        return self._files([task.file.file_path for task in tasks], schema)

    def _delta(self, place: TablePlace) -> Any:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        try:
            url = f"{self._location.store.url}/{place.folder}"
            return DeltaTable(url, storage_options=delta_options(self._options)).to_pyarrow_dataset()
        except (DeltaError, OSError) as fault:
            raise StoreFailure(f"{place.name}: {fault}") from fault

    def _parquet(self, place: TablePlace) -> Any:
        folder = place.folder if place.name != place.topic else f"{place.folder}/rows"
        store = self._location.store
        files = [f"{store.url}/{each.name}" for each in store.list(folder) if each.name.endswith(".parquet")]
        if not files:
            raise TableRefused(f"{place.name} has no rows yet, and Parquet without a file has no columns")
        return self._files(files, None)

    def _files(self, urls: list[str], schema: pa.Schema | None) -> Any:
        if not urls:
            return (schema or pa.schema([])).empty_table()
        scheme, host, _ = PyArrowFileIO.parse_location(urls[0])
        system = PyArrowFileIO(iceberg_options(self._options)).fs_by_scheme(scheme, host)
        paths = [PyArrowFileIO.parse_location(url)[2] for url in urls]
        try:
            return ds.dataset(paths, schema=schema, format="parquet", filesystem=system)
        except (OSError, pa.ArrowInvalid) as fault:
            raise StoreFailure(str(fault)) from fault


def _rows(batches: Any) -> Iterator[tuple[Any, ...]]:
    try:
        for batch in batches:
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
    except (duckdb.Error, pa.ArrowException, OSError) as fault:
        raise SqlFailed(str(fault)) from fault


def _own_names(names: list[str]) -> list[str]:
    """Return names without repetitions, because a row has its fields by name."""
    found: dict[str, None] = {}
    for name in names:
        number, own = 0, name
        while own in found:
            number += 1
            own = f"{name}_{number}"
        found[own] = None
    return list(found)
