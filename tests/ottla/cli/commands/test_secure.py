"""`ottla secure init` makes the files with which nodes and clients start."""

from __future__ import annotations

import subprocess
from pathlib import Path

from cryptography import x509

from ottla.server.config.node_config import NodeConfig
from ottla.server.config.properties_file import read_properties
from ottla.server.tls.contexts import server_context
from ottla.server.tls.stores import TlsProperties
from ottla.storage.files import OsFiles
from tests.ottla.conftest import command, run_here

NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "SASL_SSL://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:9093",
}


def init(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command("secure", "init", *words), capture_output=True, text=True, timeout=60)


def test_the_properties_of_a_node_are_complete_and_its_key_can_be_used(tmp_path: Path) -> None:
    done = init(str(tmp_path / "s"), "--node", "east=east.example", "--node", "west=west.example", "--user", "alice")
    assert done.returncode == 0, done.stderr
    path = tmp_path / "s" / "nodes" / "west.properties"
    config = NodeConfig({**NODE, **read_properties(path.read_bytes(), str(path))})
    properties = TlsProperties(config.values, OsFiles().read)
    made = server_context(properties, "none")
    assert made.keys is not None
    assert config.inter_broker_listener == "SASL_SSL"


def test_no_password_is_printed_and_a_second_time_changes_nothing(tmp_path: Path) -> None:
    done = init(str(tmp_path / "s"))
    users = (tmp_path / "s" / "users").read_text()
    password = users.partition("password=")[2].partition("]")[0]
    assert password and password not in done.stdout + done.stderr
    again = init(str(tmp_path / "s"))
    assert again.returncode == 2 and "is not empty" in again.stderr
    assert (tmp_path / "s" / "users").read_text() == users


def test_a_later_node_gets_a_certificate_of_the_same_authority_for_its_own_host(tmp_path: Path) -> None:
    directory = tmp_path / "s"
    assert init(str(directory), "--node", "east=east.example").returncode == 0
    authority = x509.load_pem_x509_certificate((directory / "ca.pem").read_bytes())
    done = subprocess.run(
        command("secure", "issue", str(directory), "west=west.example"), capture_output=True, text=True
    )
    assert done.returncode == 0 and "nodes/west.pem" in done.stderr, done.stderr
    issued = x509.load_pem_x509_certificate((directory / "nodes/west.pem").read_bytes())
    issued.verify_directly_issued_by(authority)
    names = issued.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "west.example" in names.get_values_for_type(x509.DNSName)
    for again in ("west", "../west"):
        assert subprocess.run(command("secure", "issue", str(directory), again), capture_output=True).returncode == 2


def test_a_node_that_is_named_twice_would_have_the_hosts_of_one_alone(tmp_path: Path) -> None:
    done = run_here("secure", "init", str(tmp_path / "s"), "--node", "a=one", "--node", "a=two")
    assert done.code == 2 and "--node a is there twice" in done.err
    assert not (tmp_path / "s").exists()


def test_none_is_renewed_if_one_of_the_named_is_missing(tmp_path: Path) -> None:
    directory = tmp_path / "s"
    assert run_here("secure", "init", str(directory), "--node", "a=one").code == 0
    before = (directory / "nodes" / "a.pem").read_bytes()
    for missing, path in (("b", directory / "nodes" / "b.pem"), (f"{tmp_path}/c.pem", tmp_path / "c.pem")):
        done = run_here("secure", "renew", str(directory), "a", missing)
        assert (done.code, done.err.splitlines()[0]) == (2, f"ottla: there is no {path}")
    assert (directory / "nodes" / "a.pem").read_bytes() == before
    done = run_here("secure", "renew", str(directory), "a", str(directory / "nodes" / "a.pem"))
    assert done.code == 0 and done.out.count("install -o root -g ottla -m 640 a.pem") == 2
    assert (directory / "nodes" / "a.pem").read_bytes() != before


def test_a_directory_that_is_not_of_init_has_nothing_to_renew_or_to_issue(tmp_path: Path) -> None:
    done = run_here("secure", "renew", str(tmp_path))
    assert done.code == 2 and f"{tmp_path}/nodes has no certificates" in done.err
    done = run_here("secure", "issue", str(tmp_path), "b=h")
    assert done.code == 1 and "`ottla secure init` makes the authority" in done.err


def test_users_beside_admin_see_how_they_get_permissions(tmp_path: Path) -> None:
    done = run_here("secure", "init", str(tmp_path / "s"), "--user", "ann", "--user", "ann")
    assert done.code == 0 and done.out.count("ann may do nothing yet; for a topic and a group:") == 1
    assert f"ottla acl add ann read group:GROUP --config {tmp_path}/s/clients/admin.properties" in done.out
    assert "may do nothing yet" not in run_here("secure", "init", str(tmp_path / "t")).out
