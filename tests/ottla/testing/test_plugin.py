"""The pytest plugin as its users have it: their own test files, run by a separate pytest."""

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

from ottla.testing import Cluster
from tests.broker.conftest import eventually
from tests.ottla.conftest import ROOT

pytestmark = pytest.mark.timeout(400)
SECONDS_MAX = 300
#: How the examples of the documentation are run. `make compat` uses workers: with them they take twice the processor time, and
#: each file uses clusters that others share.
WORKERS = ("-n", "auto") if os.environ.get("OTTLA_COMPAT") else ("-p", "no:xdist")

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
    """A folder in which Ottla is installed from pytest's point of view: with the entry points of our own pyproject.toml."""
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
    """Return the node processes. Each of them works in its own folder."""
    found = []
    for process in psutil.process_iter():
        try:
            folder = Path(process.cwd())
            if folder.is_relative_to(directory) and folder.name.startswith("node-"):
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def test_one_node_for_all_tests_and_after_failures_its_log_is_in_the_reports_and_left_behind(project: Path) -> None:
    (project / "test_it.py").write_text(
        ROUND_TRIP.format(fixture="kafka_proc")
        + """
import time

def fill(cluster, topic):
    print("PID", cluster.pid(1), cluster.topic(topic, seed=["x"]))
    while f"Leader {topic}-0 starts" not in cluster.log(1):  # a thread writes the log
        time.sleep(0.01)

def test_that_fails(kafka_proc, kafka_topic):
    fill(kafka_proc, kafka_topic)
    assert 0

def test_another_that_fails(kafka_proc, kafka_topic):
    fill(kafka_proc, kafka_topic)
    assert 0

def test_of_no_cluster():
    assert 0
"""
    )
    said = run(project)
    assert "1 passed" in said and "3 failed" in said, said
    (pid, topic), (other_pid, other_topic) = re.findall(r"PID (\d+) (\S+)", said)
    assert pid == other_pid and topic != other_topic
    first, second = (each.split("____")[0] for each in said.split("Log of node 1 of kafka_proc")[1:])
    assert topic in first and other_topic not in first, said
    assert other_topic in second and topic not in second, said
    assert nodes_below(project) == []
    assert {path.name for path in project.glob("tmp/*/node-*/*")} == {"server.log"}


@pytest.mark.compat
def test_all_workers_share_the_clusters_of_the_session_and_break_only_their_own(project: Path) -> None:
    (project / "conftest.py").write_text(
        "from ottla.testing import factories\n"
        "kafka_own = factories.kafka_proc(scope='module')\n"
        "kafka_refusing = factories.kafka_proc(properties={'num.partitions': 'many'})\n"
        "kafka_secure = factories.kafka_proc(secure=True)\n"
        "alice = factories.kafka_user('kafka_secure', 'read topic:*')\n"
    )
    for name in ("one", "two"):
        (project / f"test_{name}.py").write_text(
            ROUND_TRIP.format(fixture="kafka_cluster")
            + f"""
import pytest
from ottla.testing.errors import SharedWithOthers

def test_three(kafka_cluster, worker_id):
    assert len(kafka_cluster.metadata().brokers) == 3
    open("seen-{name}-" + worker_id, "w").write(kafka_cluster.bootstrap)
    with pytest.raises(SharedWithOthers, match="kafka_to_break"):
        kafka_cluster.kill(1)

def test_own(kafka_own, alice):
    assert alice["sasl.username"] != "admin" and alice["bootstrap.servers"]
    kafka_own.kill(1)
    kafka_own.start(1)

def test_that_fails(kafka_cluster):
    kafka_cluster.topic("of-{name}")
    assert 0

def test_that_cannot_start(kafka_refusing):
    pass
"""
        )
    said = run(project, "-n", "2", "--dist", "loadfile")
    assert "6 passed" in said and "2 failed" in said and "2 errors" in said, said
    assert "Log of node 3 of kafka_cluster" in said and "num.partitions" in said
    seen = list(project.glob("seen-*"))
    assert len({file.name.rpartition("-")[2] for file in seen}) == 2
    assert len({file.read_text() for file in seen}) == 1
    assert nodes_below(project) == []
    assert {path.name for path in project.glob("tmp/kafka-*/node-*/*")} == {"server.log"}


LEFT = """
import time
import pytest

@pytest.fixture(scope="module")
def slowed(kafka_proc):
    kafka_proc.slow_disk(1)
    yield
    kafka_proc.slow_disk(0)

def is_accepted(cluster, topic):
    errors = []
    producer = cluster.producer()
    producer.produce(topic, b"x", on_delivery=lambda error, message: errors.append(error))
    producer.flush(30)
    return errors == [None]

def test_fails_requests(kafka_proc, slowed):
    kafka_proc.fail_next("Produce", "TOPIC_AUTHORIZATION_FAILED", 50)

def test_after_it_the_faults_of_wider_scope_are_there(kafka_proc, kafka_topic, slowed):
    assert is_accepted(kafka_proc, kafka_topic)
    assert kafka_proc.condition().faults[1].slow_disk_ms == 1

def test_lets_time_pass_and_kills(kafka_proc):
    kafka_proc.advance(days=30)
    kafka_proc.kill(1)

def test_after_it_nodes_run_in_the_present(kafka_proc, kafka_topic):
    assert abs(kafka_proc.time_ms / 1000 - time.time()) < 60
    assert is_accepted(kafka_proc, kafka_topic)

def test_kills_and_starts(kafka_proc):
    kafka_proc.kill(1)
    kafka_proc.start(1)

def test_kills_its_own(kafka_to_break):
    kafka_to_break.latency(1)
    kafka_to_break.advance(days=30)
    kafka_to_break.kill(1)

def test_has_its_own(kafka_to_break, kafka_topic):
    assert abs(kafka_to_break.time_ms / 1000 - time.time()) < 60
    assert is_accepted(kafka_to_break, kafka_topic)
"""


def test_a_fault_ends_with_its_test_and_what_cannot_be_undone_fails_the_test_that_did_it(project: Path) -> None:
    (project / "test_it.py").write_text(LEFT)
    said = run(project, "-p", "no:xdist")
    assert "7 passed, 1 error" in said, said
    assert "ERROR at teardown of test_lets_time_pass_and_kills" in said
    assert (
        "kafka_proc is shared with other tests, and this test has left it so that node 1 does not run, and its time is "
        "30 days ahead: take the fixture kafka_to_break, which is a cluster of the test's own, or one of "
        "factories.kafka_cluster(scope='function')" in said
    )


@pytest.mark.compat
def test_topics_users_clients_and_a_cluster_that_runs_already_are_fixtures(project: Path) -> None:
    (project / "orders.jsonl").write_text('{"key": "1", "value": "3 apples"}\n')
    (project / "conftest.py").write_text(
        "from ottla.testing import factories\n"
        "kafka_secure = factories.kafka_proc(secure=True)\n"
        "orders = factories.kafka_topic('kafka_secure', partitions=3, seed='orders.jsonl')\n"
        "alice = factories.kafka_user('kafka_secure', 'read topic:*', 'read group:*')\n"
        "kafka_fast = factories.kafka_producer('kafka_secure', linger_ms=0)\n"
        "seeded = factories.kafka_snapshot(lambda cluster: cluster.topic('stock', seed=['apples']))\n"
        "fork = factories.kafka_fork('seeded')\n"
    )
    (project / "test_it.py").write_text(
        """
from confluent_kafka import Consumer

def test_attached(kafka_noproc):
    kafka_noproc.topic("attached", seed=["x"])
    assert [each.value for each in kafka_noproc.records("attached")] == [b"x"]

def test_fork(fork):
    assert [each.value for each in fork.records("stock")] == [b"apples"]
    fork.write("stock", ["pears"])

def test_another_fork(fork):
    assert [each.value for each in fork.records("stock")] == [b"apples"]

def test_defaults(kafka_producer, kafka_consumer, kafka_topic):
    kafka_producer.produce(kafka_topic, b"x")
    kafka_producer.flush(30)
    kafka_consumer.subscribe([kafka_topic])
    assert kafka_consumer.poll(30).value() == b"x"

def test_alice(kafka_secure, orders, alice, kafka_fast):
    assert len(kafka_secure.leaders(orders)) == 3
    kafka_fast.produce(orders, b"4 pears")
    kafka_fast.flush(30)
    assert sorted(each.value for each in kafka_secure.records(orders, 2)) == [b"3 apples", b"4 pears"]
    consumer = Consumer({**alice, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe([orders])
    assert consumer.poll(30).error() is None
    consumer.close()
"""
    )
    with Cluster(1) as cluster:
        said = run(project, "--kafka-bootstrap", cluster.bootstrap)
        assert "5 passed" in said, said
        assert cluster.leaders("attached") == {0: 1}


@pytest.mark.compat
def test_on_windows_tests_with_nodes_are_skipped_with_one_sentence(project: Path) -> None:
    (project / "conftest.py").write_text(
        "import sys, types\n"
        "from ottla.testing import factories\n"
        "factories.sys = types.SimpleNamespace(platform='win32')\n"
        "for name in ('fcntl', 'resource', 'uvloop', 'termios', 'ottla.testing.cluster', 'ottla.testing.shared'):\n"
        "    sys.modules[name] = None\n"  # importing them fails, as it would there
    )
    (project / "test_it.py").write_text("def test_it(kafka_proc):\n    pass\n\ndef test_other():\n    pass\n")
    said = run(project, "-rs", "-p", "no:xdist")
    assert "1 passed, 1 skipped" in said and "on Windows run the tests in WSL" in said, said


@pytest.mark.compat
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


@pytest.mark.compat
def test_a_property_that_cannot_be_is_named(project: Path) -> None:
    (project / "test_it.py").write_text("def test_it(kafka_proc):\n    pass\n")
    assert "NAME=VALUE" in run(project, "--kafka-property", "num.partitions")


@pytest.mark.compat
def test_a_killed_worker_leaves_no_node_running(project: Path) -> None:
    (project / "test_it.py").write_text(
        "import time\ndef test_it(kafka_cluster):\n    kafka_cluster.pause(2)\n    time.sleep(120)\n"
    )
    with start(project) as process:
        eventually(lambda: len(nodes_below(project)) == 3, "three nodes", seconds=180)
        sleeping = [node for node in nodes_below(project) if Path(node.cwd()).name == "node-2"]
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
    # It runs without the plugins that happen to be installed here, which import other modules.
    said = run(project, "-p", "no:xdist", "-p", "no:asyncio", "-p", "no:anyio", "-p", "no:hypothesispytest")
    assert "1 passed" in said, said


def test_a_node_knows_nothing_of_pytest() -> None:
    code = "import sys, ottla.node.node, ottla.cli.commands.dev; sys.exit('pytest' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_the_example_of_the_documentation_works_as_it_is_printed(project: Path) -> None:
    text = (ROOT / "docs" / "TESTING.md").read_text() + (ROOT / "README.md").read_text()
    files = re.findall(r"```python\n# (\w+\.py)\n(.*?)```", text, flags=re.DOTALL)
    assert {name for name, _ in files} >= {"test_orders.py", "conftest.py", "test_acknowledgements.py"}
    for name, content in files:
        with (project / name).open("a") as file:
            file.write(content)
    said = run(project, *WORKERS)
    assert re.search(r"\d passed", said) and "failed" not in said and "error" not in said, said


def test_the_annotated_example_of_the_documentation_is_the_one_that_lint_checks() -> None:
    (shown,) = re.findall(
        r"```python\n# test_typed.py\n(.*?)```", (ROOT / "docs" / "TESTING.md").read_text(), re.DOTALL
    )
    _, _, tests = shown.partition("\n\n\n")
    checked = (ROOT / "tests" / "ottla" / "testing" / "annotated.py").read_text()
    assert tests and tests in checked
    imported = re.findall(r"\w+", shown.partition("from ottla.testing import ")[2].partition("\n")[0])
    assert all(re.search(rf"^from ottla.testing import .*\b{name}\b", checked, re.MULTILINE) for name in imported)
