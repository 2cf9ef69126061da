"""Opens what a topic's settings name: the store, the tables in their catalog, and the decisions about them.

The libraries of a format are imported only where a table of it is opened: pyiceberg costs 1.7 s of processor and 130 MB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from ottla.tables.committing import Committer, TableFollower, rejected_of, rows_of
from ottla.tables.decisions import DecisionLog
from ottla.tables.layout import BytesShape, ColumnShape, RowLayout, StringShape
from ottla.tables.offers import REJECTED_FOLDER
from ottla.tables.store import Store
from ottla.tables.table import (
    BYTES,
    DELTA,
    FILES,
    FORMATS,
    ICEBERG,
    NAMESPACE,
    PARQUET,
    REJECTED_SUFFIX,
    STRING,
    Owner,
    Table,
    TableRefused,
    TableSettings,
)
from ottla.tables.table_location import (
    ICEBERG_OPTIONS,
    PARQUET_REJECTED,
    iceberg_options,
    open_store,
)

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

SHAPES: dict[str, type[BytesShape | StringShape]] = {BYTES: BytesShape, STRING: StringShape}


class OpenTables(NamedTuple):
    """The tables of one topic."""

    store: Store
    log: DecisionLog
    layout: RowLayout
    committer: Committer


def open_tables(settings: TableSettings, owner: Owner) -> OpenTables:
    """Open the tables of a topic. Raises StoreRefused, TableRefused."""
    store = open_store(f"{settings.location.rstrip('/')}/{NAMESPACE}/{owner.topic}", settings.options)
    layout = RowLayout(_shape(settings.key, "key"), _shape(settings.value, "value"))
    log = DecisionLog(store, owner)
    table = _table(settings, store, layout.schema, owner, is_rejected=False)
    rejected = _table(settings, store, layout.rejected_schema, owner, is_rejected=True)
    followers = (
        TableFollower(table, rows_of, store, is_lazy=False),
        TableFollower(rejected, rejected_of, store, is_lazy=True),
    )
    return OpenTables(store, log, layout, Committer(store, log, followers))


def _shape(kind: str, name: str) -> ColumnShape:
    if kind not in SHAPES:
        raise TableRefused(f"{kind} is no form of a {name}: {', '.join(SHAPES)}")
    return SHAPES[kind](name)


def _table(settings: TableSettings, store: Store, schema: pa.Schema, owner: Owner, *, is_rejected: bool) -> Table:
    if settings.format == PARQUET:
        from ottla.tables.parquet import ParquetFiles

        return ParquetFiles(store, owner, PARQUET_REJECTED if is_rejected else "rows")
    if settings.format == DELTA:
        from ottla.tables.delta import DeltaFiles

        folder = REJECTED_FOLDER if is_rejected else ""
        return DeltaFiles(store.url, delta_options(settings.options), schema, owner, folder)
    if settings.format == ICEBERG:
        from ottla.tables.iceberg import IcebergTable

        name = owner.topic + (REJECTED_SUFFIX if is_rejected else "")
        return IcebergTable(_catalog(settings), name, store.url, schema, owner)
    raise TableRefused(f"{settings.format} is no format of a table: {', '.join(FORMATS)}")


def _catalog(settings: TableSettings) -> Catalog:
    given = settings.options | iceberg_options(settings.options)
    scheme = settings.catalog.partition(":")[0]
    if scheme == FILES:
        from ottla.tables.file_catalog import FileCatalog

        return FileCatalog(open_store(settings.location, settings.options), **given)
    warehouse = {"warehouse": open_store(settings.location, settings.options).url}
    if scheme in ("http", "https"):
        from pyiceberg.catalog.rest import RestCatalog

        return RestCatalog(NAMESPACE, **(warehouse | given | {"uri": settings.catalog}))
    from pyiceberg.catalog.sql import SqlCatalog

    return SqlCatalog(NAMESPACE, **(warehouse | given | {"uri": settings.catalog}))


def delta_options(options: dict[str, str]) -> dict[str, str]:
    """Return the options of a store by the names that delta-rs has for them."""
    return {f"aws_{name}" if name in ICEBERG_OPTIONS else name: value for name, value in options.items()} | (
        {"aws_allow_http": "true"} if options.get("endpoint", "").startswith("http://") else {}
    )
