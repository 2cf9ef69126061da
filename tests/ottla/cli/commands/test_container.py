"""The entry point of the image in the test's own process: each step up to the start of the node, and all errors before it."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.commands import container
from ottla.cli.errors import FAILED, OK, USAGE
from ottla.node import process
from ottla.processes import supervisor
from ottla.server.config.properties_file import read_properties
from tests.ports import free_ports

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"


@pytest.fixture
def variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the variables of a node with free ports that keeps its data in the test's folder. The machine's own variables are
    removed.
    """
    for name in list(os.environ):
        if name.startswith(("KAFKA_", "OTTLA_", "SCHEMA_REGISTRY_")):
            monkeypatch.delenv(name)
    one, other = free_ports(2)
    return [
        "KAFKA_NODE_ID=1",
        "KAFKA_PROCESS_ROLES=broker,controller",
        f"KAFKA_LISTENERS=PLAINTEXT://127.0.0.1:{one},CONTROLLER://127.0.0.1:{other}",
        "KAFKA_CONTROLLER_LISTENER_NAMES=CONTROLLER",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        f"KAFKA_CONTROLLER_QUORUM_VOTERS=1@127.0.0.1:{other}",
        f"KAFKA_LOG_DIRS={tmp_path}/data",
        f"CLUSTER_ID={CLUSTER}",
    ]


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """Return the list of properties with which nodes would run. No node is run."""
    started: list[dict[str, str]] = []

    def run(properties: dict[str, str], *rest: object) -> int:
        started.append(properties)
        return 7

    monkeypatch.setattr(process, "run", run)
    monkeypatch.setattr(supervisor, "supervise", lambda properties, count: run(properties | {"processes": str(count)}))
    return started


def test_the_node_that_is_launched_is_the_one_that_was_configured(
    tmp_path: Path, variables: list[str], nodes: list[dict[str, str]]
) -> None:
    """Some images of users have a step between `configure` and `launch`."""
    file = tmp_path / "etc" / "server.properties"
    words = ["--properties", str(file), "--dialect", "apache"]
    assert container.main(["configure", *variables, "KAFKA_SSL_KEY_PASSWORD=secret", *words]) == OK
    assert stat.S_IMODE(file.stat().st_mode) == 0o600, "passwords may be among them"
    written = read_properties(file.read_bytes(), str(file))
    assert written["node.id"] == "1" and written["ssl.key.password"] == "secret"
    assert nodes == []
    with file.open("a") as more:
        more.write("num.partitions=7\n")
    assert container.main(["launch", *words]) == 7
    assert [node["num.partitions"] for node in nodes] == ["7"]
    assert {name: nodes[0][name] for name in written} == written


def test_nothing_is_launched_that_was_not_configured(
    tmp_path: Path, nodes: list[dict[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert container.main(["launch", "--properties", str(tmp_path / "none")]) == FAILED
    assert capsys.readouterr().err.endswith("run `ottla container configure` before\n")
    assert nodes == []


def test_a_check_ends_before_the_start_and_leaves_no_data(
    tmp_path: Path, variables: list[str], nodes: list[dict[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert container.main(["run", *variables, "--check"]) == OK
    assert "===> Environment as of" in (said := capsys.readouterr().out) and "===> Launching" not in said
    assert nodes == [] and not list((tmp_path / "data").glob("**/meta.properties"))


def test_a_port_that_another_program_has_is_refused_with_its_variable(
    variables: list[str], nodes: list[dict[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        (listeners,) = (each for each in variables if each.startswith("KAFKA_LISTENERS="))
        taken = listeners.replace(listeners.split("//127.0.0.1:")[1].split(",")[0], str(other.getsockname()[1]))
        assert container.main(["run", *variables, taken]) == FAILED
    said = capsys.readouterr()
    assert said.err.startswith("ottla container: ") and "KAFKA_LISTENERS" in said.err and said.err.count("\n") == 1
    assert nodes == []


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("OTTLA_PROCESSES=many", "OTTLA_PROCESSES: "),
        ("OTTLA_PROCESSES=0", "OTTLA_PROCESSES: "),
        ("KAFKA_NUM_PARTITIONS=x", "num.partitions (KAFKA_NUM_PARTITIONS): "),
    ],
)
def test_a_value_that_is_none_is_one_line_with_its_variable(
    variables: list[str], nodes: list[dict[str, str]], capsys: pytest.CaptureFixture[str], word: str, said: str
) -> None:
    assert container.main(["run", *variables, word]) == FAILED
    err = capsys.readouterr().err
    assert err.startswith("ottla container: ") and said in err and err.count("\n") == 1
    assert nodes == []


def test_an_empty_number_of_processes_is_one_process(variables: list[str], nodes: list[dict[str, str]]) -> None:
    """Compose files pass variables on even if their user has not set them."""
    assert container.main(["run", *variables, "OTTLA_PROCESSES="]) == 7
    assert [node.get("processes") for node in nodes] == [None]


def test_several_processes_are_started_by_the_supervisor(variables: list[str], nodes: list[dict[str, str]]) -> None:
    assert container.main(["run", *variables, "OTTLA_PROCESSES=2"]) == 7
    assert [node.get("processes") for node in nodes] == ["2"]


@pytest.mark.parametrize("words", [["run", "no-equals-sign"], ["registry", "no-equals-sign"]])
def test_a_word_that_is_no_variable_ends_it(words: list[str]) -> None:
    with pytest.raises(SystemExit, match="'no-equals-sign' is not VAR=value"):
        container.main(words)


@pytest.mark.parametrize("words", [["walk"], ["--dialect", "spotify"], ["run", "--nothing"]])
def test_steps_and_options_that_are_none(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        container.main(words)
    assert ended.value.code == USAGE
    assert capsys.readouterr().err.endswith("`ottla container --help` shows the usage\n")


def test_the_log_level_of_the_variables_is_the_nodes(
    variables: list[str], nodes: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTTLA_LOG_LEVEL", "")  # monkeypatch restores it at the end
    assert container.main(["run", *variables, "KAFKA_LOG4J_ROOT_LOGLEVEL=DEBUG"]) == 7
    assert os.environ["OTTLA_LOG_LEVEL"] == "DEBUG"


def test_users_of_scram_are_written_into_empty_directories_once(
    tmp_path: Path, variables: list[str], nodes: list[dict[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    users = [
        "KAFKA_CLIENT_USERS=ann",
        "KAFKA_CLIENT_PASSWORDS=secret",
        "KAFKA_CFG_SASL_ENABLED_MECHANISMS=SCRAM-SHA-512",
    ]
    bitnami = [each.replace("KAFKA_", "KAFKA_CFG_", 1) if each.startswith("KAFKA_") else each for each in variables]
    given = [each.replace("CLUSTER_ID=", "KAFKA_KRAFT_CLUSTER_ID=") for each in bitnami]
    given = [
        each.replace("CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT")
        for each in given
    ]
    for _ in range(2):
        assert container.main(["run", *given, *users, "--dialect", "bitnami"]) == 7, capsys.readouterr().err
    said = capsys.readouterr().out
    assert f"cluster.id={CLUSTER}" in (tmp_path / "data" / "meta.properties").read_text()
    assert said.count("Formatting metadata directory") == 1
    assert "secret" not in said and len(nodes) == 2


# -- What runs beside the node


def test_topics_are_created_by_another_process_once_a_listener_without_login_serves(
    variables: list[str], nodes: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[list[str]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda command: begun.append(command))
    (port,) = (each.split(":")[2].split(",")[0] for each in variables if each.startswith("KAFKA_LISTENERS="))
    assert container.main(["run", *variables, "KAFKA_CREATE_TOPICS=orders:2:1"]) == 7
    assert [command[-3:] for command in begun] == [["create-topics", f"127.0.0.1:{port}", "orders:2:1"]]
    secured = [each.replace("PLAINTEXT:PLAINTEXT", "PLAINTEXT:SASL_PLAINTEXT") for each in variables]
    container.main(["run", *secured, "KAFKA_CREATE_TOPICS=orders:2:1", "--check"])
    assert len(begun) == 1


def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[], float]:
    """Replace the time by a clock that only sleeping moves. Return a function that reads it."""
    now = [0.0]
    monkeypatch.setattr(container.time, "monotonic", lambda: now[0])

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(container.time, "sleep", sleep)
    return lambda: now[0]


def test_a_registry_waits_for_one_of_its_brokers_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = clock(monkeypatch)
    tried: list[Any] = []

    class Connection:
        def __enter__(self) -> Connection:
            return self

        def __exit__(self, *fault: object) -> None:
            return

    def connect(address: tuple[str, int], timeout: float) -> Connection:
        tried.append(address)
        if len(tried) < 6:
            raise ConnectionRefusedError
        return Connection()

    monkeypatch.setattr(container.socket, "create_connection", connect)
    container._wait_for_brokers([("a", 1), ("b", 2)], 60)
    assert tried == [("a", 1), ("b", 2)] * 3 and now() == 2 * container.BROKERS_AGAIN_S
    assert capsys.readouterr().out.count("they are waited for, 60 s at most") == 1


def test_a_registry_starts_after_its_time_whether_a_broker_is_there_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    now = clock(monkeypatch)

    def connect(address: tuple[str, int], timeout: float) -> None:
        raise OSError

    monkeypatch.setattr(container.socket, "create_connection", connect)
    container._wait_for_brokers([("a", 1)], 3)
    assert now() == 3
    container._wait_for_brokers([], 3)
    assert now() == 3, "there is none to wait for"
