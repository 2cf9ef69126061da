"""A catalog of files only knows the newest version without a listing, and is never wrong about it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.needs import needs_packages

needs_packages("pyarrow", "pyiceberg")

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from ottla.tables.directory_store import DirectoryStore
from ottla.tables.file_catalog import FileCatalog
from ottla.tables.store import StoredObject

NAME = ("ottla", "orders")
LATER = 1 << 50


class CountedStore(DirectoryStore):
    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self.listings = 0

    def list(self, folder: str, after: str = "") -> Iterator[StoredObject]:
        self.listings += 1
        return super().list(folder, after)


@pytest.fixture
def store(tmp_path: Path) -> CountedStore:
    return CountedStore(str(tmp_path))


def made(store: DirectoryStore) -> FileCatalog:
    catalog = FileCatalog(store)
    catalog.create_table(NAME, Schema(NestedField(1, "offset", LongType(), required=False)))
    return catalog


def commit(table: Table, value: str) -> None:
    with table.transaction() as transaction:
        transaction.set_properties({"is": value})


def test_commits_after_the_first_one_list_nothing(store: CountedStore) -> None:
    catalog = made(store)
    listings = store.listings
    for number in range(5):
        commit(catalog.load_table(NAME), str(number))
    assert catalog.load_table(NAME).properties["is"] == "4"
    assert store.listings == listings


def test_what_others_have_committed_and_swept_is_found(store: CountedStore) -> None:
    catalog, other = made(store), FileCatalog(store)
    commit(catalog.load_table(NAME), "ours")
    for number in range(5):
        commit(other.load_table(NAME), f"other {number}")
    assert other.sweep_versions(NAME, 1, LATER) == 5, "the version that the first one knows, and the next, are gone"
    assert catalog.load_table(NAME).properties["is"] == "other 4"


def test_a_version_that_a_late_writer_has_put_into_the_place_of_one_that_was_swept_is_not_the_newest(
    store: CountedStore,
) -> None:
    catalog, other = made(store), FileCatalog(store)
    commit(catalog.load_table(NAME), "ours")
    known = catalog.load_table(NAME).metadata_location.removeprefix(store.url + "/")
    for number in range(5):
        commit(other.load_table(NAME), f"other {number}")
    other.sweep_versions(NAME, 1, LATER)
    body = (other.load_table(NAME).metadata.model_dump_json()).encode()
    assert store.put_if_absent(known, body), "it was swept"
    assert catalog.load_table(NAME).properties["is"] == "other 4"


def test_a_table_that_was_dropped_is_not_there(store: CountedStore) -> None:
    catalog = made(store)
    commit(catalog.load_table(NAME), "ours")
    FileCatalog(store).drop_table(NAME)
    with pytest.raises(NoSuchTableError):
        catalog.load_table(NAME)
