"""`ottla dev` as a user sees it: what it starts, prints, rejects and leaves behind."""

from __future__ import annotations

import base64
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.local.nodes import ADMIN_PORT_STEP, HOST, plan
from ottla.registry.client import RegistryClient
from ottla.server.extras import lacking
from tests.broker.conftest import eventually
from tests.ottla.conftest import COMMAND_SECONDS_MAX, ROOT, STOP_SECONDS_MAX, command, run_here
from tests.ports import free_base_port, free_ports

pytestmark = pytest.mark.timeout(120)


@contextmanager
def dev(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """A running cluster, with its own description as JSON."""
    words = command("dev", "--json", *arguments)
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        assert line, process.stderr.read()
        try:
            yield process, json.loads(line)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                process.wait(STOP_SECONDS_MAX)


def refused(*arguments: str) -> str:
    """Return the output for a cluster that does not start: one sentence, and a line with the remedy."""
    done = subprocess.run(
        command("dev", *arguments), capture_output=True, text=True, timeout=COMMAND_SECONDS_MAX, cwd=ROOT
    )
    assert done.returncode != 0 and done.stdout == ""
    assert done.stderr.startswith("ottla: ") and "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 2, done.stderr
    return done.stderr


def test_a_secure_cluster_names_files_with_which_a_client_logs_in_also_after_a_restart(tmp_path: Path) -> None:
    for _ in range(2):
        with dev("--base-port", "0", "--nodes", "1", "--secure", "--dir", str(tmp_path)) as (_, status):
            lines = Path(status["librdkafka"]).read_text().splitlines()
            settings = dict(line.split("=", 1) for line in lines) | {"bootstrap.servers": status["bootstrap"]}
            assert len(AdminClient(settings).list_topics(timeout=30).brokers) == 1
            assert Path(status["config"]).exists()


def test_the_console_and_the_registry_of_a_secure_cluster_are_for_who_can_read_its_files(tmp_path: Path) -> None:
    arguments = ["--base-port", "0", "--nodes", "1", "--secure", "--console", "changes", "--registry"]
    pages = {"console": "access/users", "registry": "/subjects"}
    if has_tables := lacking("tables") is None:
        arguments.append("--tables")
        pages["tables"] = "/v1/config"
    with dev(*arguments, "--dir", str(tmp_path)) as (_, status):
        for name, page in pages.items():
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(status[name] + page, timeout=30)
            assert caught.value.code == 401
        files = (status["console_token"], status["registry_config"], str(tmp_path / "secure" / "registry-users"))
        assert [os.stat(path).st_mode & 0o777 for path in files] == [0o600] * 3
        token = Path(status["console_token"]).read_text().strip()
        request = urllib.request.Request(status["console"] + "topics", headers={"Authorization": f"Bearer {token}"})
        assert urllib.request.urlopen(request, timeout=30).status == 200
        request.full_url = status["console"] + "schemas"
        assert b"There is no subject" in urllib.request.urlopen(request, timeout=30).read(), "it has the login too"
        assert RegistryClient.of(status["registry"], status["registry_config"]).subjects() == []
        if not has_tables:
            return
        assert status["tables_at"] == str(tmp_path / "tables")
        (login,) = (line for line in Path(status["registry_config"]).read_text().splitlines() if "user.info" in line)
        basic = base64.b64encode(login.partition("=")[2].strip().encode()).decode()
        request.full_url, request.headers = status["tables"] + "/v1/namespaces", {"Authorization": f"Basic {basic}"}
        assert json.loads(urllib.request.urlopen(request, timeout=30).read()) == {"namespaces": [["ottla"]]}


def test_old_segments_of_a_topic_leave_the_disk_for_the_folder_that_is_named(tmp_path: Path) -> None:
    store = tmp_path / "old"
    with dev("--base-port", "0", "--nodes", "1", "--tiers", str(store)) as (_, status):
        assert status["tiers_at"] == str(store)
        where = ("--bootstrap", status["bootstrap"], "--admin", f"1@{HOST}:{status['nodes'][0]['admin']}", "-o", "json")
        tiered = {"remote.storage.enable": "true", "local.retention.ms": "1000", "segment.bytes": "1048576"}
        admin = AdminClient({"bootstrap.servers": status["bootstrap"]})
        admin.create_topics([NewTopic("events", 1, config=tiered)])["events"].result(30)
        producer = Producer({"bootstrap.servers": status["bootstrap"], "acks": "all"})
        for _ in range(30):
            producer.produce("events", bytes(100_000))
            producer.flush()

        def has_left() -> bool:
            state = json.loads(run_here("tier", "status", "events", *where).out or "{}")
            return state.get("local_start", 0) > 10 and state["local_start"] == state["copied_to"] + 1

        eventually(has_left, "two sealed segments have left the disk", 30)
        assert len([*store.rglob("*.log")]) == 2


def test_three_nodes_are_what_it_starts_and_ctrl_c_stops_them_all_in_order(tmp_path: Path) -> None:
    with dev("--base-port", "0", "--dir", str(tmp_path)) as (process, status):
        pids = [node["pid"] for node in status["nodes"]]
        assert [node["id"] for node in status["nodes"]] == [1, 2, 3]
        assert len(status["bootstrap"].split(",")) == 3
        if sys.platform == "linux":  # forks share the half second that the imports of a server take
            assert {tuple(psutil.Process(pid).cmdline()) for pid in pids} == {tuple(process.args)}
        process.send_signal(signal.SIGINT)
        assert process.wait(STOP_SECONDS_MAX) == 0
    assert not any(psutil.pid_exists(pid) for pid in pids)
    for node in status["nodes"]:
        # An orderly stop leaves Kafka's clean-shutdown file. After a kill it is missing, and the logs have to be recovered.
        assert (Path(node["dir"]) / "data" / ".kafka_cleanshutdown").exists()


def test_it_says_what_to_type_next_and_that_works_as_printed() -> None:
    words = command("dev", "--nodes", "1", "--base-port", str(free_base_port()))
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line.strip())
            if line.startswith("Ctrl-C"):
                break
        create = next(line for line in said if "topic create" in line).split()
        assert create[0] == "ottla" or os.access(ROOT / create[0], os.X_OK)
        done = subprocess.run(command(*create[1:]), capture_output=True, text=True, timeout=60, cwd=ROOT)
        assert done.returncode == 0, done.stderr
        process.send_signal(signal.SIGINT)
        assert process.wait(STOP_SECONDS_MAX) == 0


def test_a_secure_cluster_prints_no_password() -> None:
    words = command("dev", "--nodes", "1", "--base-port", str(free_base_port()), "--secure")
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if line.startswith("Ctrl-C"):
                break
        (login,) = re.findall(r"with the login in (\S+),", said)
        (password,) = re.findall(r"sasl.password=(.+)", Path(login).read_text())
        assert password not in said
        process.send_signal(signal.SIGINT)
        assert process.wait(STOP_SECONDS_MAX) == 0


def test_what_was_kept_in_a_directory_is_served_again_by_as_many_nodes(tmp_path: Path) -> None:
    with dev("--base-port", "0", "--nodes", "2", "--dir", str(tmp_path)) as (_, status):
        created = subprocess.run(command("topic", "create", "kept", "-b", status["bootstrap"]), timeout=60, cwd=ROOT)
        assert created.returncode == 0
    with dev("--base-port", "0", "--dir", str(tmp_path)) as (_, status):
        assert len(status["nodes"]) == 2
        listed = subprocess.run(
            command("topic", "list", "-b", status["bootstrap"]), capture_output=True, text=True, timeout=60, cwd=ROOT
        )
        assert "kept" in listed.stdout
    said = refused("--base-port", "0", "--nodes", "1", "--dir", str(tmp_path))
    assert "2 nodes, not 1" in said and "leave --nodes out" in said
    said = refused("--base-port", "0", "--nodes", "3", "--dir", str(tmp_path))
    assert "2 nodes, not 3" in said


@pytest.mark.chaos
def test_a_cluster_that_is_started_again_on_other_ports_connects_to_none_of_the_former(tmp_path: Path) -> None:
    """The metadata has the old addresses of brokers until each has registered, and the old addresses of voters, which are
    records, for ever.
    """
    # The test listens at the old addresses, so that no other process gets these ports, as it may with ports that the kernel
    # chooses.
    ports = free_ports(ADMIN_PORT_STEP + 3)
    with dev("--base-port", str(ports[0]), "--dir", str(tmp_path)) as (_, status):
        for words in ("topic create t --partitions 12 --replication-factor 3", "feature upgrade kraft.version=1"):
            done = subprocess.run(command(*words.split(), "-b", status["bootstrap"]), timeout=60, cwd=ROOT)
            assert done.returncode == 0
        for node in status["nodes"]:  # then the metadata has all of them as unfenced brokers, which lead
            os.kill(node["pid"], signal.SIGKILL)
        former = [node["port"] for node in status["nodes"]]
    with ExitStack() as stack:
        there = [stack.enter_context(socket.create_server((HOST, port))) for port in former]
        with dev("--base-port", "0", "--dir", str(tmp_path)):
            assert select.select(there, [], [], 0)[0] == []


def test_nodes_of_another_cluster_in_the_directory_are_refused(tmp_path: Path) -> None:
    for name in ("one", "other"):
        with dev("--base-port", "0", "--nodes", "1", "--dir", str(tmp_path / name)):
            pass
    (tmp_path / "one" / "cluster.properties").rename(tmp_path / "other" / "cluster.properties")
    assert "belongs to cluster" in refused("--base-port", "0", "--dir", str(tmp_path / "other"))
    assert "no cluster.properties" in refused("--base-port", "0", "--dir", str(tmp_path / "one"))


def test_a_single_nodes_log_directory_is_not_taken_for_a_clusters(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=x\nnode.id=7\n")
    assert "log directory of a single node" in refused("--base-port", "0", "--dir", str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["meta.properties"]


def test_a_port_in_use_is_named_before_anything_is_made(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = refused("--base-port", str(port - 2), "--dir", str(tmp_path / "new"))
    assert re.search(rf"ports? [\d, ]*\b{port}\b", said) and "--base-port 0" in said, "neighbours may be in use, too"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--nodes", "0"], "--nodes 0"),
        (["--nodes", "101"], "--nodes 101"),
        (["--base-port", "65500"], "--base-port 65500"),
        (["--base-port", "-1"], "--base-port -1"),
        (["--base-port", "0", "--dir", "/dev/null/x"], "cannot be used: Not a directory"),
        (["--base-port", "0", "--nodes", "1", "--override", "num.partitions=many"], "num.partitions"),
    ],
)
def test_what_cannot_be_is_one_clear_line(arguments: list[str], said: str) -> None:
    assert said in refused(*arguments)


def test_no_node_outlives_it_not_even_one_that_sleeps() -> None:
    with dev("--base-port", "0") as (process, status):
        nodes = [psutil.Process(node["pid"]) for node in status["nodes"]]
        nodes[0].suspend()
        # All threads of the process are listed, because a thread that still waits for the disk cannot be stopped yet.
        eventually(lambda: set(thread_states(nodes[0].pid)) == {"T"}, "the node to sleep")
        process.kill()
        process.wait()
        try:
            eventually(
                lambda: not any(alive(node) for node in nodes), "all nodes to be gone", seconds=60
            )  # it would take 10 s without a quorum to leave
        finally:
            for node in filter(alive, nodes):
                node.kill()


def thread_states(pid: int) -> list[str]:
    """Return the kernel's letter for the state of each thread: T stands for stopped by a signal."""
    return [path.read_text().rpartition(") ")[2][0] for path in Path(f"/proc/{pid}/task").glob("*/stat")]


def alive(node: psutil.Process) -> bool:
    try:
        return bool(node.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_the_two_clusters_of_the_mirrors_page_have_no_port_in_common() -> None:
    """A cluster's ports for controllers are 100 above those for clients, and those for admin listeners 200 above."""
    lines = [line for line in (ROOT / "docs" / "MIRROR.md").read_text().splitlines() if "ottla dev" in line]
    bases = [int(found[1]) if (found := re.search(r"--base-port (\d+)", line)) else 9092 for line in lines]
    assert len(bases) == 2
    planned = [plan(1, base, "x")[0] for base in bases]
    ports = [{node.port, node.controller_port, node.admin_port} for node in planned]
    assert not ports[0] & ports[1]
