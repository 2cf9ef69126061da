"""`ottla start --processes 2`, as an operator and the clients see it. One machine for the whole file; the last tests end it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.processes.children import ChildNode, spawn
from tests.broker.conftest import eventually
from tests.ottla.conftest import COMMAND_SECONDS_MAX, ROOT, command
from tests.ports import free_ports

pytestmark = pytest.mark.timeout(180)

TOPIC = "on-both"
#: A restart takes half a second; 5 s are promised on a machine without other work.
STOP_SECONDS_MAX = 15


class Machine:
    """The supervisor as a process of this one, and its children."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        ports = free_ports(11)  # a broker's listener has a port 10 above that of the broker before
        self.bootstrap = f"127.0.0.1:{ports[0]}"
        self.admin = ports[2]
        self.overrides = [
            f"listeners=PLAINTEXT://127.0.0.1:{ports[0]},CONTROLLER://127.0.0.1:{ports[1]}",
            f"ottla.admin.listener=127.0.0.1:{self.admin}",
            f"log.dirs={directory / 'data'}",
        ]
        self.log_file = directory / "log"
        self.node: ChildNode | None = None

    def start(self) -> None:
        arguments = ["--processes", "2"] + [word for each in self.overrides for word in ("--override", each)]
        with open(self.log_file, "wb") as output:
            self.node = spawn(arguments, output)
        assert os.read(self.node.ready_fd, 64), self.log_file.read_text()

    @property
    def supervisor(self) -> subprocess.Popen[bytes]:
        assert self.node is not None
        return self.node.process

    @property
    def children(self) -> list[psutil.Process]:
        """The controller, and the brokers in their order."""
        return sorted(psutil.Process(self.supervisor.pid).children(), key=lambda child: child.create_time())

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}{path}", timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()

    def close(self) -> None:
        if self.node is not None:
            self.node.process.kill()
            self.node.process.wait()
            os.close(self.node.ready_fd)
            os.close(self.node.alive_fd)
            self.node = None


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    machine = Machine(tmp_path_factory.mktemp("machine"))
    try:
        machine.start()
        admin = AdminClient({"bootstrap.servers": machine.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 4, 1)])[TOPIC].result(60)
        producer = Producer({"bootstrap.servers": machine.bootstrap})
        for partition in range(4):
            producer.produce(TOPIC, f"record of {partition}", partition=partition)
        assert producer.flush(60) == 0
        yield machine
    finally:
        machine.close()


def consumed(machine: Machine) -> set[bytes]:
    consumer = Consumer({"bootstrap.servers": machine.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(4)])
    found: set[bytes] = set()
    deadline = time.monotonic() + 60
    while len(found) < 4 and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.add(message.value())
    consumer.close()
    return found


RECORDS = {f"record of {partition}".encode() for partition in range(4)}


def test_a_topics_partitions_are_on_both_brokers_and_clients_need_the_address_of_one(machine: Machine) -> None:
    metadata = AdminClient({"bootstrap.servers": machine.bootstrap}).list_topics(TOPIC, timeout=30)
    assert set(metadata.brokers) == {1001, 1002}
    leaders = [each.leader for each in metadata.topics[TOPIC].partitions.values()]
    assert sorted(leaders) == [1001, 1001, 1002, 1002]
    assert consumed(machine) == RECORDS


def test_the_one_admin_port_and_the_one_log_are_of_all_processes(machine: Machine) -> None:
    assert machine.get("/readyz") == (
        200,
        "[+] node 1 (controller)\n[+] node 1001 (broker-1)\n[+] node 1002 (broker-2)\n",
    )
    assert machine.get("/healthz")[0] == 200
    status, metrics = machine.get("/metrics")
    assert status == 200
    for node_id in (1, 1001, 1002):
        assert f'process_cpu_seconds_total{{node_id="{node_id}"}}' in metrics
        assert f'ottla_process_up{{node_id="{node_id}"}} 1' in metrics
    assert metrics.count("# TYPE process_cpu_seconds_total") == 1
    lines = machine.log_file.read_text().splitlines()
    assert {line.split(" ", 1)[0] for line in lines} == {"[1]", "[1001]", "[1002]", "[supervisor]"}


def test_passwords_of_the_configuration_are_in_no_childs_command_line(machine: Machine) -> None:
    assert all(child.cmdline()[-1] == "/dev/stdin" for child in machine.children)


def test_a_broker_that_hangs_fails_the_health_of_the_machine_by_name(machine: Machine) -> None:
    broker = machine.children[1]
    broker.suspend()
    try:
        status, text = machine.get("/healthz")
        assert status == 503 and "[-] node 1001 (broker-1): does not answer" in text
    finally:
        broker.resume()
    eventually(lambda: machine.get("/readyz")[0] == 200, "the broker to be back", seconds=90)


def test_a_broker_that_was_killed_starts_again_with_its_data(machine: Machine) -> None:
    controller, *brokers = machine.children
    brokers[1].kill()
    restarts = 'ottla_process_restarts_total{node_id="1002"} 1'
    eventually(lambda: restarts in machine.get("/metrics")[1], "the restart", seconds=90)
    eventually(lambda: machine.get("/readyz")[0] == 200, "the broker to be back", seconds=90)
    assert [child.pid for child in machine.children[:2]] == [controller.pid, brokers[0].pid]
    killed = sum("ended (SIGKILL), starts again in 0.5 s" in each for each in machine.log_file.read_text().splitlines())
    assert killed == 1
    assert consumed(machine) == RECORDS


def test_while_the_controller_starts_again_clients_produce_and_consume(machine: Machine) -> None:
    restarts = 'ottla_process_restarts_total{node_id="1"} 1'
    machine.children[0].kill()  # the process has been there longest: only a broker has been started again
    producer = Producer({"bootstrap.servers": machine.bootstrap})
    producer.produce(TOPIC, "record of 0", partition=0)
    assert producer.flush(60) == 0
    eventually(lambda: restarts in machine.get("/metrics")[1], "the restart", seconds=90)
    eventually(lambda: machine.get("/readyz")[0] == 200, "the controller to be back", seconds=90)
    assert consumed(machine) == RECORDS


def test_another_supervisor_on_the_same_directories_is_refused_and_harms_nothing(machine: Machine) -> None:
    words = command("start", "--processes", "2")
    for each in machine.overrides:
        words += ["--override", each]
    words += ["--override", "ottla.admin.listener="]
    done = subprocess.run(words, capture_output=True, text=True, timeout=COMMAND_SECONDS_MAX, cwd=ROOT)
    assert done.returncode == 1
    assert "did not start" in done.stdout
    assert machine.get("/readyz")[0] == 200


def test_sigterm_stops_all_in_order_and_the_next_start_recovers_nothing(machine: Machine) -> None:
    children = machine.children
    began = time.monotonic()
    machine.supervisor.send_signal(signal.SIGTERM)
    assert machine.supervisor.wait(STOP_SECONDS_MAX) == 0
    assert time.monotonic() - began < STOP_SECONDS_MAX
    assert not any(child.is_running() for child in children)
    for name in ("broker-1", "broker-2"):
        assert (machine.directory / "data" / name / ".kafka_cleanshutdown").exists()
    machine.close()
    machine.start()
    eventually(lambda: "Skipping recovery" in machine.log_file.read_text(), "the line of the log")
    assert "Beginning recovery" not in machine.log_file.read_text()
    assert consumed(machine) == RECORDS


def test_no_process_outlives_a_supervisor_that_was_killed(machine: Machine) -> None:
    children = machine.children
    assert len(children) == 3
    machine.supervisor.kill()
    machine.supervisor.wait()
    eventually(lambda: not any(_alive(child) for child in children), "all processes to be gone", seconds=60)


def _alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--processes", "0"], "--processes: '0' is not a number of brokers between 1 and 999"),
        (["--processes", "many"], "--processes: 'many' is not a number of brokers between 1 and 999"),
        (["--processes", "2", "--override", "process.roles=broker"], "process.roles=broker (--override)"),
    ],
)
def test_what_cannot_be_is_said_at_once(arguments: list[str], said: str) -> None:
    more = ["--override", "controller.quorum.voters=2@h:9093", "--override", "listeners=PLAINTEXT://:9092"]
    done = subprocess.run(
        command("start", *arguments, *more), capture_output=True, text=True, timeout=COMMAND_SECONDS_MAX, cwd=ROOT
    )
    assert done.returncode != 0 and done.stdout == "" and "Traceback" not in done.stderr
    assert said in done.stderr
