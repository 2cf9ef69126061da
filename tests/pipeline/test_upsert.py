"""The upsert table's manifests and the log of a Delta table, without Spark: what a reader sees, and what is removed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ottla.pipeline import delta, session, upsert
from ottla.pipeline.config import changed, load
from ottla.pipeline.errors import PipelineError
from tests.needs import needs_packages


def folder(table: Path, name: str) -> None:
    (table / name).mkdir(parents=True)
    (table / name / "part-0.parquet").write_text("")


def test_a_reader_sees_the_last_published_batch_only(tmp_path: Path) -> None:
    assert upsert.current(str(tmp_path)) == (-1, {})
    folder(tmp_path, "d1/0")
    upsert.publish(str(tmp_path), 0, {"d1": "d1/0"})
    folder(tmp_path, "d1/1")  # from a batch that was interrupted before it was published
    assert upsert.files(str(tmp_path)) == [str(tmp_path / "d1/0/part-0.parquet")]


def test_folders_of_old_batches_go_and_those_in_use_stay(tmp_path: Path) -> None:
    folder(tmp_path, "d0/0")
    folders = {"d0": "d0/0"}
    for batch in range(1, 6):
        folder(tmp_path, f"d1/{batch}")
        folders["d1"] = f"d1/{batch}"
        upsert.publish(str(tmp_path), batch, folders)
    assert sorted(each.name for each in (tmp_path / "d1").iterdir()) == ["3", "4", "5"]
    assert (tmp_path / "d0/0").is_dir()
    assert sorted(upsert.manifests(str(tmp_path))) == [3, 4, 5]


# -- Delta -----------------------------------------------------------------------------------------------------------


def commit(table: Path, version: int, *actions: dict[str, object]) -> None:
    log = table / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    (log / f"{version:020}.json").write_text("".join(json.dumps(each) + "\n" for each in actions))


def of_batch(number: int) -> dict[str, object]:
    return {"txn": {"appId": delta.APPLICATION, "version": number, "lastUpdated": 0}}


def test_a_delta_table_has_the_files_that_its_log_has_not_removed(tmp_path: Path) -> None:
    table = str(tmp_path)
    commit(tmp_path, 0, of_batch(0), {"add": {"path": "date=d/a.parquet"}}, {"add": {"path": "date=d/b%20b.parquet"}})
    commit(tmp_path, 1, {"remove": {"path": "date=d/a.parquet"}}, {"add": {"path": "date=d/c.parquet"}}, of_batch(3))
    commit(tmp_path, 2, {"txn": {"appId": "another", "version": 9}}, {"commitInfo": {}})
    assert upsert.last_batch(table) == 3
    assert upsert.files(table) == [f"{table}/date=d/b b.parquet", f"{table}/date=d/c.parquet"]
    commit(tmp_path, 3, {"add": {"path": "d.parquet", "deletionVector": {"storageType": "u"}}})
    with pytest.raises(PipelineError, match="deletion vectors"):
        upsert.files(table)


def test_a_delta_log_is_read_from_its_last_checkpoint(tmp_path: Path) -> None:
    needs_packages("pyarrow")
    import pyarrow as pa
    import pyarrow.parquet as pq

    commit(tmp_path, 11, of_batch(11), {"add": {"path": "new.parquet"}}, {"remove": {"path": "old.parquet"}})
    rows = [{"txn": {"appId": delta.APPLICATION, "version": 10}, "add": None}]
    rows += [{"txn": None, "add": {"path": path, "deletionVector": None}} for path in ("old.parquet", "kept.parquet")]
    log = tmp_path / "_delta_log"
    pq.write_table(pa.Table.from_pylist(rows), log / f"{10:020}.checkpoint.parquet")
    (log / "_last_checkpoint").write_text('{"version": 10, "size": 3}')
    assert delta.current(str(tmp_path)) == (11, (f"{tmp_path}/kept.parquet", f"{tmp_path}/new.parquet"))


def test_delta_is_taken_where_it_is_installed_and_demanded_where_it_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load(None, (f"spark.jars={tmp_path}",))
    demanded = changed(config, "pipeline", "upsert_format", "delta", "test")
    monkeypatch.setattr(delta, "is_usable", lambda jars: True)
    assert session.uses_delta(config)
    assert not session.uses_delta(changed(config, "pipeline", "upsert_format", "parquet", "test"))
    monkeypatch.setattr(delta, "is_usable", lambda jars: False)
    assert not session.uses_delta(config)
    with pytest.raises(PipelineError, match="make delta-jars"):
        session.uses_delta(demanded)
    with pytest.raises(PipelineError, match="upsert_format = orc"):
        load(None, ("pipeline.upsert_format=orc",))
