"""Connections of the commands: protocols that a listener does not have, files of properties, and named clusters."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.cli.errors import FAILED, OK, UNHEALTHY, USAGE
from ottla.testing import Cluster
from tests.ottla.cli.commands.conftest import Run
from tests.ottla.conftest import Cli, run_here


@pytest.fixture(scope="module")
def secure() -> Iterator[Cluster]:
    with Cluster(1, secure=True) as cluster:
        yield cluster


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs `ottla` as for a user without any settings."""
    for name in ("OTTLA_BOOTSTRAP", "OTTLA_CONFIG", "OTTLA_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "configuration"))
    return run_here


def changed(secure: Cluster, path: Path, before: str, after: str) -> str:
    """Write a changed copy of the admin's client file, and return its path."""
    text = Path(secure.client_file).read_text()
    assert before in text
    path.write_text(text.replace(before, after))
    return str(path)


def test_a_listener_that_expects_tls_and_a_login_is_recognised(secure: Cluster, run: Run, tmp_path: Path) -> None:
    bare = run("topic", "list", "-b", secure.bootstrap)
    assert bare.code == FAILED and "expects TLS or a login: --config FILE" in bare.err
    tls_only = changed(secure, tmp_path / "ssl", "SASL_SSL", "SSL")
    assert "expects a login" in run("topic", "list", "-b", secure.bootstrap, "--config", tls_only).err
    in_the_clear = changed(secure, tmp_path / "clear", "SASL_SSL", "SASL_PLAINTEXT")
    assert "expects TLS: security" in run("topic", "list", "-b", secure.bootstrap, "--config", in_the_clear).err
    password = changed(secure, tmp_path / "password", 'password="', 'password="x')
    wrong = run("topic", "list", "-b", secure.bootstrap, "--config", password)
    assert wrong.code == FAILED and "name and password" in wrong.err and "Login at" not in wrong.err
    assert run("topic", "list", "-b", secure.bootstrap, "--config", secure.client_file).code == OK


def test_a_listener_without_security_is_recognised(secure: Cluster, cli: Cli, run: Run, tmp_path: Path) -> None:
    tls = run("topic", "list", "-b", cli.bootstrap, "--config", secure.client_file)
    assert tls.code == FAILED and "does this listener speak TLS?" in tls.err
    login = changed(secure, tmp_path / "clear", "SASL_SSL", "SASL_PLAINTEXT")
    assert "this listener has no login" in run("topic", "list", "-b", cli.bootstrap, "--config", login).err


def test_a_file_with_a_misspelt_name_or_without_any_of_a_client_is_refused(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    for text, said in [
        ("securty.protocol=SSL\n", "did you mean 'security.protocol'?"),
        ("ssl.truststore.locaton=/x\nacks=all\n", "did you mean 'ssl.truststore.location'?"),
        ("root:x:0:0:root:/root:/bin/bash\n", "root is no property of a connection"),
    ]:
        path.write_text(text)
        refused = run("topic", "list", "-b", "localhost:1", "--config", str(path))
        assert refused.code == USAGE and said in refused.err
    path.write_text("acks=all\nlinger.ms=5\n")
    assert "Connection refused" in run("topic", "list", "-b", "localhost:1", "--config", str(path)).err


def test_commands_go_to_the_context_that_is_used_unless_an_option_names_another(
    cli: Cli, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("context", "set", "here", "-b", cli.bootstrap).code == OK
    assert run("context", "set", "away", "-b", "localhost:1").code == OK
    assert run("cluster", "health").code == OK
    assert run("cluster", "health", "--context", "away").code == FAILED
    assert run("context", "use", "away").code == OK
    assert run("cluster", "health").code == FAILED
    assert run("cluster", "health", "-b", cli.bootstrap).code == OK
    monkeypatch.setenv("OTTLA_CONTEXT", "here")
    assert run("cluster", "health").code == OK
    unknown = run("context", "use", "hree")
    assert unknown.code == USAGE and "did you mean 'here'?" in unknown.err
    assert run("context", "delete", "away").code == OK
    assert [line.split() for line in run("context", "list").out.splitlines()[1:]] == [["here", cli.bootstrap, "-"]]


def test_a_damaged_file_of_contexts_is_named(run: Run) -> None:
    path = Path(os.environ["XDG_CONFIG_HOME"]) / "ottla" / "contexts.json"
    path.parent.mkdir(parents=True)
    path.write_text("{")
    done = run("topic", "list")
    assert done.code == USAGE and str(path) in done.err


def test_a_command_without_its_verb_is_a_wrong_usage_and_shows_the_help(run: Run) -> None:
    done = run("topic")
    assert done.code == USAGE and "create" in done.out
    assert run("topic", "--help").code == OK


def test_what_the_command_line_names_wins_over_the_environment(
    cli: Cli, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Before the fix the node's user, who may not read root's OTTLA_CONFIG, failed because of it, although the command named
    the node's own file.
    """
    assert run("context", "set", "here", "-b", cli.bootstrap).code == OK
    for name, text in (("BOOTSTRAP", "localhost:1"), ("CONFIG", str(tmp_path / "of-root.properties"))):
        monkeypatch.setenv(f"OTTLA_{name}", text)
    node = tmp_path / "server.properties"
    node.write_text(
        f"node.id=1\nprocess.roles=broker\ncontroller.listener.names=CONTROLLER\ncontroller.quorum.bootstrap.servers=localhost:1\n"
        f"listeners=PLAINTEXT://{cli.bootstrap}\nadvertised.listeners=PLAINTEXT://{cli.bootstrap}\n"
    )
    done = run("cluster", "may-stop", str(node))
    assert done.code == OK and "node 1 may stop" in done.err, done.err
    assert run("cluster", "health", "--context", "here").code == OK
    client = tmp_path / "client.properties"
    client.write_text(f"bootstrap.servers={cli.bootstrap}\n")
    assert run("cluster", "health", "--config", str(client)).code == OK
    unreadable = run("cluster", "health", "-b", cli.bootstrap)
    assert unreadable.code == USAGE and "of-root.properties cannot be read" in unreadable.err, "-b names no file"
    assert run("cluster", "may-stop", str(node), "-b", "localhost:1", "--config", str(client)).code == UNHEALTHY


def test_the_environment_goes_before_the_context_that_is_used(
    cli: Cli, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("context", "set", "away", "-b", "localhost:1").code == OK
    assert run("context", "use", "away").code == OK
    monkeypatch.setenv("OTTLA_BOOTSTRAP", cli.bootstrap)
    assert run("cluster", "health").code == OK
