"""The directory of keys and passwords for development, and what is refused."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from ottla.client.errors import Failure
from ottla.local.secure_files import ADMIN, make, opened


def test_files_with_secrets_are_for_their_owner_only(tmp_path: Path) -> None:
    files = make(str(tmp_path / "s"), {"node-1": ["localhost"]}, ["alice"])
    modes = {
        os.path.relpath(path, files.directory): stat.S_IMODE(path.stat().st_mode)
        for path in Path(files.directory).rglob("*")
        if path.is_file()
    }
    assert modes.pop("ca.pem") == 0o644
    assert set(modes.values()) == {0o600}
    assert {f"clients/{user}.{kind}" for user in (ADMIN, "alice") for kind in ("properties", "librdkafka", "py")} < set(
        modes
    )


def test_what_was_made_is_found_again(tmp_path: Path) -> None:
    assert opened(str(tmp_path / "s")) is None
    files = make(str(tmp_path / "s"), {"node-1": []}, ["alice"])
    assert opened(files.directory) == files


def test_a_directory_with_something_in_it_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("in use")
    with pytest.raises(Failure, match="is not empty"):
        make(str(tmp_path), {"node-1": []})
    assert (tmp_path / "ca.pem").read_text() == "in use"


@pytest.mark.parametrize("name", ["", "a/b", 'a"b', "a b", "node", "a;b"])
def test_a_name_that_files_or_jaas_text_could_not_have_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(Failure, match="cannot be the name"):
        make(str(tmp_path / "s"), {"node-1": []}, [name])
    assert not (tmp_path / "s").exists()
