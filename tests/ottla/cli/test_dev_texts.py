"""`ottla dev` in the test's own process: what it rejects before it makes a file, and what it prints about a running cluster."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.cli import dev_texts
from ottla.cli.commands import dev
from ottla.cli.errors import USAGE, CommandFailed
from ottla.local.nodes import LocalNode, NodeProcess
from ottla.local.secure_files import SecureFiles
from tests.ottla.conftest import run_here


class Child:
    """The process of a node, which ends when the test wants."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        return self.returncode


def nodes(count: int, port: int = 19092) -> list[LocalNode]:
    return [
        LocalNode(
            number, port + number - 1, port + 99 + number, port + 199 + number, f"/d/node-{number}",
            process=cast(NodeProcess, Child(100 + number)),
        )
        for number in range(1, count + 1)
    ]  # fmt: skip


def printed(
    capsys: pytest.CaptureFixture[str], count: int, *, port: int = 19092, files: Any = None, **services: str
) -> str:
    dev_texts.print_nodes(nodes(count, port), False, 1.25, files, services)
    return capsys.readouterr().out


@pytest.fixture
def secure(tmp_path: Path) -> SecureFiles:
    return SecureFiles(str(tmp_path), {"admin": "secret"})


# -- What is refused


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--nodes 0", "--nodes 0 is not between 1 and"),
        ("--nodes 100000", "--nodes 100000 is not between 1 and"),
        ("--base-port -1", "--base-port -1 is not between 1 and"),
        ("--base-port 65536", "--base-port 65536 is not between 1 and"),
        ("--faults 65536", "--faults 65536 is no port"),
        ("--faults -2", "--faults -2 is no port"),
    ],
)
def test_numbers_that_cannot_be_are_refused_before_a_folder_is_made(tmp_path: Path, words: str, said: str) -> None:
    folder = tmp_path / "never"
    done = run_here("dev", "--dir", str(folder), *words.replace(" -", "=-").split())
    assert (done.code, done.out) == (USAGE, "") and said in done.err
    assert not folder.exists()


def test_an_extra_that_is_not_installed_is_named_with_what_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.server.extras.lacking", lambda extra: f"package-of-{extra}")
    for option, extra in (
        ("--console", "console"),
        ("--registry", "registry"),
        ("--tables", "tables"),
        ("--faults", "testing"),
        ("--tiers=s3://bucket", "tables"),
    ):
        done = run_here("dev", "--dir", str(tmp_path / "never"), option)
        named = option.partition("=")[0]
        assert done.code != 0 and named in done.err and f"needs the package package-of-{extra}" in done.err, done.err
    assert not (tmp_path / "never").exists()


def test_ports_that_are_taken_are_all_named() -> None:
    with socket.socket() as one, socket.socket() as other:
        for each in (one, other):
            each.bind(("127.0.0.1", 0))
            each.listen()
        ports = sorted(each.getsockname()[1] for each in (one, other))
        free = nodes(2)
        free[0].port, free[1].port = ports
        with pytest.raises(CommandFailed) as refused:
            dev.check_ports(free)
        assert str(refused.value).startswith(f"ports {ports[0]}, {ports[1]} of 127.0.0.1 in use")
        assert "--base-port 0" in (refused.value.remedy or "")


@pytest.mark.parametrize("has", ["a file", "another cluster", "damage"])
def test_a_folder_that_cannot_be_a_clusters_is_left_as_it_is(tmp_path: Path, has: str) -> None:
    folder = tmp_path / "d"
    if has == "a file":
        folder.write_text("mine")
    else:
        folder.mkdir()
        (folder / "cluster.properties").write_text(
            "cluster.id=c\nnodes=3\n" if has == "another cluster" else "nodes=x\n"
        )
    before = sorted(tmp_path.rglob("*"))
    done = run_here("dev", "--dir", str(folder), "--nodes", "1", "--base-port", "0")
    assert done.code != 0 and str(folder) in done.err and "--dir" in done.err, done.err
    assert sorted(tmp_path.rglob("*")) == before


# -- What it prints


def test_commands_to_type_next_name_the_cluster_unless_it_is_at_the_usual_port(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = printed(capsys, 1)
    assert "1 node ready in 1.25 s" in said and "topic create hello -b 127.0.0.1:19092\n" in said
    assert "can die" not in said, "of one node none can"
    said = printed(capsys, 3, port=9092)
    assert "3 nodes ready" in said and "topic create hello\n" in said
    assert "bootstrap.servers=127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094" in said
    assert "kill -9 103" in said, "the last, so that the port of the first goes on"


def test_where_remote_segments_lie_is_said_with_what_makes_some(capsys: pytest.CaptureFixture[str]) -> None:
    said = printed(capsys, 1, tiers_at="/old")
    assert "Remote segments lie in /old: of topics with remote.storage.enable=true\n" in said
    assert "topic create old -b 127.0.0.1:19092 --set remote.storage.enable=true\n" in said


@pytest.mark.parametrize(
    ("named", "is_at"),
    [("", "/d/tiers"), ("/other", "/other"), ("s3://bucket/prefix", "s3://bucket/prefix")],
)
def test_remote_segments_lie_beside_the_nodes_or_where_they_are_said_to(named: str, is_at: str) -> None:
    assert dev.tier_location(named, "/d") == is_at


def test_a_secure_cluster_names_files_and_prints_no_password(
    capsys: pytest.CaptureFixture[str], secure: SecureFiles
) -> None:
    services = dict.fromkeys(("console", "registry", "tables", "faults"), "http://here/") | {"tables_at": "/lake"}
    said = printed(capsys, 1, files=secure, **services)
    for text in (
        f"-b 127.0.0.1:19092 --config {secure.client_file()}\n",
        f"any user, with the password in {secure.console_token()}\n",
        f"with the login in {secure.registry_client()} (--registry-config)\n",
        f"with Authorization: Bearer and the token in {secure.console_token()}\n",
        "they lie in /lake; `ottla sql` asks them\n",
    ):
        assert text in said, said
    for file in (secure.console_token(), secure.registry_client()):
        assert os.stat(file).st_mode & 0o077 == 0
    assert "secret" not in said and Path(secure.console_token()).read_text().strip() not in said


def test_programs_get_the_same_as_one_line_of_json(capsys: pytest.CaptureFixture[str], secure: SecureFiles) -> None:
    dev_texts.print_nodes(nodes(2), True, 1, None, {"registry": "http://here"})
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line) == {
        "bootstrap": "127.0.0.1:19092,127.0.0.1:19093",
        "nodes": [
            {"id": n, "pid": 100 + n, "port": 19091 + n, "admin": 19291 + n, "dir": f"/d/node-{n}"} for n in (1, 2)
        ],
        "registry": "http://here",
    }
    dev_texts.print_nodes(nodes(1), True, 1, secure, {})
    found = json.loads(capsys.readouterr().out)
    assert (found["config"], found["librdkafka"]) == (secure.client_file(), secure.librdkafka_file())
    assert not any(name.endswith(("_token", "_config")) for name in found), "there is nothing that wants them"


def test_the_command_that_is_printed_can_be_typed_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "ottla"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.chdir(tmp_path.parent)
    monkeypatch.setattr(sys, "argv", [str(script)])
    monkeypatch.setenv("PATH", "/bin")
    assert dev_texts.command() == f"{tmp_path.name}/ottla", "a clone's, in its virtual environment"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert dev_texts.command() == "ottla"
    monkeypatch.setattr(sys, "argv", ["/somewhere/pytest"])
    assert dev_texts.command() == "ottla"


# -- Nodes that end


def test_a_node_that_ends_is_said_once_and_again_after_it_was_started(capsys: pytest.CaptureFixture[str]) -> None:
    running = nodes(2)
    child = cast(Child, running[1].process)
    dev.look(running)
    assert capsys.readouterr().err == ""
    child.returncode = -9
    dev.look(running)
    dev.look(running)
    assert capsys.readouterr().err == "ottla dev: node 2 has ended (-9)\n"
    running[1].process = cast(NodeProcess, child := Child(7))
    dev.look(running)
    child.returncode = 1
    dev.look(running)
    assert capsys.readouterr().err == "ottla dev: node 2 has ended (1)\n"


def test_it_ends_with_its_last_node_and_not_with_another(monkeypatch: pytest.MonkeyPatch) -> None:
    running = nodes(2)
    ends = [cast(Child, node.process) for node in running]

    def wait(signals: list[int], seconds: float) -> None:
        next(child for child in ends if child.returncode is None).returncode = 1

    monkeypatch.setattr(dev.signal, "sigtimedwait", wait, raising=False)
    assert dev.watch(running) == 1
    assert [child.returncode for child in ends] == [1, 1]


def test_nodes_go_on_when_no_reader_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(text: str) -> int:
        raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", SimpleNamespace(write=closed, flush=lambda: None))
    dev_texts.print_ready(nodes(2), nodes(2)[0])
    monkeypatch.undo()


def test_one_node_serves_without_a_word_about_it(capsys: pytest.CaptureFixture[str]) -> None:
    dev_texts.print_ready(nodes(1), nodes(1)[0])
    dev_texts.print_ready(several := nodes(2), several[1])
    assert capsys.readouterr().err == "ottla dev: node 2 serves\n"
