"""An Iceberg catalog that consists only of files: the metadata of version N is written only if no file has this number yet.

The file is `NAMESPACE/TABLE/metadata/v<N>.metadata.json`, as in Hadoop's tables, so that Spark's hadoop catalog, DuckDB, Polars
and pyiceberg's StaticTable read it without a catalog (`ottla/tables/table_location.py`).
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, NoSuchTableError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties

from ottla.tables.store import Store, StoreFailure
from ottla.tables.table_location import HINT, metadata_file, newest_version, version_of


class _Version(NamedTuple):
    """A version that was the newest one at the time of reading."""

    number: int
    body: bytes
    metadata: TableMetadata


class FileCatalog(MetastoreCatalog):
    """The tables below a store's address. It supports only the operations that Ottla uses for its own tables."""

    def __init__(self, store: Store, **properties: str) -> None:
        super().__init__("files", **properties)
        self._store = store
        #: The newest known version of each table, by the table's place.
        self._known: dict[str, _Version] = {}

    def load_table(self, identifier: str | Identifier) -> Table:
        place = self._place(identifier)
        version, metadata = self._newest(place, identifier)
        where = f"{self._store.url}/{metadata_file(place, version)}"
        io = self._load_file_io(metadata.properties, where)
        return Table(self.identifier_to_tuple(identifier), metadata, where, io, self)

    def create_table(
        self,
        identifier: str | Identifier,
        schema: Schema | Any,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> Table:
        place = self._place(identifier)
        metadata = new_table_metadata(
            location=location or f"{self._store.url}/{place}",
            schema=self._convert_schema_if_needed(schema),
            partition_spec=partition_spec,
            sort_order=sort_order,
            properties=dict(properties),
        )
        self._store.put_if_absent(metadata_file(place, 1), metadata.model_dump_json().encode())
        return self.load_table(identifier)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        place = self._place(table.name())
        version, metadata = self._newest(place, table.name())
        where = f"{self._store.url}/{metadata_file(place, version)}"
        current = Table(table.name(), metadata, where, self._load_file_io(metadata.properties, where), self)
        staged = self._update_and_stage_table(current, table.name(), requirements, updates)
        written, body = metadata_file(place, version + 1), staged.metadata.model_dump_json().encode()
        try:
            is_ours = self._store.put_if_absent(written, body)
        except StoreFailure as fault:
            raise CommitStateUnknownException(str(fault)) from fault
        if not is_ours:
            raise CommitFailedException(f"version {version + 1} of {place} is another's")
        self._known[place] = _Version(version + 1, body, staged.metadata)
        with suppress(StoreFailure):  # the hint only saves readers a listing
            self._store.put(f"{place}/{HINT}", str(version + 1).encode())
        return CommitTableResponse(metadata=staged.metadata, metadata_location=f"{self._store.url}/{written}")

    def sweep_versions(self, identifier: Identifier, kept: int, before_ms: int) -> int:
        """Delete versions before the last ones, if they were written before this time. Return how many. Raises StoreFailure.

        A writer that was cut off since then may write the version after the one that it knows. That is below the newest
        version, and is never read.
        """
        folder = f"{self._place(identifier)}/metadata"
        listed = [
            (found, each)
            for each in self._store.list(folder, f"{folder}/v")
            if (found := version_of(each.name)) is not None
        ]
        old = [each.name for _, each in sorted(listed)[: -kept - 1] if each.modified_ms <= before_ms]
        for name in old:
            self._store.delete(name)
        return len(old)

    def drop_table(self, identifier: str | Identifier) -> None:
        """Delete the metadata of a table, but not its rows."""
        for each in [*self._store.list(f"{self._place(identifier)}/metadata")]:
            self._store.delete(each.name)

    def create_namespace(self, namespace: str | Identifier, properties: Properties = EMPTY_DICT) -> None:
        """A namespace is a folder."""

    def _place(self, identifier: str | Identifier) -> str:
        return "/".join(self.identifier_to_tuple(identifier))

    def _newest(self, place: str, identifier: str | Identifier) -> tuple[int, TableMetadata]:
        known = self._known.get(place)
        if known is not None and self._is_newest(place, known):
            return known.number, known.metadata
        version = newest_version(self._store, place)
        if version is None:
            raise NoSuchTableError(f"there is no table {identifier}")
        body = self._store.get(metadata_file(place, version))
        if body is None:
            raise StoreFailure(f"version {version} of {place} has gone while it was read")
        metadata = TableMetadataUtil.parse_raw(body.decode())
        self._known[place] = _Version(version, body, metadata)
        return version, metadata

    def _is_newest(self, place: str, known: _Version) -> bool:
        """Return whether this is still the newest version, without listing the thousands of versions that a day makes.

        Versions are swept in order. So if the next version does not exist, and this one is still unchanged after that, the next
        one has never existed. If a late writer has replaced a swept version, that has other bytes.
        """
        return (
            self._store.size(metadata_file(place, known.number + 1)) is None
            and self._store.get(metadata_file(place, known.number)) == known.body
        )

    # Other operations of a catalog are not for tables that belong to a topic.

    def _unsupported(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError("this catalog has the tables of topics only")

    register_table = purge_table = rename_table = drop_namespace = _unsupported
    list_tables = list_namespaces = load_namespace_properties = update_namespace_properties = _unsupported
    list_views = drop_view = view_exists = load_view = rename_view = create_view = replace_view = _unsupported
    create_table_transaction = _unsupported


FileCatalog.__abstractmethods__ = frozenset()
