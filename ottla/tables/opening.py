"""Opens what a topic's settings describe: the store, the tables in their catalog, and the decisions about them.

The libraries of a format are imported only if a table of that format is opened: pyiceberg takes 1.7 s of processor time and 130
MB.
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from ottla.registry.client import RegistryClient
from ottla.server.config.tables.topic_tables import (
    BY_REGISTRY,
    BYTES,
    DELTA,
    FILES,
    FORMATS,
    ICEBERG,
    JSON,
    PARQUET,
    REJECTED_SUFFIX,
    TEXT,
    TYPED,
    UNPARTITIONED,
)
from ottla.server.table_work import TableSettings
from ottla.tables.committing import Committer, TableFollower, rejected_of, rows_of
from ottla.tables.decisions import DecisionLog, TableDecision
from ottla.tables.layout import BytesShape, ColumnShape, RowLayout, StringShape
from ottla.tables.maintenance import MaintainedTable, Maintenance, MaintenancePolicy
from ottla.tables.offers import REJECTED_FOLDER
from ottla.tables.store import Store, StoreFailure, StoreRefused
from ottla.tables.stored_file import schema_of
from ottla.tables.table import NAMESPACE, Owner, TableRefused
from ottla.tables.table_location import (
    PARQUET_REJECTED,
    delta_options,
    iceberg_options,
    open_store,
)

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

SHAPES: dict[str, type[BytesShape | StringShape]] = {BYTES: BytesShape, TEXT: StringShape}


class OpenTables(NamedTuple):
    """The tables of one topic."""

    store: Store
    log: DecisionLog
    layout: RowLayout
    committer: Committer
    tables: tuple[MaintainedTable, MaintainedTable]
    #: The partitioning that the tables have, or will have when they are created.
    partition: str

    def is_partitioned_as(self, last: TableDecision | None) -> bool:
        """Return whether the partitioning is still the one assumed at opening: another committer may have created the tables."""
        return last is None or last.partition == self.partition

    def maintenance(self, policy: MaintenancePolicy) -> Maintenance:
        return Maintenance(self.store, self.log, self.tables, policy)


#: The modules, by words in a topic's settings. They import the libraries of that format, catalog or form.
MODULES: dict[str, tuple[str, ...]] = {
    PARQUET: ("ottla.tables.parquet",),
    DELTA: ("ottla.tables.delta",),
    ICEBERG: ("ottla.tables.iceberg", "ottla.tables.file_catalog"),
    JSON: ("ottla.tables.shapes",),
    BY_REGISTRY: ("ottla.tables.shapes",),
    "http": ("pyiceberg.catalog.rest",),
    "https": ("pyiceberg.catalog.rest",),
}


def import_libraries(settings: TableSettings) -> None:
    """Import everything that `open_tables` will need for these settings.

    A catalog that is neither `files` nor an HTTP address is a database.
    """
    scheme = settings.catalog.partition(":")[0] if settings.format == ICEBERG else FILES
    for name in (settings.format, settings.key, settings.value, scheme):
        for module in MODULES.get(name, ("pyiceberg.catalog.sql",) if name == scheme != FILES else ()):
            import_module(module)
    if "://" in settings.location and not settings.location.startswith("file:"):
        import_module("ottla.tables.object_store")


def open_tables(settings: TableSettings, owner: Owner) -> OpenTables:
    """Open the tables of a topic, with the columns of the latest schemas.

    Raises:
        StoreRefused, StoreFailure, TableRefused: the tables cannot be opened.
        RegistryWaits, ColumnsError: the registry cannot be reached; the JSON Schema cannot be used.
        OSError, ValueError: the file of the registry's login cannot be read.
    """
    if owner.topic.endswith(REJECTED_SUFFIX):
        raise TableRefused(
            f"{owner.topic} has the name of a table of rejected records: a topic of such a name has none"
        )
    store = open_store(f"{settings.location.rstrip('/')}/{NAMESPACE}/{owner.topic}", settings.options)
    layout = RowLayout(_shape(settings, owner, "key"), _shape(settings, owner, "value"))
    log = DecisionLog(store, owner)
    last = log.last()
    partition = settings.partition if last is None else last.partition
    settings = settings._replace(partition=partition)
    table = _table(settings, store, layout.schema, owner, is_rejected=False)
    rejected = _table(settings, store, layout.rejected_schema, owner, is_rejected=True)
    followers = (
        TableFollower(table, rows_of, store, is_lazy=False, schema_of=partial(schema_of, store)),
        TableFollower(rejected, rejected_of, store, is_lazy=True),
    )
    return OpenTables(store, log, layout, Committer(store, log, followers, partition), (table, rejected), partition)


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
    return RegistryShape(name, client, f"{owner.topic}-{name}", is_flat=is_flat, has_ids=kind == BY_REGISTRY)


def _table(
    settings: TableSettings, store: Store, schema: pa.Schema, owner: Owner, *, is_rejected: bool
) -> MaintainedTable:
    partition = UNPARTITIONED if is_rejected else settings.partition
    if settings.format == PARQUET:
        from ottla.tables.parquet import ROWS, ParquetFiles

        return ParquetFiles(store, owner, PARQUET_REJECTED if is_rejected else ROWS, partition)
    if settings.format == DELTA:
        from ottla.tables.delta import DeltaFiles

        folder = REJECTED_FOLDER if is_rejected else ""
        return DeltaFiles(store, delta_options(settings.options), schema, owner, folder, partition)
    if settings.format == ICEBERG:
        from ottla.tables.iceberg import IcebergTable

        name = owner.topic + (REJECTED_SUFFIX if is_rejected else "")
        folder = REJECTED_FOLDER if is_rejected else ""
        return IcebergTable(_catalog(settings), name, store, schema, owner, folder, partition)
    raise TableRefused(f"{settings.format} is no format of a table: {', '.join(FORMATS)}")


def _catalog(settings: TableSettings) -> Catalog:
    """Open a catalog. Raises StoreRefused if the credentials are wrong, StoreFailure if it does not answer."""
    given = settings.options | iceberg_options(settings.options)
    scheme = settings.catalog.partition(":")[0]
    if scheme == FILES:
        from ottla.tables.file_catalog import FileCatalog

        return FileCatalog(open_store(settings.location, settings.options), **given)
    from pyiceberg.exceptions import ForbiddenError, OAuthError, RESTError, UnauthorizedError

    warehouse = {"warehouse": open_store(settings.location, settings.options).url}
    given = warehouse | {"uri": settings.catalog} | given
    try:
        return _rest_catalog(given) if scheme in ("http", "https") else _database_catalog(given)
    except (UnauthorizedError, ForbiddenError, OAuthError) as fault:
        raise StoreRefused(f"{settings.catalog}: {fault}") from fault
    except (RESTError, OSError) as fault:
        raise StoreFailure(f"{settings.catalog}: {fault}") from fault


def _rest_catalog(given: dict[str, str]) -> Catalog:
    from pyiceberg.catalog.rest import RestCatalog

    if "credential" in given:  # the path in catalogs of the first specification; for others the option names it
        given = {"oauth2-server-uri": f"{given['uri'].rstrip('/')}/v1/oauth/tokens"} | given
    return RestCatalog(NAMESPACE, **given)


def _database_catalog(given: dict[str, str]) -> Catalog:
    from pyiceberg.catalog.sql import SqlCatalog
    from sqlalchemy.exc import ArgumentError, SQLAlchemyError

    try:
        return SqlCatalog(NAMESPACE, **given)
    except (ArgumentError, ModuleNotFoundError) as fault:
        raise StoreRefused(f"{given['uri']}: {fault}") from fault
    except SQLAlchemyError as fault:
        raise StoreFailure(f"{given['uri']}: {fault}") from fault
