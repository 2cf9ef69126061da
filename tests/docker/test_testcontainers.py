"""Testcontainers without an engine: `sh` runs the start script that testcontainers-python writes into the container, with the
image's scripts in their installed places, until the log has the line for which testcontainers waits.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docker.compose_file import ROOT
from tests.ports import free_ports

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
KRAFT_BOOT = f"""sed -i '/KAFKA_ZOOKEEPER_CONNECT/d' /etc/confluent/docker/configure
echo 'kafka-storage format --ignore-formatted -t {CLUSTER_ID} -c /etc/kafka/kafka.properties' >> /etc/confluent/docker/configure"""
ZOOKEEPER_BOOT = """echo 'clientPort=2181' > zookeeper.properties
echo 'dataDir=/var/lib/zookeeper/data' >> zookeeper.properties
zookeeper-server-start zookeeper.properties &
export KAFKA_ZOOKEEPER_CONNECT='localhost:2181'"""


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """Make the image's file system, as far as it has Ottla's files, and its PATH."""
    prefix = tmp_path / "image"
    subprocess.run(
        ["sh", str(ROOT / "docker/image/install.sh")],
        env={**os.environ, "PREFIX": str(prefix), "OTTLA_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)},
        check=True,
    )
    path = prefix / "path"
    path.mkdir()
    for tool in ("kafka-storage", "kafka-topics"):
        (path / tool).symlink_to(prefix / f"opt/kafka/bin/{tool}.sh")
    (path / "ottla").write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m ottla "$@"\n')
    (path / "ottla").chmod(0o755)
    # The scripts get the paths of this folder in place of those in /etc/confluent/.
    for name in ("configure", "launch", "run"):
        script = prefix / "etc/confluent/docker" / name
        script.write_text(script.read_text().replace("/etc/confluent/", f"{prefix}/etc/confluent/"))
    return prefix


def environment(image: Path, client: int, broker: int, controller: int, admin: int, *, kraft: bool) -> dict[str, str]:
    """Return the variables that KafkaContainer sets, except for the ports, which may be in use on this machine."""
    given = {
        "KAFKA_LISTENERS": f"PLAINTEXT://0.0.0.0:{client},BROKER://0.0.0.0:{broker}",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
        "KAFKA_BROKER_ID": "1",
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "1",
        "KAFKA_LOG_FLUSH_INTERVAL_MESSAGES": "10000000",
        "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    }
    if kraft:
        given |= {
            "CLUSTER_ID": CLUSTER_ID,
            "KAFKA_NODE_ID": "1",
            "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "KAFKA_LISTENERS": f"{given['KAFKA_LISTENERS']},CONTROLLER://0.0.0.0:{controller}",
            "KAFKA_PROCESS_ROLES": "broker,controller",
            "KAFKA_CONTROLLER_QUORUM_VOTERS": f"1@localhost:{controller}",
            "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        }
    return given | {
        "PATH": f"{image}/path:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
        "OTTLA_PYTHON": sys.executable,
        "OTTLA_CONTAINER_ROOT": str(image),
        "OTTLA_ADMIN_LISTENER": f"127.0.0.1:{admin}",
    }


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.mark.compat
@pytest.mark.timeout(150)
@pytest.mark.parametrize(
    ("boot", "waited_for", "kraft"),
    [(KRAFT_BOOT, r".*Kafka Server started.*", True), (ZOOKEEPER_BOOT, r".*\[KafkaServer id=\d+\] started.*", False)],
    ids=["with_kraft", "as it is by default"],
)
def test_the_start_script_leads_to_the_line_that_is_waited_for(
    boot: str, waited_for: str, kraft: bool, image: Path, tmp_path: Path, processes: list[subprocess.Popen[str]]
) -> None:
    client, broker, controller, admin = free_ports(4)
    text = f"""#!/bin/bash
{boot}
export KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:{client},BROKER://$(hostname -i | cut -d' ' -f1):{broker}
. /etc/confluent/docker/bash-config
/etc/confluent/docker/configure
/etc/confluent/docker/launch
"""
    text = text.replace("/etc/", f"{image}/etc/").replace("/var/lib/zookeeper", str(tmp_path))
    (tmp_path / "tc-start.sh").write_text(text)
    log = tmp_path / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            ["sh", str(tmp_path / "tc-start.sh")],
            cwd=tmp_path,
            env=environment(image, client, broker, controller, admin, kraft=kraft),
            stdout=output,
            stderr=output,
            text=True,
            start_new_session=True,
        )
    processes.append(process)
    deadline = time.monotonic() + 100
    while not re.search(waited_for, log.read_text()):
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.1)
    listed = subprocess.run(
        [f"{image}/path/kafka-topics", "--bootstrap-server", f"localhost:{client}", "--list"],
        env={**os.environ, "OTTLA_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert listed.returncode == 0, listed.stderr
    if kraft:
        assert CLUSTER_ID in (image / "var/lib/kafka/data/meta.properties").read_text()
