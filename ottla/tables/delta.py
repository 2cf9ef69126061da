"""A topic's table as Delta, by delta-rs.

The number of the last decision is a `txn` entry of Delta's protocol, whose application id names cluster and topic: two writers
of one application id always conflict, and programs that compact a table or clean its log keep the entry. delta-rs' own retry is
off.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import quote, unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, WriterProperties
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction

from ottla.server.config.tables.topic_tables import UNPARTITIONED
from ottla.tables import offers
from ottla.tables.maintenance import MaintenancePolicy
from ottla.tables.partitioning import column_of, text_of
from ottla.tables.store import Store, StoredObject
from ottla.tables.table import AddedFile, CommitConflict, CommitUnknown, Owner, TableCommit, TableRefused, TableState

OWNER = "ottla.owner"
#: The version at the last sweep that found orphans.
SWEPT = "ottla.swept"
#: This would let the entry of the last decision expire.
EXPIRY = "delta.setTransactionRetentionDuration"
#: The commits between two checkpoints, from which readers and this code begin. delta-rs' default is 100; then an open reads up
#: to 99 commits one by one, which takes four times as long as the commit itself.
PROPERTIES = {"delta.checkpointInterval": "20"}


class _Loaded(NamedTuple):
    """A table as it was loaded. A later load moves the table to a newer version; then this one is outdated."""

    table: DeltaTable
    version: int
    #: The bytes of the log's entry of this version. A table that was dropped and created again has other bytes.
    entry: bytes


class DeltaFiles:
    """One table.

    Its files are below a folder of the store, by default the root, because Delta's log can only have paths below the table.
    """

    def __init__(
        self,
        store: Store,
        options: dict[str, str],
        schema: pa.Schema,
        owner: Owner,
        folder: str = "",
        partition: str = UNPARTITIONED,
    ) -> None:
        """A partitioned table has a column `_kafka_day` or `_kafka_hour`, because Delta cannot partition by a field of a
        struct.
        """
        self._partition = partition
        self._column = None if partition == UNPARTITIONED else column_of(partition)
        self._store = store
        self._location = f"{store.url}/{folder}".rstrip("/")
        self._folder = folder
        self._options = options
        self._schema = schema if self._column is None else schema.append(self._column)
        self._owner = owner
        self._loaded: _Loaded | None = None

    def load(self) -> TableState | None:
        """Return the state of the table.

        To open a table takes several times as long as a commit, so an open table is updated instead.
        """
        known, self._loaded = self._loaded, None
        try:
            if known is not None and self._entry(known.version) == known.entry:
                table = known.table
                table.update_incremental()  # an empty folder gives an error that does not say that there is no table
            else:
                table = DeltaTable(self._location, storage_options=self._options)
            loaded = _Loaded(table, table.version(), self._entry(table.version()) or b"")
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as fault:
            raise CommitUnknown(f"{self._location}: {fault}") from fault
        configuration = table.metadata().configuration
        if configuration.get(OWNER) != self._owner_text:
            raise TableRefused(f"{self._location} is no table of {self._owner.text}")
        if EXPIRY in configuration:
            raise TableRefused(f"{self._location}: remove {EXPIRY}, or rows may be added twice")
        sequence = table.transaction_version(self._application)
        self._loaded = loaded
        return TableState(loaded, 0 if sequence is None else sequence)

    def create(self, sequence: int) -> None:
        first = CommitProperties(app_transactions=[Transaction(self._application, sequence)], max_commit_retries=0)
        try:
            DeltaTable.create(
                self._location,
                self._schema,
                mode="ignore",
                partition_by=self._partition_by,
                storage_options=self._options,
                configuration={OWNER: self._owner_text, **PROPERTIES},
                raise_if_key_not_exists=False,
                commit_properties=first,
            )
        except CommitFailedError:
            return
        except (DeltaError, OSError) as fault:
            raise CommitUnknown(f"{self._location}: {fault}") from fault

    def commit(self, state: TableState, commit: TableCommit) -> None:
        table = self._table(state)
        self._widen(table, commit.schema)
        with self._answering():
            table.create_write_transaction(
                [self._action(file) for file in commit.files],
                "append",
                table.schema(),
                partition_by=self._partition_by,
                commit_properties=self._properties(commit.sequence, {"ottla.offsets": commit.summary}),
            )

    def merge(self, state: TableState, policy: MaintenancePolicy) -> int:
        table = self._table(state)
        actions = table.get_add_actions()
        sizes, paths = (actions.column(name).to_pylist() for name in ("size_bytes", "path"))
        parts = [None] * len(paths) if self._column is None else actions.column("partition").to_pylist()
        places = {(path.rpartition("/")[0], str(part)) for path, part in zip(paths, parts, strict=True)}
        if sum(size < policy.small_bytes for size in sizes) <= policy.small_files_max * max(1, len(places)):
            return 0
        with self._answering():
            done = table.optimize.compact(
                target_size=policy.merged_bytes,
                max_concurrent_tasks=1,
                # each new file is its own commit, so that the work of a killed process is not lost
                min_commit_interval=0,
                writer_properties=WriterProperties(compression="ZSTD", compression_level=1),
                commit_properties=self._properties(state.sequence, {}),
            )
        return int(done["numFilesRemoved"])

    def expire(self, state: TableState, policy: MaintenancePolicy, now_ms: int) -> int:
        """Delete merged files after seven days, as readers of old versions of a Delta table expect."""
        return len(self._vacuum(state, policy, dry_run=False, full=False))

    def touch(self, state: TableState) -> None:
        """Change a property.

        Such a commit makes concurrent commits of other kinds fail; an optimize is repeated after those, whatever its retries
        are set to.
        """
        table = self._table(state)
        with self._answering():
            table.alter.set_table_properties(
                {SWEPT: str(table.version() + 1)},
                raise_if_not_exists=False,
                commit_properties=self._properties(state.sequence, {}),
            )

    def own_files(self) -> Iterator[StoredObject]:
        """Yield the files of an optimize. Their names are `part-*` beside the folders of offers."""
        folder = f"{self._folder}/".lstrip("/")
        for each in self._store.list(self._folder, f"{folder}part-"):
            if not each.name.startswith(f"{folder}part-"):
                return
            yield each

    def unnamed(self, state: TableState, names: set[str], policy: MaintenancePolicy) -> set[str]:
        folder = f"{self._folder}/".lstrip("/")
        own = {name for name in names if name.startswith(folder or (offers.FOLDER, "part"))}
        found = {f"{folder}{unquote(each)}" for each in self._vacuum(state, policy, dry_run=True, full=True)}
        return (names - own) | (own & found)

    def size(self, state: TableState) -> tuple[int, int]:
        rows = self._table(state).get_add_actions().column("num_records").to_pylist()
        return sum(rows), len(rows)

    def drop(self) -> None:
        """Do nothing: without its files there is no table."""

    def _vacuum(self, state: TableState, policy: MaintenancePolicy, *, dry_run: bool, full: bool) -> list[str]:
        table = self._table(state)
        hours = None if policy.age_ms else 0  # the table's own setting, or 168 hours
        with self._answering():
            found: list[str] = table.vacuum(hours, dry_run, enforce_retention_duration=False, full=full)
        return found

    def _properties(self, sequence: int, metadata: dict[str, str]) -> CommitProperties:
        entry = Transaction(self._application, sequence)
        return CommitProperties(custom_metadata=metadata, app_transactions=[entry], max_commit_retries=0)

    def _table(self, state: TableState) -> DeltaTable:
        """Return the table of a state. Raises CommitConflict if it was loaded again since, or this process has changed it."""
        loaded: _Loaded = state.version
        if loaded.table.version() != loaded.version:
            raise CommitConflict(f"{self._location}: version {loaded.version} is not what is loaded now")
        return loaded.table

    def _entry(self, version: int) -> bytes | None:
        return self._store.get(f"{self._folder}/_delta_log/{version:020}.json".lstrip("/"))

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """Turn the library's errors into those of `Table`."""
        try:
            yield
        except CommitFailedError as fault:
            raise CommitConflict(f"{self._location}: {fault}") from fault
        except (DeltaError, OSError) as fault:
            raise CommitUnknown(f"{self._location}: {fault}") from fault

    def _widen(self, table: DeltaTable, schema: pa.Schema | None) -> None:
        """Add missing columns to the table, in a separate commit.

        If a file lacks a column of the table, its rows have null there.
        """
        if schema is None:
            return
        wanted = DeltaSchema.from_arrow(schema)
        present = {field.name: field.type for field in table.schema().fields}
        wrong = [field.name for field in wanted.fields if present.get(field.name, field.type) != field.type]
        if wrong:
            raise TableRefused(f"{self._location}: Delta cannot change the type of {', '.join(wrong)}")
        if new := [field for field in wanted.fields if field.name not in present]:
            with self._answering():
                table.alter.add_columns(new)

    @property
    def _partition_by(self) -> list[str] | None:
        return None if self._column is None else [self._column.name]

    @property
    def _application(self) -> str:
        return f"ottla/{self._owner.cluster_id}/{self._owner.topic_id}"

    @property
    def _owner_text(self) -> str:
        return json.dumps(list(self._owner))

    def _action(self, file: AddedFile) -> AddAction:
        part = {} if self._column is None else {self._column.name: text_of(self._partition, file.part or 0)}
        stats = {"numRecords": file.rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
        name = file.name.removeprefix(f"{self._folder}/") if self._folder else file.name
        return AddAction(quote(name), file.size, part, 0, True, json.dumps(stats))
