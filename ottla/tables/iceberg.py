"""A topic's table as Iceberg, by pyiceberg, in any of its catalogs.

The number of the last decision is a property of the table, set in the transaction that adds the files: the current snapshot's summary is
hidden by the next writer's, and old snapshots expire. Each commit makes a snapshot, also one without files, and is conditional on the
snapshot that was loaded. pyiceberg's own retry, which is on by default, would add a late writer's files behind a newer one's.
"""

from __future__ import annotations

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
from pyiceberg.table import Table as IcebergFiles
from pyiceberg.table.update import AssertRefSnapshotId

from ottla.tables.table import (
    NAMESPACE,
    CommitConflict,
    CommitUnknown,
    Owner,
    TableCommit,
    TableRefused,
    TableState,
)

SEQUENCE, OFFSETS = "ottla.commits", "ottla.offsets"
TOPIC, TOPIC_ID, CLUSTER_ID = "ottla.topic", "ottla.topic.id", "ottla.cluster.id"
RETRIES = "commit.retry.num-retries"
PROPERTIES = {
    RETRIES: "0",
    "format-version": "2",
    "commit.manifest-merge.enabled": "true",  # a commit would otherwise read one manifest for each that came before
    "write.parquet.compression-codec": "zstd",
}
#: What the library and its catalogs raise where an answer was lost.
NO_ANSWER = (CommitStateUnknownException, RESTError, OSError)


class IcebergTable:
    """One table. The files lie below `location`, where the store of the committer writes."""

    def __init__(self, catalog: Catalog, name: str, location: str, schema: pa.Schema, owner: Owner) -> None:
        self._catalog = catalog
        self._name = (NAMESPACE, name)
        self._location = location
        self._schema = schema
        self._owner = owner

    def load(self) -> TableState | None:
        try:
            table = self._catalog.load_table(self._name)
        except NoSuchTableError:
            return None
        except NO_ANSWER as fault:
            raise CommitUnknown(f"{self._text}: {fault}") from fault
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
        try:
            self._catalog.create_namespace_if_not_exists(NAMESPACE)
            self._catalog.create_table(self._name, self._schema, self._location, properties=properties)
        except TableAlreadyExistsError:
            return
        except NO_ANSWER as fault:
            raise CommitUnknown(f"{self._text}: {fault}") from fault

    def commit(self, state: TableState, commit: TableCommit) -> None:
        table: IcebergFiles = state.version
        if table.properties.get(RETRIES) != "0":
            raise TableRefused(f"{self._text}: set its property {RETRIES} to 0 again, or rows may be added twice")
        summary = {SEQUENCE: str(commit.sequence), OFFSETS: commit.summary}
        try:
            with table.transaction() as transaction:
                snapshot = table.metadata.current_snapshot_id
                transaction._requirements += (AssertRefSnapshotId(ref="main", snapshot_id=snapshot),)
                transaction.set_properties({SEQUENCE: str(commit.sequence), OFFSETS: commit.summary})
                if commit.schema is not None:
                    with transaction.update_schema() as update:
                        update.union_by_name(commit.schema)
                if commit.files:
                    names = [f"{self._location}/{file.name}" for file in commit.files]
                    transaction.add_files(names, summary, check_duplicate_files=False)
                else:
                    with transaction._append_snapshot_producer(summary):
                        pass
        except ValidationError as fault:
            raise TableRefused(f"{self._text} cannot have the columns of the files: {fault}") from fault
        except (CommitFailedException, ValidationException) as fault:
            raise CommitConflict(f"{self._text}: {fault}") from fault
        except NO_ANSWER as fault:
            raise CommitUnknown(f"{self._text}: {fault}") from fault

    @property
    def _text(self) -> str:
        return ".".join(self._name)
