"""Iceberg's tables in catalogs: a database, and a REST catalog with OAuth2 whose responses are lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.needs import needs_packages

needs_packages("pyarrow", "pyiceberg", "obstore", "sqlalchemy")

from pyiceberg.catalog import load_catalog

from ottla.server.table_work import TableSettings
from ottla.tables.store import StoreFailure, StoreRefused
from ottla.tables.table import CommitConflict, CommitUnknown
from tests.ottla.tables.rest_catalog import (
    BEFORE_500,
    BEFORE_503,
    CREDENTIAL,
    CUT,
    HAPPENED_500,
    HAPPENED_502,
    HAPPENED_504,
    RestCatalogServer,
    rest_catalog,
)
from tests.ottla.tables.topics import TopicTables, found


def settings(folder: Path, catalog: str, **options: str) -> TableSettings:
    return TableSettings("iceberg", str(folder), catalog, "bytes", "string", options)


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[tuple[RestCatalogServer, str]]:
    with rest_catalog(tmp_path / "catalog") as served:
        yield served


def assert_once(topic: TopicTables, uri: str, **options: str) -> None:
    table = load_catalog("ottla", **{"uri": uri, **options}).load_table("ottla.orders")
    expected = sorted((where, value.decode()) for where, value in topic.expected().items())
    assert found(table.scan().to_arrow().to_pylist()) == expected


def test_a_database_is_a_catalog(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/catalog.db"
    topic = TopicTables(settings(tmp_path / "lake", uri))
    for batch in range(3):
        topic.write(b"%d %d" % (batch, number) for number in range(10))
        topic.offer()
        topic.commit()
    again = TopicTables(topic.settings)  # another process
    again.logs = topic.logs
    assert again.commit().rows == 0
    assert_once(topic, uri)


def test_two_committers_in_one_database_add_no_row_twice(tmp_path: Path) -> None:
    """The late writer has loaded the table before the other's commit."""
    uri = f"sqlite:///{tmp_path}/catalog.db"
    topic, late = (TopicTables(settings(tmp_path / "lake", uri)) for _ in range(2))
    topic.commit()
    topic.write(b"%d" % number for number in range(10))
    topic.offer()
    follower = late.opened.committer._followers[0]
    state = follower._table.load()
    topic.commit()
    decision = late.opened.log.last()
    assert state is not None and decision is not None
    with pytest.raises(CommitConflict):
        follower._table.commit(state, follower._commit_of(decision))
    assert_once(topic, uri)


@pytest.mark.parametrize("fault", [HAPPENED_500, HAPPENED_502, HAPPENED_504, CUT, BEFORE_500, BEFORE_503])
def test_a_lost_answer_of_a_rest_catalog_adds_no_row_twice(
    rest: tuple[RestCatalogServer, str], tmp_path: Path, fault: str
) -> None:
    catalog, uri = rest
    topic = TopicTables(settings(tmp_path / "lake", uri, credential=CREDENTIAL))
    for batch in range(2):
        topic.write(b"%d %d" % (batch, number) for number in range(10))
        topic.offer()
        catalog.faults = [fault, fault]
        topic.commit_at_last()
    assert catalog.commits == 2
    assert_once(topic, uri, credential=CREDENTIAL)


def test_a_wrong_credential_is_said_and_nothing_is_written(rest: tuple[RestCatalogServer, str], tmp_path: Path) -> None:
    catalog, uri = rest
    with pytest.raises(StoreRefused, match="wrong credential"):
        TopicTables(settings(tmp_path / "lake", uri, credential="me:wrong"))
    assert catalog.logins == 0 and not (tmp_path / "lake").exists()


@pytest.mark.parametrize("catalog", ["http://127.0.0.1:1", "sqlite:////nowhere/catalog.db"])
def test_a_catalog_that_is_not_there_is_a_failure_that_may_pass(tmp_path: Path, catalog: str) -> None:
    with pytest.raises(StoreFailure) as raised:
        TopicTables(settings(tmp_path / "lake", catalog))
    assert not isinstance(raised.value, StoreRefused)


def test_a_database_that_fails_in_a_commit_leaves_its_outcome_unknown(tmp_path: Path) -> None:
    """Its file is replaced by one that is no database, and is restored later."""
    file = tmp_path / "catalog.db"
    topic = TopicTables(settings(tmp_path / "lake", f"sqlite:///{file}"))
    topic.write(b"%d" % number for number in range(10))
    topic.offer()
    topic.commit()
    topic.write(b"%d" % number for number in range(10))
    topic.offer()
    kept = file.read_bytes()
    file.write_bytes(b"no database" * 1000)
    with pytest.raises(CommitUnknown):
        topic.commit()
    file.write_bytes(kept)
    topic.commit()
    assert_once(topic, f"sqlite:///{file}")
