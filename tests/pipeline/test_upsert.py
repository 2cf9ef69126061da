"""The upsert table's manifests, without Spark: what a reader sees and what is thrown away."""

from __future__ import annotations

from pathlib import Path

from ottla.pipeline import upsert


def folder(table: Path, name: str) -> None:
    (table / name).mkdir(parents=True)
    (table / name / "part-0.parquet").write_text("")


def test_a_reader_sees_the_last_published_batch_only(tmp_path: Path) -> None:
    assert upsert.current(str(tmp_path)) == (-1, {})
    folder(tmp_path, "d1/0")
    upsert.publish(str(tmp_path), 0, {"d1": "d1/0"})
    folder(tmp_path, "d1/1")  # of a batch that died before it was published
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
