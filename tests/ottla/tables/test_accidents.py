"""Faults that the process for tables meets: a full disk, a catalog that is down, a fork, a restored log."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from tests.needs import needs_packages

needs_packages("pyarrow", "pyiceberg", "deltalake", "obstore", "moto", "flask")


from ottla.server.table_work import TableJob, TableSettings
from ottla.tables.table import Owner
from ottla.tables.worker import TableWorker
from tests.ottla.tables.conftest import S3_KEYS
from tests.ottla.tables.rest_catalog import CREDENTIAL, rest_catalog
from tests.ottla.tables.topics import OWNER, TopicTables
from tests.ports import free_ports


def job_of(topic: TopicTables, owner: Owner = OWNER, **more: Any) -> TableJob:
    return TableJob(*owner, topic.settings._replace(**more), len(topic.logs), (), commits=True)


def filled(tmp_path: Path, format_: str = "iceberg") -> TopicTables:
    topic = TopicTables(TableSettings(format_, str(tmp_path), "files", "bytes", "string", {}))
    topic.write([b"one", b"two"])
    topic.offer()
    return topic


def names(topic: TopicTables) -> list[str]:
    return [each.name for each in topic.opened.store.list(".")]


def test_a_full_disk_is_the_reason_and_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = filled(tmp_path)
    before = [*tmp_path.rglob("*")]

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("ottla.tables.directory_store.os.fsync", full)
        report = TableWorker().work(job_of(topic))
    assert (report.kind, report.rows) == ("store", 0) and "No space left on device" in report.waits
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == [each for each in before if each.is_file()]
    assert TableWorker().work(job_of(topic)).rows == 2


def test_a_catalog_that_is_down_keeps_offers_waiting(tmp_path: Path) -> None:
    topic = filled(tmp_path)
    report = TableWorker().work(job_of(topic, catalog=f"http://127.0.0.1:{free_ports(1)[0]}"))
    assert report.kind in ("store", "catalog") and report.waits and not report.rows
    with rest_catalog(tmp_path / "catalog") as (_, uri):
        login = {"credential": CREDENTIAL}
        assert TableWorker().work(job_of(topic, catalog=uri, options=login)).rows == 2


def test_an_option_that_the_store_does_not_know_is_the_reason(tmp_path: Path) -> None:
    """The library panics about it, and a panic is none of Python's usual exceptions."""
    report = TableWorker().work(
        job_of(filled(tmp_path), location="s3://lake/a", options=S3_KEYS | {"allow_http": "true"})
    )
    assert report.kind == "store refuses" and "allow_http" in report.waits


@pytest.mark.parametrize("format_", ["iceberg", "delta", "parquet"])
def test_a_fork_never_writes_into_the_tables_of_its_cluster(tmp_path: Path, format_: str) -> None:
    topic = filled(tmp_path, format_)
    assert TableWorker().work(job_of(topic)).rows == 2
    before = names(topic)
    fork = OWNER._replace(cluster_id="fork")
    for maintains in (False, True):
        report = TableWorker().work(job_of(topic, fork)._replace(maintains=maintains))
        assert report.kind == "refused" and "cluster fork" in report.waits
    assert names(topic) == before


def test_a_log_that_was_restored_says_so_and_changes_nothing(tmp_path: Path) -> None:
    topic = filled(tmp_path)
    topic.write([b"three", b"four"])
    topic.offer()
    topic.commit()
    before = names(topic)
    last = topic.opened.log.last()
    assert last is not None
    taken, span = last.positions[0], topic.logs[0].span()
    for restored, said in (
        (span._replace(end=1), "its log ends at 1: the cluster was restored"),
        (span._replace(leader_epoch=-1), "or else the cluster was restored"),
    ):
        topic.translators[0]._leader_epoch = restored.leader_epoch
        with pytest.raises(Exception, match=said):
            topic.translators[0].offer(restored, taken)
    assert names(topic) == before
