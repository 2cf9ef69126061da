"""The pytest plugin as its users have it: test files of their own, run by a pytest of their own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import psutil
import pytest

from tests.broker.conftest import eventually
from tests.ottla.conftest import ROOT

pytestmark = pytest.mark.timeout(400)
SECONDS_MAX = 300

ROUND_TRIP = """
from confluent_kafka import Consumer, Producer

def test_what_is_written_is_read({fixture}, kafka_topic):
    producer = Producer({{"bootstrap.servers": {fixture}.bootstrap}})
    producer.produce(kafka_topic, b"hello")
    assert producer.flush(30) == 0
    consumer = Consumer({{"bootstrap.servers": {fixture}.bootstrap, "group.id": "t", "auto.offset.reset": "earliest"}})
    consumer.subscribe([kafka_topic])
    assert consumer.poll(30).value() == b"hello"
    consumer.close()
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder in which Ottla is installed, as far as pytest can see: with the entry points of our own pyproject.toml."""
    entries = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    installed = tmp_path / "site" / "ottla-0.0.0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: ottla\nVersion: 0.0.0\n")
    listed = "\n".join(f"{name} = {target}" for name, target in entries.items())
    (installed / "entry_points.txt").write_text(f"[pytest11]\n{listed}\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def start(project: Path, *arguments: str) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(ROOT), str(project / "site"), os.environ.get("PYTHONPATH", "")])
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", str(project / "tmp")]
    return subprocess.Popen(
        [*words, *arguments],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    )


def run(project: Path, *arguments: str) -> str:
    with start(project, *arguments) as process:
        said, _ = process.communicate(timeout=SECONDS_MAX)
    return said


def nodes_below(directory: Path) -> list[psutil.Process]:
    """Node processes whose data is somewhere in there."""
    found = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        if any(word.startswith(f"log.dirs={directory}") for word in words):
            found.append(process)
    return found


def test_one_node_for_all_tests_of_the_session_and_nothing_left_after_it(project: Path) -> None:
    (project / "test_it.py").write_text(
        ROUND_TRIP.format(fixture="kafka_proc")
        + "\ndef test_the_same_again(kafka_proc, kafka_topic):\n    print('PID', kafka_proc.pid(1), kafka_topic)\n    assert 0"
        + "\ndef test_and_again(kafka_proc, kafka_topic):\n    print('PID', kafka_proc.pid(1), kafka_topic)\n    assert 0"
    )
    said = run(project)
    assert "1 passed" in said and "2 failed" in said, said  # failing tests leave nothing behind either
    seen = re.findall(r"PID (\d+) (\S+)", said)
    assert len(seen) == 2
    (pid, topic), (other_pid, other_topic) = seen
    assert pid == other_pid and topic != other_topic
    assert nodes_below(project) == [] and list(project.glob("tmp/*/node-*")) == []


def test_three_nodes_and_two_workers_do_not_meet(project: Path) -> None:
    for name in ("one", "two"):
        (project / f"test_{name}.py").write_text(
            ROUND_TRIP.format(fixture="kafka_cluster")
            + "\ndef test_three(kafka_cluster, worker_id):\n    assert len(kafka_cluster.nodes) == 3\n"
            "    open(f'seen-{worker_id}', 'w').write(kafka_cluster.bootstrap)\n"
        )
    said = run(project, "-n", "2", "--dist", "loadfile")
    assert "4 passed" in said, said
    seen = [set(file.read_text().split(",")) for file in project.glob("seen-*")]
    assert len(seen) == 2 and not seen[0] & seen[1]
    assert nodes_below(project) == []


def test_nodes_and_properties_come_from_the_ini_file_the_command_line_and_factories(project: Path) -> None:
    (project / "pytest.ini").write_text(
        "[pytest]\nkafka_nodes = 2\nkafka_properties =\n    num.partitions=3\n    log.retention.hours=5\n"
    )
    (project / "conftest.py").write_text(
        "from ottla.testing import factories\n"
        "kafka_own = factories.kafka_proc(2, properties={'num.partitions': '7'}, scope='module')\n"
    )
    (project / "test_it.py").write_text(
        """
from confluent_kafka.admin import AdminClient, ConfigResource

def setting(cluster, name):
    resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    return admin.describe_configs([resource])[resource].result(30)[name].value

def test_ini_and_command_line(kafka_cluster):
    assert len(kafka_cluster.nodes) == 2
    assert (setting(kafka_cluster, "num.partitions"), setting(kafka_cluster, "log.retention.hours")) == ("4", "5")

def test_own(kafka_own):
    assert len(kafka_own.nodes) == 2 and setting(kafka_own, "num.partitions") == "7"
"""
    )
    said = run(project, "--kafka-property", "num.partitions=4")
    assert "2 passed" in said, said


@pytest.mark.parametrize("bad, said", [("num.partitions", "NAME=VALUE"), ("num.partitions=many", "num.partitions")])
def test_a_property_that_cannot_be_is_named(project: Path, bad: str, said: str) -> None:
    (project / "test_it.py").write_text("def test_it(kafka_proc):\n    pass\n")
    assert said in run(project, "--kafka-property", bad)


def test_a_killed_worker_leaves_no_node_running(project: Path) -> None:
    (project / "test_it.py").write_text(
        "import time\ndef test_it(kafka_cluster):\n    kafka_cluster.pause(2)\n    time.sleep(120)\n"
    )
    with start(project) as process:
        eventually(lambda: len(nodes_below(project)) == 3, "three nodes", seconds=180)
        sleeping = [node for node in nodes_below(project) if "node.id=2" in node.cmdline()]
        eventually(lambda: sleeping[0].status() == psutil.STATUS_STOPPED, "the pause", seconds=180)
        process.send_signal(signal.SIGKILL)
    eventually(lambda: nodes_below(project) == [], "all nodes to be gone", seconds=180)


def test_who_does_not_use_it_does_not_pay_for_it(project: Path) -> None:
    (project / "test_it.py").write_text(
        "import sys\ndef test_it():\n    assert 'ottla.testing.plugin' in sys.modules\n"
        "    loaded = {name.removeprefix('ottla.').partition('.')[0] for name in sys.modules}\n"
        "    assert not loaded & {'protocol', 'storage', 'server', 'broker', 'crc32c', 'uvloop'}\n"
        "    assert 'ottla.testing.cluster' not in sys.modules\n"
    )
    # Without the plugins that happen to be installed here and import what they like.
    said = run(project, "-p", "no:xdist", "-p", "no:asyncio", "-p", "no:anyio", "-p", "no:hypothesispytest")
    assert "1 passed" in said, said


def test_a_node_knows_nothing_of_pytest() -> None:
    code = "import sys, ottla.node.node, ottla.cli.commands.dev; sys.exit('pytest' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_the_example_of_the_documentation_works_as_it_is_printed(project: Path) -> None:
    text = (ROOT / "docs" / "TESTING.md").read_text()
    files = re.findall(r"```python\n# (\w+\.py)\n(.*?)```", text, flags=re.DOTALL)
    assert {name for name, _ in files} >= {"test_orders.py", "conftest.py"}
    for name, content in files:
        (project / name).write_text(content)
    said = run(project)
    assert re.search(r"\d passed", said) and "failed" not in said and "error" not in said, said
