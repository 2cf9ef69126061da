"""A topic's table as Delta, by delta-rs.

The number of the last decision is a `txn` entry of Delta's protocol, whose application id names cluster and topic: two writers
of one application id always conflict, and programs that compact a table or clean its log keep the entry. delta-rs' own retry is
off. Commits that only add files are written without delta-rs (`delta_log.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, WriterProperties
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from ottla.server.config.tables.topic_tables import UNPARTITIONED
from ottla.tables import offers
from ottla.tables.delta_log import DeltaLog, LogEnd, check_writer
from ottla.tables.maintenance import MaintenancePolicy
from ottla.tables.partitioning import column_of, text_of
from ottla.tables.store import Store, StoredObject
from ottla.tables.table import AddedFile, CommitConflict, CommitUnknown, Owner, TableCommit, TableRefused, TableState

OWNER = "ottla.owner"
#: The version at the last sweep that found orphans.
SWEPT = "ottla.swept"
#: This would let the entry of the last decision expire.
EXPIRY = "delta.setTransactionRetentionDuration"
#: The commits between two checkpoints, from which readers begin. delta-rs' default is 100; then an open reads up to 99 commits
#: one by one.
CHECKPOINT_COMMITS = 20
PROPERTIES = {"delta.checkpointInterval": str(CHECKPOINT_COMMITS)}


class _Loaded(NamedTuple):
    """A table as it was loaded, and the end of its log. `table` has that version or an earlier one with the same columns."""

    table: DeltaTable
    end: LogEnd


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
        self._log = DeltaLog(store, folder, self._application)
        self._loaded: _Loaded | None = None

    def load(self) -> TableState | None:
        """Return the state of the table.

        To open a table takes several times as long as a commit, so an open table is updated instead.
        """
        known, self._loaded = self._loaded, None
        if known is not None and (end := self._log.follow(known.end)) is not None:
            self._loaded = _Loaded(known.table, end)
            return TableState(self._loaded, end.sequence)
        try:
            if known is not None and self._log.entry(known.end.version) == known.end.entry:
                table = known.table
                table.update_incremental()  # an empty folder gives an error that does not say that there is no table
            else:
                table = DeltaTable(self._location, storage_options=self._options)
            entry = self._log.entry(table.version()) or b""
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as fault:
            raise CommitUnknown(f"{self._location}: {fault}") from fault
        configuration = table.metadata().configuration
        if configuration.get(OWNER) != self._owner_text:
            raise TableRefused(f"{self._location} is no table of {self._owner.text}")
        if EXPIRY in configuration:
            raise TableRefused(f"{self._location}: remove {EXPIRY}, or rows may be added twice")
        protocol = table.protocol()
        check_writer(self._location, protocol.min_writer_version, protocol.writer_features or ())
        end = LogEnd(table.version(), entry, table.transaction_version(self._application) or 0)
        self._loaded = _Loaded(table, end)
        return TableState(self._loaded, end.sequence)

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
        loaded: _Loaded = state.version
        version = self._widen(state, commit.schema) + 1
        adds = map(self._action, commit.files)
        more = {"ottla.offsets": commit.summary}
        if not self._log.append(version, commit.sequence, adds, self._partition_by or [], more):
            raise CommitConflict(f"{self._location}: version {version} is there already")
        if version % CHECKPOINT_COMMITS == 0:
            with suppress(DeltaError, OSError):  # readers can do without, and the commit is made
                loaded.table.update_incremental()
                loaded.table.create_checkpoint()

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
        """Delete merged files after seven days, as readers of old versions of a Delta table expect, and old entries of the log.

        The table's properties say for how long entries stay; the default is 30 days.
        """
        table = self._table(state)
        with self._answering():
            table.cleanup_metadata()
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
        """Return the table of a state. Raises CommitConflict if it has another version now, or was loaded again."""
        loaded: _Loaded = state.version
        current = self._loaded
        if current is not None and current.end == loaded.end:
            with self._answering():
                current.table.update_incremental()
            if current.table.version() == loaded.end.version:
                return current.table
        raise CommitConflict(f"{self._location}: version {loaded.end.version} is not what there is now")

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """Turn the library's errors into those of `Table`."""
        try:
            yield
        except CommitFailedError as fault:
            raise CommitConflict(f"{self._location}: {fault}") from fault
        except (DeltaError, OSError) as fault:
            raise CommitUnknown(f"{self._location}: {fault}") from fault

    def _widen(self, state: TableState, schema: pa.Schema | None) -> int:
        """Add missing columns to the table, in a separate commit; return the version of the table then.

        If a file lacks a column of the table, its rows have null there.
        """
        loaded: _Loaded = state.version
        version = loaded.end.version
        if schema is None:
            return version
        wanted = DeltaSchema.from_arrow(schema)
        present = {field.name: field.type for field in loaded.table.schema().fields}
        wrong = [field.name for field in wanted.fields if present.get(field.name, field.type) != field.type]
        if wrong:
            raise TableRefused(f"{self._location}: Delta cannot change the type of {', '.join(wrong)}")
        if new := [field for field in wanted.fields if field.name not in present]:
            table = self._table(state)
            with self._answering():
                table.alter.add_columns(new)
            version += 1
            if table.version() != version:  # the library has put the columns behind another commit
                raise CommitConflict(f"{self._location}: version {version} is another commit")
        return version

    @property
    def _partition_by(self) -> list[str] | None:
        return None if self._column is None else [self._column.name]

    @property
    def _application(self) -> str:
        return f"ottla/{self._owner.cluster_id}/{self._owner.topic_id}"

    @property
    def _owner_text(self) -> str:
        return json.dumps(list(self._owner))

    def _action(self, file: AddedFile) -> dict[str, Any]:
        part = {} if self._column is None else {self._column.name: text_of(self._partition, file.part or 0)}
        stats = {"numRecords": file.rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
        name = file.name.removeprefix(f"{self._folder}/") if self._folder else file.name
        return {
            "path": quote(name),
            "partitionValues": part,
            "size": file.size,
            "modificationTime": 0,
            "dataChange": True,
            "stats": json.dumps(stats),
        }
