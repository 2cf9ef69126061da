"""A topic's table as Delta, by delta-rs.

The number of the last decision is a `txn` entry of Delta's protocol, whose application id names cluster and topic: two writers of one
application id always conflict, and what compacts a table or cleans its log keeps the entry. delta-rs' own retry is off.
"""

from __future__ import annotations

import json
from urllib.parse import quote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction

from ottla.tables.table import AddedFile, CommitConflict, CommitUnknown, Owner, TableCommit, TableRefused, TableState

OWNER = "ottla.owner"
#: It would let the entries of the last decision expire.
EXPIRY = "delta.setTransactionRetentionDuration"


class DeltaFiles:
    """One table, whose files lie below a folder of the store, the root by default: Delta's log has paths below the table alone."""

    def __init__(self, url: str, options: dict[str, str], schema: pa.Schema, owner: Owner, folder: str = "") -> None:
        self._location = f"{url}/{folder}".rstrip("/")
        self._folder = folder
        self._options = options
        self._schema = schema
        self._owner = owner

    def load(self) -> TableState | None:
        try:
            table = DeltaTable(self._location, storage_options=self._options)
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
        return TableState(table, 0 if sequence is None else sequence)

    def create(self, sequence: int) -> None:
        first = CommitProperties(app_transactions=[Transaction(self._application, sequence)], max_commit_retries=0)
        try:
            DeltaTable.create(
                self._location,
                self._schema,
                mode="ignore",
                storage_options=self._options,
                configuration={OWNER: self._owner_text},
                raise_if_key_not_exists=False,
                commit_properties=first,
            )
        except CommitFailedError:
            return
        except (DeltaError, OSError) as fault:
            raise CommitUnknown(f"{self._location}: {fault}") from fault

    def commit(self, state: TableState, commit: TableCommit) -> None:
        table: DeltaTable = state.version
        self._widen(table, commit.schema)
        entry = Transaction(self._application, commit.sequence)
        properties = CommitProperties(
            custom_metadata={"ottla.offsets": commit.summary}, app_transactions=[entry], max_commit_retries=0
        )
        try:
            table.create_write_transaction(
                [self._action(file) for file in commit.files], "append", table.schema(), commit_properties=properties
            )
        except CommitFailedError as fault:
            raise CommitConflict(f"{self._location}: {fault}") from fault
        except (DeltaError, OSError) as fault:
            raise CommitUnknown(f"{self._location}: {fault}") from fault

    def _widen(self, table: DeltaTable, schema: pa.Schema | None) -> None:
        """Add columns that the table lacks, in a commit of their own. A file's rows are null where it lacks one of the table's."""
        if schema is None:
            return
        wanted = DeltaSchema.from_arrow(schema)
        present = {field.name: field.type for field in table.schema().fields}
        wrong = [field.name for field in wanted.fields if present.get(field.name, field.type) != field.type]
        if wrong:
            raise TableRefused(f"{self._location}: Delta cannot change the type of {', '.join(wrong)}")
        if new := [field for field in wanted.fields if field.name not in present]:
            try:
                table.alter.add_columns(new)
            except CommitFailedError as fault:
                raise CommitConflict(f"{self._location}: {fault}") from fault
            except (DeltaError, OSError) as fault:
                raise CommitUnknown(f"{self._location}: {fault}") from fault

    @property
    def _application(self) -> str:
        return f"ottla/{self._owner.cluster_id}/{self._owner.topic_id}"

    @property
    def _owner_text(self) -> str:
        return json.dumps(list(self._owner))

    def _action(self, file: AddedFile) -> AddAction:
        stats = {"numRecords": file.rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
        name = file.name.removeprefix(f"{self._folder}/") if self._folder else file.name
        return AddAction(quote(name), file.size, {}, 0, True, json.dumps(stats))
