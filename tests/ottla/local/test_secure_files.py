"""The directory of keys and passwords for development, and the requests that are rejected."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from cryptography import x509

from ottla.__main__ import main
from ottla.client.failures import Failure
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


def test_a_renewed_certificate_has_the_names_owner_and_mode_of_the_old_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory, elsewhere = tmp_path / "s", tmp_path / "etc.pem"
    make(str(directory), {"node-1": ["node-1", "127.0.0.1"]})
    store = directory / "nodes" / "node-1.pem"
    elsewhere.write_bytes(store.read_bytes())
    elsewhere.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(elsewhere, 0, 65534)
    was, before = elsewhere.stat(), x509.load_pem_x509_certificate(elsewhere.read_bytes())
    assert main(["secure", "renew", str(directory), str(elsewhere)]) == 0
    found, after = elsewhere.stat(), x509.load_pem_x509_certificate(elsewhere.read_bytes())
    assert (found.st_uid, found.st_gid, found.st_mode) == (was.st_uid, was.st_gid, was.st_mode)
    assert after.subject == before.subject and after.serial_number != before.serial_number
    names = [each.extensions.get_extension_for_class(x509.SubjectAlternativeName).value for each in (before, after)]
    assert names[0] == names[1] and [str(each.value) for each in names[1]] == ["node-1", "127.0.0.1"]
    assert main(["secure", "renew", str(directory)]) == 0
    assert "install -o root -g ottla -m 640 node-1.pem /etc/ottla/node-1.pem" in capsys.readouterr().out
    assert store.read_bytes() != elsewhere.read_bytes() and not list(tmp_path.rglob("*.new"))


def test_what_cannot_be_renewed_stays_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "s"
    make(str(directory), {"node-1": []})
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")
    for node, says in (
        (str(broken), "cannot be renewed"),
        ("node-2", "there is no"),
        ("/no/such.pem", "there is no"),
    ):
        assert main(["secure", "renew", str(directory), node]) != 0
        assert says in capsys.readouterr().err
    assert broken.read_text() == "no certificate"
    assert main(["secure", "renew", str(tmp_path)]) == 2
    (directory / "ca-key.pem").unlink()
    before = (directory / "nodes" / "node-1.pem").read_bytes()
    assert main(["secure", "renew", str(directory), "node-1"]) != 0
    assert "makes the authority" in capsys.readouterr().err
    assert (directory / "nodes" / "node-1.pem").read_bytes() == before
