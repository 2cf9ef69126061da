"""`ottla init` makes one bundle for each machine. It is unpacked and installed as root, for a node that runs as another user."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest

from ottla.__main__ import main
from ottla.server.config.properties_file import read_properties
from ottla.storage.directories.log_dirs import read_meta_properties
from ottla.storage.files import OsFiles
from tests.another_user import OTHER_USER, as_other_user, skip_without_another_user, write_program
from tests.unpacking import unpack


@pytest.fixture
def machine() -> Iterator[Path]:
    """A folder that another user may enter; pytest's folder belongs to root only."""
    folder = Path(mkdtemp())
    folder.chmod(0o755)
    # The program of a machine. Each user may run it.
    write_program(folder / "ottla")
    yield folder
    shutil.rmtree(folder)


def bundles(machine: Path, *more: str) -> Path:
    """Make the files of three nodes, and unpack the bundle of the first one as on its machine."""
    made = machine / "cluster"
    options = ("--etc", str(machine / "etc"), "--data", f"{machine}/data/a,{machine}/data/b")
    assert main(["init", str(made), "--nodes", "kafka-1,kafka-2,kafka-3", *options, *more]) == 0
    with tarfile.open(made / "nodes" / "kafka-1.tar") as tar:
        unpack(tar, machine, keeps_owners=True)
    (machine / "data").mkdir(mode=0o755)
    return machine / "kafka-1"


def install(machine: Path, *arguments: str, user: str = OTHER_USER) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OTTLA_USER": user, "OTTLA": str(machine / "ottla")}
    command = ["sh", str(machine / "kafka-1" / "install"), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, cwd="/")


def test_a_bundle_belongs_to_root_and_its_secrets_are_for_root_alone(machine: Path) -> None:
    bundles(machine, "--secure")
    with tarfile.open(machine / "cluster" / "nodes" / "kafka-1.tar") as tar:
        found = {member.name: (member.uid, member.gid, member.uname, oct(member.mode)) for member in tar}
    own = (0, 0, "root")
    assert found == {
        "kafka-1": (*own, "0o700"),
        "kafka-1/install": (*own, "0o700"),
        **{f"kafka-1/{name}": (*own, "0o600") for name in ("server.properties", "kafka-1.pem", "ca.pem", "users")},
    }
    assert oct((machine / "cluster" / "nodes" / "kafka-1.tar").stat().st_mode & 0o777) == "0o600"


def test_a_broker_that_is_no_controller_gets_no_users_and_formats_nothing(machine: Path) -> None:
    assert main(["init", str(machine / "c"), "--nodes", "4", "--secure"]) == 0
    with tarfile.open(machine / "c" / "nodes" / "node-4.tar") as tar:
        assert "node-4/users" not in tar.getnames()
        script = tar.extractfile("node-4/install")
        assert script is not None and b" format " not in script.read()


def test_a_bundle_is_installed_for_a_node_that_runs_as_another_user(machine: Path) -> None:
    skip_without_another_user()
    bundles(machine, "--secure", "--user", "alice")
    done = install(machine)
    assert done.returncode == 0, done.stderr
    group = pwd.getpwnam(OTHER_USER).pw_gid
    etc = machine / "etc"
    assert (etc.stat().st_gid, oct(etc.stat().st_mode & 0o777)) == (group, "0o750")
    for name in ("server.properties", "kafka-1.pem", "ca.pem"):
        found = (etc / name).stat()
        assert (found.st_uid, found.st_gid, oct(found.st_mode & 0o777)) == (0, group, "0o640"), name
        assert as_other_user("cat", str(etc / name)).returncode == 0, "the node's user reads it"
    assert not (etc / "users").exists(), "passwords are for the format alone"
    properties = read_properties((etc / "server.properties").read_bytes(), "file")
    for part in ("a", "b"):
        meta = read_meta_properties(OsFiles(), str(machine / "data" / part))
        assert meta is not None and (meta.cluster_id, meta.node_id) == (properties["cluster.id"], 1)
        assert (machine / "data" / part / "meta.properties").stat().st_uid == pwd.getpwnam(OTHER_USER).pw_uid
    again = install(machine)
    assert again.returncode == 0 and "already formatted" in again.stderr, "a second time changes nothing"


def test_a_node_that_lost_its_disk_is_installed_as_one_that_joins(machine: Path) -> None:
    skip_without_another_user()
    bundles(machine)
    assert install(machine).returncode == 0
    snapshot = machine / "data" / "a" / "__cluster_metadata-0"
    assert snapshot.exists(), "the first voters of a new cluster"
    shutil.rmtree(machine / "data")
    (machine / "data").mkdir(mode=0o755)
    assert install(machine, "--rejoin").returncode == 0
    assert read_meta_properties(OsFiles(), str(machine / "data" / "a")) is not None and not snapshot.exists()


def test_what_is_wrong_with_a_machine_is_said_before_anything_is_installed(machine: Path) -> None:
    skip_without_another_user()
    bundle, etc = bundles(machine, "--secure"), machine / "etc"
    nothing = install(machine, user="no-such-user")
    assert nothing.returncode == 1 and "useradd" in nothing.stderr
    assert install(machine, "--format").returncode == 1
    (machine / "ottla").chmod(0o700)
    no_program = install(machine)
    assert no_program.returncode == 1 and f"{OTHER_USER} cannot run" in no_program.stderr
    (machine / "ottla").chmod(0o755)
    (bundle / "ca.pem").rename(machine / "elsewhere")
    assert "is not complete" in install(machine).stderr
    (machine / "elsewhere").rename(bundle / "ca.pem")
    assert not etc.exists() and not list((machine / "data").iterdir())
    etc.mkdir()
    (etc / "server.properties").write_text("node.id=7\n")
    other = install(machine)
    assert other.returncode == 1 and "is there, and differs" in other.stderr
    assert [each.name for each in etc.iterdir()] == ["server.properties"]


def test_root_does_not_format_in_a_directory_of_another_user(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    skip_without_another_user()
    bundle = bundles(machine)
    (machine / "data" / "a").mkdir()
    shutil.chown(machine / "data" / "a", OTHER_USER)
    assert main(["format", str(bundle / "server.properties"), "--no-initial-controllers"]) == 2
    assert f"runuser -u {OTHER_USER} -- ottla format" in capsys.readouterr().err
    assert not list((machine / "data" / "a").iterdir()) and not (machine / "data" / "b").exists()
