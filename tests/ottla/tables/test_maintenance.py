"""Maintenance of real tables: rows do not change, small files are merged, and files that nothing names are deleted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.needs import needs_packages

needs_packages("pyarrow", "pyiceberg", "deltalake", "obstore", "moto", "flask")

import pyarrow.parquet as pq
from deltalake import DeltaTable

from ottla.server.table_work import TableJob, TableSettings
from ottla.tables import offers
from ottla.tables.delta import DeltaFiles
from ottla.tables.directory_store import UNFINISHED
from ottla.tables.maintenance import DAY_MS, MaintenancePolicy
from ottla.tables.table import CommitConflict
from ottla.tables.worker import TableWorker
from tests.ottla.tables.conftest import BUCKET, S3Server
from tests.ottla.tables.topics import TopicTables, found

FORMATS = ("iceberg", "delta", "parquet")
#: With this each file counts as old at once.
AT_ONCE = MaintenancePolicy(age_ms=0)
#: A time later than each time that a store has given a file.
LATER = 1 << 50


def topic_in(place: str, format_: str, options: dict[str, str] | None = None) -> TopicTables:
    return TopicTables(TableSettings(format_, place, "files", "bytes", "string", options or {}))


def filled(place: str, format_: str, options: dict[str, str] | None = None, commits: int = 6) -> TopicTables:
    topic = topic_in(place, format_, options)
    for batch in range(commits):
        topic.write([*(b"%d %d" % (batch, number) for number in range(10)), b"\xff", b"\xfe"])
        topic.offer()
        topic.commit()
    return topic


def rows(topic: TopicTables, which: int = 0) -> list[tuple[tuple[int, int], Any]]:
    """Return the rows of the table, or of the table of rejected records."""
    table = topic.opened.tables[which]
    state = table.load()
    assert state is not None
    match topic.settings.format:
        case "iceberg":
            return found(state.version.scan().to_arrow().to_pylist())
        case "delta":
            assert isinstance(table, DeltaFiles)
            return found(table._table(state).to_pyarrow_table().to_pylist())
    folder = Path(topic.opened.store.url.removeprefix("file://")) / ("rejected_rows" if which else "rows")
    return found(row for file in folder.glob("*.parquet") for row in pq.ParquetFile(file).read().to_pylist())


def assert_whole(topic: TopicTables) -> None:
    texts, bad = {}, {}
    for where, value in topic.expected().items():
        if value[:1] in (b"\xff", b"\xfe"):
            bad[where] = value
        else:
            texts[where] = value.decode()
    assert rows(topic) == sorted(texts.items()) and rows(topic, 1) == sorted(bad.items())


def files(topic: TopicTables, folder: str = "") -> list[str]:
    return [each.name for each in topic.opened.store.list(folder or ".")]


@pytest.mark.parametrize("format_", FORMATS)
def test_rows_stay_what_they_are_and_their_files_become_few(tmp_path: Path, format_: str) -> None:
    topic = filled(str(tmp_path), format_)
    before = topic.opened.tables[0].load()
    done = topic.opened.maintenance(AT_ONCE).run(LATER)
    assert done.merged == (0 if format_ == "parquet" else 24)
    assert_whole(topic)
    left = [name for folder in ("data", "_rejected", "merged") for name in files(topic, folder) if "parquet" in name]
    assert done.orphans + done.expired >= 24 and len(left) == {"iceberg": 2 + 2, "delta": 1, "parquet": 0}[format_]
    assert files(topic, "_commits") == [f"_commits/{6:012}.json"]
    after = topic.opened.tables[0].load()
    assert before is not None and after is not None and before.sequence == after.sequence == 6
    topic.write(b"%d" % number for number in range(10))
    topic.offer()
    assert topic.commit().rows == 10
    assert_whole(topic)
    again = topic.opened.maintenance(AT_ONCE).run(LATER)
    assert again.merged == 0
    assert_whole(topic)


@pytest.mark.chaos
@pytest.mark.parametrize("format_", ["iceberg", "delta"])
def test_tables_in_s3_are_maintained_too(lossy_s3: S3Server, tmp_path: Path, format_: str) -> None:
    topic = filled(f"s3://{BUCKET}/{tmp_path.name}", format_, lossy_s3.options)
    assert topic.opened.maintenance(AT_ONCE).run(LATER).merged == 24
    assert_whole(topic)


@pytest.mark.parametrize("format_", FORMATS)
def test_orphans_go_and_offers_that_may_be_taken_stay(tmp_path: Path, format_: str) -> None:
    topic = filled(str(tmp_path), format_, commits=2)
    store = topic.opened.store
    taken = next(offer for name in files(topic, "data") if (offer := offers.offer_of(name)) is not None)
    late = taken._replace(uid=f"{7:032x}")
    store.put(late.name, b"a deposed leader's")
    store.put(late.rejected_name, b"a deposed leader's")
    topic.write([b"next", b"\xff", b"\xff"])
    topic.offer()
    topic.opened.maintenance(AT_ONCE).sweep(LATER)
    assert store.get(late.name) is None and store.get(late.rejected_name) is None
    topic.commit()
    assert_whole(topic)


@pytest.mark.parametrize("format_", ["iceberg", "delta"])
def test_what_a_killed_merge_has_left_is_swept_and_a_late_merge_fails(
    tmp_path: Path, format_: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = filled(str(tmp_path), format_)
    late = topic_in(str(tmp_path), format_)
    table = late.opened.tables[0]
    state = table.load()
    assert state is not None
    kept = {*files(topic)}
    with monkeypatch.context() as patch:  # it has written its files, and is cut off
        patch.setattr("pyiceberg.table.Transaction.commit_transaction", lambda self: (_ for _ in ()).throw(OSError()))
        if format_ == "iceberg":
            with pytest.raises(Exception, match="orders"):
                table.merge(state, AT_ONCE)
        else:
            topic.opened.store.put("part-00000-00000000-0000-0000-0000-000000000000-c000.zstd.parquet", b"half")
    left = {*files(topic)} - kept
    assert left
    topic.opened.maintenance(AT_ONCE).sweep(LATER)
    assert not left & {*files(topic)}
    with pytest.raises(CommitConflict):
        table.merge(state, AT_ONCE)
    assert_whole(topic)


def test_nothing_young_is_deleted(tmp_path: Path) -> None:
    topic = filled(str(tmp_path), "iceberg")
    kept = {*files(topic)}
    done = topic.opened.maintenance(MaintenancePolicy(small_files_max=100)).run(
        max(each.modified_ms for each in topic.opened.store.list(".")) + DAY_MS // 2
    )
    assert done.orphans == done.decisions == done.expired == 0 and kept <= {*files(topic)}


def test_old_snapshots_and_versions_of_the_metadata_end(tmp_path: Path) -> None:
    topic = filled(str(tmp_path), "iceberg", commits=14)
    done = topic.opened.maintenance(MaintenancePolicy(small_files_max=100, versions_max=3)).run(LATER)
    state = topic.opened.tables[0].load()
    assert state is not None and done.expired == 26 and len(state.version.metadata.snapshots) <= 2
    versions = [name for name in files(topic, "metadata") if name.endswith(".json")]
    assert len(versions) <= 13 and f"metadata/v{17}.metadata.json" in versions
    assert_whole(topic)


def test_a_compaction_by_others_is_left_alone(tmp_path: Path) -> None:
    """Another engine's files have other names: they are neither merged nor swept."""
    topic = filled(str(tmp_path), "delta")
    DeltaTable(topic.opened.store.url).optimize.compact()
    done = topic.opened.maintenance(MaintenancePolicy(age_ms=0)).run(LATER)
    assert done.merged >= 12
    assert_whole(topic)


@pytest.mark.parametrize("format_", ["iceberg", "delta"])
def test_a_broker_maintains_in_slices_and_commits_between_them(tmp_path: Path, format_: str) -> None:
    topic = filled(str(tmp_path), format_)
    worker = TableWorker(slice_s=0.0)
    job = TableJob(*topic.owner, topic.settings, 2, (), commits=False, maintains=True)
    reports = [worker.work(job)]
    while reports[-1].more:
        topic.write([b"meanwhile"])
        topic.offer()
        topic.commit()
        reports.append(worker.work(job))
    assert not any(report.waits for report in reports)
    assert len(reports) > 3 and sum(report.merged for report in reports) >= 24
    assert_whole(topic)


def test_what_a_killed_writer_has_half_written_goes(tmp_path: Path) -> None:
    topic = filled(str(tmp_path), "parquet", commits=1)
    half = Path(topic.opened.store.url.removeprefix("file://")) / "data" / "00000" / f"{UNFINISHED}{7:032x}"
    half.write_bytes(b"half")
    young = topic.opened.maintenance(MaintenancePolicy()).sweep(0)
    assert half.exists() and not young.orphans
    topic.opened.maintenance(AT_ONCE).sweep(LATER)
    assert not half.exists()
    assert_whole(topic)
