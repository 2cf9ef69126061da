"""A Delta table is opened once and then updated: a commit is still conditional on the loaded version, and a deleted table is
noticed.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.needs import needs_packages

needs_packages("pyarrow", "deltalake", "obstore")

from deltalake import DeltaTable

from ottla.server.table_work import TableSettings
from ottla.tables.delta import DeltaFiles
from ottla.tables.table import CommitConflict, Table, TableCommit, TableRefused, TableState
from tests.ottla.tables.topics import OWNER, TopicTables, found


def filled(tmp_path: Path) -> TopicTables:
    topic = TopicTables(TableSettings("delta", str(tmp_path), "files", "bytes", "string", {}))
    topic.write([b"one", b"two"])
    topic.offer()
    topic.commit()
    return topic


def table_of(topic: TopicTables) -> Table:
    table = topic.opened.tables[0]
    assert isinstance(table, DeltaFiles)
    return table


def loaded(table: Table) -> TableState:
    state = table.load()
    assert state is not None
    return state


def test_a_table_is_opened_once_although_others_write_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = filled(tmp_path)
    table = table_of(topic)
    assert loaded(table).sequence == 1
    other = TopicTables(topic.settings)
    other.write([b"one", b"two", b"three"])
    other.offer()
    other.commit()
    with monkeypatch.context() as patch:
        patch.setattr("ottla.tables.delta.DeltaTable", None)
        assert loaded(table).sequence == 2
    assert len(found(DeltaTable(topic.opened.store.url).to_pyarrow_table().to_pylist())) == 3


def test_what_was_loaded_before_is_old_once_the_same_process_has_loaded_again(tmp_path: Path) -> None:
    """Maintenance has loaded a version, and another commit comes before its merge."""
    topic = filled(tmp_path)
    old = loaded(table_of(topic))
    topic.write([b"three", b"four"])
    topic.offer()
    topic.commit()
    with pytest.raises(CommitConflict):
        topic.opened.tables[0].touch(old)


def test_a_table_that_was_dropped_is_not_there_although_it_was_open(tmp_path: Path) -> None:
    topic = filled(tmp_path)
    table = table_of(topic)
    place = Path(topic.opened.store.url.removeprefix("file://"))
    shutil.rmtree(place / "_delta_log")
    assert table.load() is None
    shutil.rmtree(place)
    again = filled(tmp_path)
    for number in range(3):
        again.write([b"more %d" % number] * 2)
        again.offer()
        again.commit()
    assert loaded(table).sequence == 4 and again.owner == OWNER


def test_a_commit_comes_after_the_version_that_was_loaded_or_not_at_all(tmp_path: Path) -> None:
    topic = filled(tmp_path)
    table = table_of(topic)
    old = loaded(table)
    other = DeltaTable(topic.opened.store.url)
    other.alter.set_table_properties({"owner": "someone"}, raise_if_not_exists=False)
    with pytest.raises(CommitConflict):
        table.commit(old, TableCommit(2, (), ""))
    table.commit(loaded(table), TableCommit(2, (), ""))
    assert loaded(table).sequence == 2
    other.update_incremental()
    assert (other.version(), other.metadata().configuration["owner"]) == (3, "someone")


def test_readers_begin_at_a_checkpoint_each_twenty_commits(tmp_path: Path) -> None:
    topic = filled(tmp_path)
    for number in range(25):
        topic.write([b"more %d" % number] * 2)
        topic.offer()
        topic.commit()
    place = Path(topic.opened.store.url.removeprefix("file://"))
    assert [file.name[:20] for file in place.glob("_delta_log/*.checkpoint.parquet")] == [f"{20:020}"]
    rows = {
        name: value.encode() for name, value in dict(found(DeltaTable(place).to_pyarrow_table().to_pylist())).items()
    }
    assert rows == topic.expected()


def test_a_table_that_asks_more_of_its_writers_is_refused(tmp_path: Path) -> None:
    topic = filled(tmp_path)
    DeltaTable(topic.opened.store.url).alter.add_constraint({"some": "value is not null"})
    topic.write([b"three"])
    topic.offer()
    with pytest.raises(TableRefused, match="version 3 of writers"):
        topic.commit()
