"""A topic's table as Iceberg, by pyiceberg, in any of its catalogs.

The number of the last decision is a property of the table, set in the transaction that adds the files: the summary of a
snapshot would not do, because the next writer's snapshot replaces it, and old snapshots expire. Each commit makes a snapshot,
even without files, and is conditional on the snapshot that was loaded. pyiceberg's own retry, which is on by default, would add
a late writer's files after those of a newer one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
    RESTError,
    TableAlreadyExistsError,
    ValidationError,
    ValidationException,
)
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.table import Table as IcebergFiles
from pyiceberg.table import Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AssertRefSnapshotId
from sqlalchemy.exc import SQLAlchemyError

from ottla.server.config.tables.topic_tables import UNPARTITIONED
from ottla.tables import iceberg_files, table_location
from ottla.tables.file_catalog import FileCatalog
from ottla.tables.maintenance import MaintenancePolicy
from ottla.tables.store import Store, StoredObject
from ottla.tables.table import NAMESPACE, CommitConflict, CommitUnknown, Owner, TableCommit, TableRefused, TableState

SEQUENCE, OFFSETS = "ottla.commits", "ottla.offsets"
TOPIC, TOPIC_ID, CLUSTER_ID = "ottla.topic", "ottla.topic.id", "ottla.cluster.id"
RETRIES = "commit.retry.num-retries"
MERGED = "ottla.merged"
#: This many old versions of the metadata stay, whatever their age.
METADATA_MAX = 10
PROPERTIES = {
    RETRIES: "0",
    "format-version": "2",
    "commit.manifest-merge.enabled": "true",  # otherwise a commit would read one manifest for each earlier commit
    "write.parquet.compression-codec": "zstd",
    "write.metadata.previous-versions-max": str(METADATA_MAX),
}
#: The errors of the library and its catalogs if a response was lost.
NO_ANSWER = (CommitStateUnknownException, RESTError, OSError, SQLAlchemyError)


class _OneTransaction(Transaction):
    """A transaction that computes its metadata once for each change: the library makes a deep copy at each access, 50 times in
    a commit.
    """

    _made: tuple[Any, TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        if self._made is None or self._made[0] is not self._updates:
            self._made = self._updates, super().table_metadata
        return self._made[1]


class IcebergTable:
    """One table in a folder of the store, by default the root. Its files are named by the store's address."""

    def __init__(
        self,
        catalog: Catalog,
        name: str,
        store: Store,
        schema: pa.Schema,
        owner: Owner,
        folder: str = "",
        partition: str = UNPARTITIONED,
    ) -> None:
        self._partition = partition
        self._catalog = catalog
        self._name = (NAMESPACE, name)
        self._store = store
        self._folder = folder
        self._url = store.url
        self._location = f"{store.url}/{folder}".rstrip("/")
        self._named = iceberg_files.NamedFiles()
        self._schema = schema
        self._owner = owner

    def load(self) -> TableState | None:
        try:
            with self._answering():
                table = self._catalog.load_table(self._name)
        except NoSuchTableError:
            return None
        given = table.properties
        found = Owner(given.get(CLUSTER_ID, ""), given.get(TOPIC_ID, ""), given.get(TOPIC, ""))
        if found != self._owner:
            raise TableRefused(f"{self._text} has the rows of {found.text}, and this is {self._owner.text}")
        try:
            return TableState(table, int(given[SEQUENCE]))
        except (KeyError, ValueError):
            raise TableRefused(f"{self._text}: its property {SEQUENCE} was changed by hand") from None

    def create(self, sequence: int) -> None:
        owner = {CLUSTER_ID: self._owner.cluster_id, TOPIC_ID: self._owner.topic_id, TOPIC: self._owner.topic}
        properties = PROPERTIES | owner | {SEQUENCE: str(sequence)}
        with self._answering(), suppress(TableAlreadyExistsError):
            self._catalog.create_namespace_if_not_exists(NAMESPACE)
            schema, spec = iceberg_files.partitioned(self._catalog, self._schema, self._partition)
            self._catalog.create_table(self._name, schema, self._location, spec, properties=properties)

    def commit(self, state: TableState, commit: TableCommit) -> None:
        summary = {SEQUENCE: str(commit.sequence), OFFSETS: commit.summary}
        with self._transaction(state) as transaction:
            transaction.set_properties({SEQUENCE: str(commit.sequence), OFFSETS: commit.summary})
            if commit.schema is not None:
                with transaction.update_schema() as update:
                    update.union_by_name(commit.schema)
            if self._partition != UNPARTITIONED and commit.files:
                iceberg_files.add_parts(
                    transaction, summary, [(f"{self._url}/{each.name}", each.part) for each in commit.files]
                )
            elif commit.files:
                names = [f"{self._url}/{file.name}" for file in commit.files]
                transaction.add_files(names, summary, check_duplicate_files=False)
            else:
                with transaction._append_snapshot_producer(summary):
                    pass

    def merge(self, state: TableState, policy: MaintenancePolicy) -> int:
        table: IcebergFiles = state.version
        with self._answering():
            part = next(iceberg_files.parts_to_merge(table, policy), None)
            if part is None:
                return 0
            where = iceberg_files.merged_file(table.io, self._location, part)
            made = parquet_file_to_data_file(table.io, table.metadata, where)
            if self._partition != UNPARTITIONED:
                made.partition[0] = part.files[0].partition[0]
        with self._transaction(state) as transaction:
            iceberg_files.replace(transaction, {MERGED: str(len(part.files))}, part.files, made)
        return len(part.files)

    def expire(self, state: TableState, policy: MaintenancePolicy, now_ms: int) -> int:
        table: IcebergFiles = state.version
        old = iceberg_files.expired_snapshots(table, policy, now_ms)
        with self._answering():
            if old:
                table.maintenance.expire_snapshots().by_ids(old).commit()
            if isinstance(self._catalog, FileCatalog):
                self._catalog.sweep_versions(self._name, METADATA_MAX, now_ms - policy.age_ms)
        return len(old)

    def touch(self, state: TableState) -> None:
        with self._transaction(state) as transaction, transaction._append_snapshot_producer({}):
            pass

    def own_files(self) -> Iterator[StoredObject]:
        folder = f"{self._folder}/".lstrip("/")
        for each in self._store.list(f"{folder}metadata"):
            if each.name.endswith(".avro"):
                yield each
        yield from self._store.list(f"{folder}{table_location.MERGED}")

    def unnamed(self, state: TableState, names: set[str], policy: MaintenancePolicy) -> set[str]:
        with self._answering():
            named = self._named.of(state.version)
        return {name for name in names if iceberg_files.plain(f"{self._url}/{name}") not in named}

    def size(self, state: TableState) -> tuple[int, int]:
        snapshot = state.version.metadata.current_snapshot()
        summary = {} if snapshot is None or snapshot.summary is None else snapshot.summary.additional_properties
        return int(summary.get("total-records", 0)), int(summary.get("total-data-files", 0))

    def drop(self) -> None:
        with self._answering(), suppress(NoSuchTableError):
            self._catalog.drop_table(self._name)

    @contextmanager
    def _transaction(self, state: TableState) -> Iterator[Transaction]:
        """Yield a transaction that is conditional on the loaded snapshot. Raises as `commit`."""
        table: IcebergFiles = state.version
        if table.properties.get(RETRIES) != "0":
            raise TableRefused(f"{self._text}: set its property {RETRIES} to 0 again, or rows may be added twice")
        with self._answering(), _OneTransaction(table) as transaction:
            snapshot = table.metadata.current_snapshot_id
            transaction._requirements += (AssertRefSnapshotId(ref="main", snapshot_id=snapshot),)
            yield transaction

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """Turn errors of the library and its catalogs into those of `Table`."""
        try:
            yield
        except ValidationError as fault:
            raise TableRefused(f"{self._text} cannot have the columns of the files: {fault}") from fault
        except (CommitFailedException, ValidationException) as fault:
            raise CommitConflict(f"{self._text}: {fault}") from fault
        except NO_ANSWER as fault:
            raise CommitUnknown(f"{self._text}: {fault}") from fault

    @property
    def _text(self) -> str:
        return ".".join(self._name)
