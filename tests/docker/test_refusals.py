"""A container that cannot run prints one line with the place and the remedy, and ends with a code that is not zero."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.docker.compose_file import ROOT
from tests.ports import HIGHEST, free_ports

#: The port lies between those of `free_ports`, the last of which begin below HIGHEST, and those of outgoing connections.
UNUSED_PORT = HIGHEST + 700


@pytest.fixture
def environment() -> dict[str, str]:
    client, controller, admin = free_ports(3)
    return {
        "KAFKA_NODE_ID": "1",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_LISTENERS": f"PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": f"1@127.0.0.1:{controller}",
        "OTTLA_ADMIN_LISTENER": f"127.0.0.1:{admin}",
    }


def command(root: Path, *arguments: str) -> list[str]:
    return [
        sys.executable,
        "-P",
        "-m",
        "ottla",
        "container",
        *arguments,
        *(["--root", str(root)] if root.parts else []),
    ]


def start(root: Path, environment: dict[str, str], *arguments: str) -> subprocess.Popen[str]:
    given = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **environment}
    return subprocess.Popen(
        command(root, *arguments), env=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def refusal(root: Path, environment: dict[str, str]) -> str:
    process = start(root, environment)
    try:
        _, error = process.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert process.returncode not in (0, None)
    lines = error.strip().splitlines()
    assert len(lines) == 1, error
    return lines[0]


def run_until_started(root: Path, environment: dict[str, str]) -> None:
    process = start(root, environment)
    assert process.stdout is not None
    deadline = time.monotonic() + 30
    seen = []
    for line in process.stdout:
        seen.append(line)
        assert time.monotonic() < deadline
        if "Kafka Server started" in line:
            break
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 0, "".join(seen)
    assert any("Transitioning from RECOVERY to RUNNING" in line for line in seen), "testcontainers wait for this"


def test_a_port_in_use(environment: dict[str, str], tmp_path: Path) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        port = sock.getsockname()[1]
        environment["KAFKA_LISTENERS"] = environment["KAFKA_LISTENERS"].replace(
            environment["KAFKA_LISTENERS"].split(",")[0], f"PLAINTEXT://127.0.0.1:{port}"
        )
        said = refusal(tmp_path, environment)
    assert "listeners (KAFKA_LISTENERS)" in said
    assert f"PLAINTEXT://127.0.0.1:{port}" in said
    assert f"stop what uses port {port}" in said


def test_a_wrong_cluster_id(environment: dict[str, str], tmp_path: Path) -> None:
    run_until_started(tmp_path, {**environment, "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw"})
    said = refusal(tmp_path, {**environment, "CLUSTER_ID": "MkU3OEVBNTcwNTJENDM2Qk"})
    assert "CLUSTER_ID" in said
    assert "belongs to cluster 4L6g3nShT-eMCtK--X86sw, not MkU3OEVBNTcwNTJENDM2Qk" in said
    assert "set CLUSTER_ID=4L6g3nShT-eMCtK--X86sw" in said
    # Without a CLUSTER_ID the directory's own is taken.
    run_until_started(tmp_path, environment)


def test_another_nodes_volume(environment: dict[str, str], tmp_path: Path) -> None:
    data = tmp_path / "var/lib/kafka/data"
    data.mkdir(parents=True)
    (data / "meta.properties").write_text("version=1\ncluster.id=x\nnode.id=7\n")
    said = refusal(tmp_path, environment)
    assert "belongs to node 7, and this is node 1" in said
    assert "KAFKA_NODE_ID" in said


def test_a_volume_that_cannot_be_written(environment: dict[str, str]) -> None:
    said = refusal(Path(""), {**environment, "KAFKA_LOG_DIRS": "/proc/no-volume-here"})
    assert "no-volume-here" in said
    assert "log.dirs (KAFKA_LOG_DIRS)" in said


@pytest.mark.parametrize(
    ("change", "where", "words"),
    [
        ({"KAFKA_LISTENERS": "PLAINTEXT://:9092,PLAINTEXT://:9093"}, "KAFKA_LISTENERS", "different name"),
        (
            {"KAFKA_LISTENERS": f"PLAINTEXT://:{UNUSED_PORT},CONTROLLER://:{UNUSED_PORT}"},
            "KAFKA_LISTENERS",
            "different port",
        ),
        ({"KAFKA_LISTENERS": "not a listener"}, "KAFKA_LISTENERS", "NAME://host:port"),
        ({"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://0.0.0.0:9092"}, "KAFKA_ADVERTISED_LISTENERS", "0.0.0.0"),
        ({"KAFKA_ADVERTISED_LISTENERS": "OTHER://x:9092"}, "KAFKA_ADVERTISED_LISTENERS", "OTHER"),
        ({"KAFKA_INTER_BROKER_LISTENER_NAME": "NOWHERE"}, "KAFKA_INTER_BROKER_LISTENER_NAME", "PLAINTEXT"),
        ({"KAFKA_CONTROLLER_QUORUM_VOTERS": "2@h:9093"}, "KAFKA_CONTROLLER_QUORUM_VOTERS", "node id 1"),
        ({"KAFKA_PROCESS_ROLES": "janitor"}, "KAFKA_PROCESS_ROLES", "janitor"),
        ({"KAFKA_NODE_ID": "one"}, "KAFKA_NODE_ID", "one"),
        (
            {"KAFKA_LISTENERS": f"PLAINTEXT://192.0.2.1:9092,CONTROLLER://:{UNUSED_PORT}"},
            "KAFKA_LISTENERS",
            "no address of this container",
        ),
    ],
)
def test_settings_that_contradict(
    change: dict[str, str], where: str, words: str, environment: dict[str, str], tmp_path: Path
) -> None:
    said = refusal(tmp_path, environment | change)
    assert where in said
    assert words in said


def test_no_roles_at_all(tmp_path: Path) -> None:
    said = refusal(tmp_path, {"KAFKA_NUM_PARTITIONS": "3"})
    assert "KAFKA_PROCESS_ROLES" in said
    assert "broker,controller" in said


def test_configure_then_format_then_launch_as_testcontainers_does_it(
    environment: dict[str, str], tmp_path: Path
) -> None:
    environment["KAFKA_ADVERTISED_LISTENERS"] = environment["KAFKA_LISTENERS"].split(",")[0]
    configure = start(tmp_path, environment, "configure", "--dialect", "confluent")
    _, error = configure.communicate(timeout=30)
    assert configure.returncode == 0, error
    written = tmp_path / "etc/kafka/kafka.properties"
    assert "cluster.id" not in written.read_text(), "who formats the directories decides it"
    tool = [sys.executable, "-m", "ottla.cli.shims", "kafka-storage", "format", "--ignore-formatted"]
    subprocess.run([*tool, "-t", "NTQwNTA4N2E0ZTA4MTFlZQ", "-c", str(written)], check=True, cwd=ROOT)
    launch = start(tmp_path, environment, "launch")
    assert launch.stdout is not None
    lines = []
    for line in launch.stdout:
        lines.append(line)
        if "Kafka Server started" in line:
            break
    launch.send_signal(signal.SIGTERM)
    launch.communicate(timeout=30)
    assert launch.returncode == 0, "".join(lines)
    assert "NTQwNTA4N2E0ZTA4MTFlZQ" in (tmp_path / "var/lib/kafka/data/meta.properties").read_text()


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"OTTLA_PROCESSES": "0"}, "OTTLA_PROCESSES: '0' is not a number of brokers between 1 and 999; leave it out"),
        ({"OTTLA_PROCESSES": "2", "KAFKA_NODE_ID": "1000"}, "node.id=1000 (KAFKA_NODE_ID): "),
    ],
)
def test_processes_that_cannot_be_derived(
    environment: dict[str, str], tmp_path: Path, changes: dict[str, str], said: str
) -> None:
    voters = environment["KAFKA_CONTROLLER_QUORUM_VOTERS"]
    changes |= {"KAFKA_CONTROLLER_QUORUM_VOTERS": f"{changes.get('KAFKA_NODE_ID', 1)}@{voters.partition('@')[2]}"}
    assert said in refusal(tmp_path, environment | changes)


def test_a_container_of_several_processes_serves_once_all_do(environment: dict[str, str], tmp_path: Path) -> None:
    port = environment["OTTLA_ADMIN_LISTENER"].rpartition(":")[2]
    process = start(tmp_path, environment | {"OTTLA_PROCESSES": "1"})
    try:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if "All 2 processes serve: 1 controller, 1001 broker-1" in line:
                break
        with socket.create_connection(("127.0.0.1", int(port)), timeout=30) as sock:
            sock.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
            assert b" 200 OK" in sock.makefile("rb").read(), "".join(said)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode == 0
