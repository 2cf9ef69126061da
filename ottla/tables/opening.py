"""Opens what a topic's settings name: the store, the tables in their catalog, and the decisions about them.

The libraries of a format are imported only where a table of it is opened: pyiceberg costs 1.7 s of processor and 130 MB.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from ottla.registry.client import RegistryClient
from ottla.tables.committing import Committer, TableFollower, rejected_of, rows_of
from ottla.tables.decisions import DecisionLog
from ottla.tables.layout import BytesShape, ColumnShape, RowLayout, StringShape
from ottla.tables.offers import REJECTED_FOLDER
from ottla.tables.store import Store
from ottla.tables.stored_file import schema_of
from ottla.tables.table import (
    BYTES,
    DELTA,
    FILES,
    FORMATS,
    ICEBERG,
    JSON,
    NAMESPACE,
    PARQUET,
    REGISTRY,
    REJECTED_SUFFIX,
    STRING,
    TYPED,
    Owner,
    Table,
    TableRefused,
    TableSettings,
)
from ottla.tables.table_location import (
    PARQUET_REJECTED,
    delta_options,
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
    """Open the tables of a topic, with the columns of the latest schemas.

    Raises:
        StoreRefused, TableRefused: they cannot be opened.
        RegistryWaits, ColumnsError: the registry cannot be asked; the JSON Schema is of no use.
        OSError, ValueError: the file of the registry's login cannot be read.
    """
    store = open_store(f"{settings.location.rstrip('/')}/{NAMESPACE}/{owner.topic}", settings.options)
    layout = RowLayout(_shape(settings, owner, "key"), _shape(settings, owner, "value"))
    log = DecisionLog(store, owner)
    table = _table(settings, store, layout.schema, owner, is_rejected=False)
    rejected = _table(settings, store, layout.rejected_schema, owner, is_rejected=True)
    followers = (
        TableFollower(table, rows_of, store, is_lazy=False, schema_of=partial(schema_of, store)),
        TableFollower(rejected, rejected_of, store, is_lazy=True),
    )
    return OpenTables(store, log, layout, Committer(store, log, followers))


def _shape(settings: TableSettings, owner: Owner, name: str) -> ColumnShape:
    kind = settings.key if name == "key" else settings.value
    if kind in SHAPES:
        return SHAPES[kind](name)
    if kind not in TYPED:
        raise TableRefused(f"{kind} is no form of a {name}: {', '.join((*SHAPES, *TYPED))}")
    from ottla.tables.shapes import RegistryShape, json_shape

    is_flat = name == "value"
    if kind == JSON and settings.json_schema:
        return json_shape(name, settings.json_schema, is_flat=is_flat)
    if not settings.registry:
        raise TableRefused(f"a {name} that is {kind} needs the address of a schema registry")
    client = RegistryClient.of(settings.registry, settings.registry_config)
    return RegistryShape(name, client, f"{owner.topic}-{name}", is_flat=is_flat, has_ids=kind == REGISTRY)


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

        return RestCatalog(NAMESPACE, **(warehouse | {"uri": settings.catalog} | given))
    from pyiceberg.catalog.sql import SqlCatalog

    return SqlCatalog(NAMESPACE, **(warehouse | {"uri": settings.catalog} | given))
