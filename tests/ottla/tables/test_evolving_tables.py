"""Tables whose files have more columns than before."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.needs import needs_packages

needs_packages("pyarrow", "pyiceberg", "deltalake", "obstore")

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from ottla.tables.delta import DeltaFiles
from ottla.tables.directory_store import DirectoryStore
from ottla.tables.stored_file import schema_of
from ottla.tables.table import AddedFile, Owner, TableCommit, TableRefused

OWNER = Owner("cluster", "id", "orders")
OLD = pa.schema([("id", pa.int32()), ("place", pa.struct([("a", pa.int32())]))])
NEW = pa.schema([("id", pa.int32()), ("place", pa.struct([("a", pa.int32())])), ("note", pa.string())])


def put(store: DirectoryStore, name: str, schema: pa.Schema, rows: list[dict[str, object]]) -> AddedFile:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema), sink)
    data = sink.getvalue().to_pybytes()
    store.put(name, data)
    return AddedFile(name, len(data), len(rows))


def commit(table: DeltaFiles, store: DirectoryStore, sequence: int, *files: AddedFile) -> None:
    state = table.load()
    assert state is not None
    table.commit(state, TableCommit(sequence, files, "", schema_of(store, files)))


def test_a_table_of_delta_gets_the_columns_of_its_files_and_older_rows_are_null_there(tmp_path: Path) -> None:
    store = DirectoryStore(str(tmp_path))
    table = DeltaFiles(store, {}, OLD, OWNER)
    table.create(0)
    place = {"a": 1}
    commit(table, store, 1, put(store, "data/1.parquet", OLD, [{"id": 1, "place": place}]))
    files = [
        put(store, "data/2.parquet", OLD, [{"id": 2, "place": place}]),
        put(store, "data/3.parquet", NEW, [{"id": 3, "place": place, "note": "x"}]),
    ]
    commit(table, store, 2, *files)
    rows = DeltaTable(str(tmp_path)).to_pyarrow_table().sort_by("id").to_pylist()
    assert [(row["id"], row["note"]) for row in rows] == [(1, None), (2, None), (3, "x")]
    state = table.load()
    assert state is not None and state.sequence == 2


def test_files_whose_columns_fit_no_others_are_refused(tmp_path: Path) -> None:
    store = DirectoryStore(str(tmp_path))
    files = (
        put(store, "data/1.parquet", pa.schema([("id", pa.int32())]), [{"id": 1}]),
        put(store, "data/2.parquet", pa.schema([("id", pa.string())]), [{"id": "1"}]),
    )
    with pytest.raises(TableRefused, match="field id was int32, and is string"):
        schema_of(store, files)
