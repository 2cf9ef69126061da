"""A folder and an S3 server as stores: both fulfil the same contract."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.needs import needs_packages

needs_packages("obstore", "moto", "flask")

from ottla.tables.directory_store import UNFINISHED, DirectoryStore
from ottla.tables.object_store import ObjectStore
from ottla.tables.store import Store, StoreFailure, StoreRefused
from tests.ottla.tables.conftest import BUCKET, S3_KEYS, S3Server


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "folder":
        return DirectoryStore(str(tmp_path / "lake"))
    return ObjectStore(f"s3://{BUCKET}/{tmp_path.name}", {**S3_KEYS, "endpoint": request.getfixturevalue("s3")})


def test_a_conditional_put_whose_answer_is_lost_has_written(lossy_s3: S3Server, tmp_path: Path) -> None:
    """The library retries, and finds its own object there."""
    store = ObjectStore(f"s3://{BUCKET}/{tmp_path.name}", lossy_s3.options)
    lossy_s3.losing.is_on = True
    assert store.put_if_absent("h/1", b"ours") and lossy_s3.losing.lost == 1
    assert not store.put_if_absent("h/1", b"theirs") and store.get("h/1") == b"ours"


def test_an_object_whose_parts_are_made_one_by_one_is_there_whole_or_not_at_all(store: Store) -> None:
    parts = [bytes([number]) * 3_000_000 for number in range(4)]
    store.put_parts("p/q", iter(parts))
    assert store.get("p/q") == b"".join(parts)

    def failing() -> Iterator[bytes]:
        yield from parts
        raise ValueError("the log is damaged")

    with pytest.raises((StoreFailure, ValueError), match="the log is damaged"):
        store.put_parts("p/r", failing())
    assert store.get("p/r") is None


def test_an_object_is_written_whole_read_in_ranges_and_replaced(store: Store) -> None:
    data = bytes(range(256)) * 100
    store.put("a/b", data)
    assert store.get("a/b") == data and store.size("a/b") == len(data)
    assert store.get_range("a/b", 250, 12) == data[250:262]
    store.put("a/b", memoryview(b"new"))
    assert store.get("a/b") == b"new"


def test_of_several_writers_one_has_written_what_was_absent(store: Store) -> None:
    won: list[int] = []
    writers = [
        threading.Thread(target=lambda n=n: store.put_if_absent("c/1", b"%d" % n) and won.append(n)) for n in range(6)
    ]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    assert len(won) == 1 and store.get("c/1") == b"%d" % won[0]


def test_names_are_listed_in_their_order_and_after_a_name(store: Store) -> None:
    for name in ("d/00001/b", "d/00000/z", "d/00001.x", "d/00001/a", "d/00001/c", "e/x"):
        store.put(name, b"12")
    every = ["d/00000/z", "d/00001.x", "d/00001/a", "d/00001/b", "d/00001/c"]
    assert [each.name for each in store.list("d")] == every
    assert [each.name for each in store.list("d", "d/00001.")] == every[1:]
    assert [each.name for each in store.list("d", "d/00001/a")] == every[3:]
    assert [(each.name, each.size) for each in store.list("d/00001", "d/00001/a~")] == [
        ("d/00001/b", 2),
        ("d/00001/c", 2),
    ]
    assert [*store.list("nothing")] == []
    assert store.folders("d") == ["00000", "00001"]
    assert store.folders("nothing") == store.folders("e") == []


def test_a_copy_is_there_when_its_source_is_deleted(store: Store) -> None:
    store.put("f/1", b"rows")
    store.copy("f/1", "g/1")
    store.copy("f/1", "g/1")
    store.delete("f/1")
    store.delete("f/1")
    assert (store.get("f/1"), store.size("f/1"), store.get("g/1")) == (None, None, b"rows")
    assert [each.name for each in store.list("g")] == ["g/1"]


def test_what_a_killed_writer_left_is_not_listed(tmp_path: Path) -> None:
    store = DirectoryStore(str(tmp_path))
    store.put("data/1", b"1")
    (tmp_path / "data" / f"{UNFINISHED}7").write_bytes(b"half")
    assert [each.name for each in store.list("data")] == ["data/1"]


def test_a_folder_that_cannot_be_written_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("a file")
    with pytest.raises(StoreFailure):
        DirectoryStore(str(tmp_path / "lake")).put("a", b"")


def test_a_store_that_does_not_answer_is_a_failure_and_wrong_options_are_refused(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
    with pytest.raises(StoreFailure):
        ObjectStore("s3://lake/x", {**S3_KEYS, "endpoint": address}).get("a")
    with pytest.raises(StoreRefused):
        ObjectStore("s3://lake/x", {"no_such_option": "1"})
    with pytest.raises(StoreRefused):
        ObjectStore("ftp://lake/x", {})
