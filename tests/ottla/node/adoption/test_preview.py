"""Files whose changes stay in memory behave like real files, and leave the disk as it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ottla.node.adoption.preview import PreviewFiles
from ottla.storage.errors import StorageFailure
from ottla.storage.files import Files, OsFiles
from ottla.storage.log.log import Log
from ottla.storage.log_config import LogConfig
from tests.storage.logs_for_tests import append, batch, filled, offsets, open_at, read_all


def names_and_contents(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def seen(files: Files, directory: str) -> dict[str, bytes | None]:
    """Everything that a caller sees."""
    sizes = files.list_sizes(directory)
    found = {name: files.read(f"{directory}/{name}") for name in files.list_dir(directory) if name in sizes}
    assert sizes == {name: len(data or b"") for name, data in found.items()}
    assert all(files.size(f"{directory}/{name}") == size for name, size in sizes.items())
    for name, data in found.items():
        for offset, count in ((0, 1), (1, 3), (2, 100), (50, 1)):
            assert files.pread(f"{directory}/{name}", offset, count) == (data or b"")[offset : offset + count]
    return found


#: Calls, by the name of the method, with paths below the directory and other arguments.
CHANGES: dict[str, list[tuple[object, ...]]] = {
    "replaces a file": [("write_atomic", "a", b"new")],
    "writes into a file": [("pwrite", "a", 2, b"XY")],
    "writes behind its end": [("pwrite", "a", 9, b"XY")],
    "creates a file": [("create", "new")],
    "creates one that exists": [("create", "a")],
    "removes a file": [("remove", "a")],
    "removes and creates it": [("remove", "a"), ("create", "a")],
    "cuts a file": [("truncate", "a", 3)],
    "cuts a file and renames it": [("truncate", "a", 3), ("rename", "a", "c")],
    "renames over another": [("rename", "a", "b")],
    "renames over what was written and cut": [
        ("write_atomic", "b", b"12345"),
        ("truncate", "b", 2),
        ("rename", "a", "b"),
    ],
    "renames there and back": [("rename", "a", "c"), ("rename", "c", "a")],
    "writes, cuts and renames": [("write_atomic", "n", b"12345"), ("truncate", "n", 2), ("rename", "n", "a")],
}


def change(files: Files, directory: Path, calls: list[tuple[object, ...]]) -> None:
    for method, *arguments in calls:
        getattr(files, str(method))(*(f"{directory}/{a}" if isinstance(a, str) else a for a in arguments))


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_seen_and_not_made(tmp_path: Path, name: str) -> None:
    for folder in ("preview", "real"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a").write_bytes(b"0123456")
        (tmp_path / folder / "b").write_bytes(b"other")
    preview, before = PreviewFiles(), names_and_contents(tmp_path / "preview")
    change(preview, tmp_path / "preview", CHANGES[name])
    change(OsFiles(), tmp_path / "real", CHANGES[name])
    assert seen(preview, str(tmp_path / "preview")) == seen(OsFiles(), str(tmp_path / "real"))
    assert names_and_contents(tmp_path / "preview") == before


def test_a_renamed_directory_is_seen_under_its_new_name_alone(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / "a").write_bytes(b"0")
    files, at = PreviewFiles(), str(tmp_path)
    files.rename(f"{at}/t-0", f"{at}/t-0-stray")
    assert files.list_dir(at) == ["t-0-stray"] and files.read(f"{at}/t-0-stray/a") == b"0"
    assert files.read(f"{at}/t-0/a") is None and not files.exists(f"{at}/t-0")
    assert os.listdir(tmp_path) == ["t-0"]


def test_a_mapping_is_written_in_memory_and_is_not_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"0123456789")
    mapped = PreviewFiles().map(str(path), 4096, True)
    mapped.zero(2, 4)
    mapped.write(8, b"XY")
    assert bytes(mapped.buffer[:10]) == b"01\0\x004567XY" and path.read_bytes() == b"0123456789"
    with pytest.raises(StorageFailure, match="a preview appends nothing"):
        mapped.ensure(11)


@pytest.mark.parametrize("cut", [1, 40, 100])
def test_recovery_comes_to_the_same_end_in_a_preview_and_on_the_disk(tmp_path: Path, cut: int) -> None:
    def opened(files: OsFiles) -> Log:
        return open_at(tmp_path / "t-0", files=files, config=LogConfig(segment_bytes=300), clean=False)

    log = opened(OsFiles())
    for _ in range(20):
        append(log, batch())
    del log  # the state after kill -9
    *_, newest = sorted((tmp_path / "t-0").glob("*.log"))
    data = newest.read_bytes().rstrip(b"\0")
    newest.write_bytes(data[:-cut])
    before = names_and_contents(tmp_path)
    found = offsets(opened(PreviewFiles()))
    assert names_and_contents(tmp_path) == before
    assert found == offsets(opened(OsFiles())) and len(found) < 20


def test_records_are_read_in_a_preview_as_from_the_disk(tmp_path: Path) -> None:
    filled(tmp_path / "t-0")
    expected = read_all(open_at(tmp_path / "t-0", clean=True))
    assert len(expected) > 4_000
    assert read_all(open_at(tmp_path / "t-0", clean=True, files=PreviewFiles())) == expected
