"""A node starts, stops, dies and comes back: acknowledged records are there, and wrong directories are rejected."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from glob import glob
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.records.batch import BatchView
from ottla.server.network.limits import UNKNOWN_NS
from tests.broker.conftest import ROOT, Node, eventually, start_node, stop_node


@pytest.fixture
def nodes() -> Iterator[list[Node]]:
    """Yield the list of started nodes, which are stopped after the test."""
    started: list[Node] = []
    yield started
    for node in started:
        stop_node(node)


def start(nodes: list[Node], directory: Path, port: int = 0, **properties: str) -> Node:
    node = start_node(directory, port, **properties)
    nodes.append(node)
    return node


def read_all(node: Node, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    deadline = time.monotonic() + 40
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    while len(values) < max(end, count) and time.monotonic() < deadline:
        for message in consumer.consume(500, 0.2):
            assert message.error() is None, message.error()
            values.append(message.value() or b"")
    consumer.close()
    return values


def gone(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_clean_restart_keeps_records_topics_and_ids(nodes: list[Node], tmp_path: Path) -> None:
    node = start(nodes, tmp_path)
    node.create("kept", retention_ms="123456789")
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for i in range(100):
        producer.produce("kept", str(i).encode())
    assert producer.flush(10) == 0
    assert stop_node(node) == 0
    assert (node.dir / "data" / ".kafka_cleanshutdown").exists()
    again = start(nodes, tmp_path, node.port)
    assert read_all(again, "kept", 100) == [str(i).encode() for i in range(100)]
    assert not (node.dir / "data" / ".kafka_cleanshutdown").exists()  # a kill from here on counts as a crash


def test_kill_9_under_an_idempotent_producer_loses_and_doubles_nothing(nodes: list[Node], tmp_path: Path) -> None:
    node = start(nodes, tmp_path)
    node.create("killed")
    acknowledged: list[tuple[int, int]] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        acknowledged.append((message.offset() or 0, int(message.value() or b"-1")))

    producer = Producer(
        {
            "bootstrap.servers": node.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 1,
            "reconnect.backoff.max.ms": 200,
        }
    )
    stop = threading.Event()
    sent = 0

    def produce() -> None:
        nonlocal sent
        while not stop.is_set():
            producer.produce("killed", str(sent).encode(), on_delivery=on_delivery)
            sent += 1
            producer.poll(0.001)  # poll takes whole milliseconds only

    writer = threading.Thread(target=produce)
    writer.start()
    for _ in range(3):
        before = len(acknowledged)
        eventually(lambda before=before: len(acknowledged) > before + 200, "some acknowledged records")
        os.kill(node.pid, signal.SIGKILL)
        node.process.wait(30)
        node = start(nodes, tmp_path, node.port)
    before = len(acknowledged)
    eventually(lambda: len(acknowledged) > before + 200, "records after the last restart")
    stop.set()
    writer.join()
    assert producer.flush(20) == 0
    values = [int(value) for value in read_all(node, "killed", sent)]
    assert values == list(range(sent))
    assert all(values[offset] == value for offset, value in acknowledged)


def test_producer_state_survives_a_restart(nodes: list[Node], tmp_path: Path) -> None:
    from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
    from tests.broker.records import batch

    def send(node: Node, sequence: int) -> tuple[int, int]:
        records = batch([b"v"], producer_id=5, producer_epoch=0, base_sequence=sequence)
        request = ProduceRequest(
            acks=-1,
            timeout_ms=5000,
            topic_data=[TopicProduceData(name="p", partition_data=[PartitionProduceData(index=0, records=records)])],
        )
        with node.wire() as wire:
            answer = wire.request(request, 9).responses[0].partition_responses[0]
            return answer.error_code, answer.base_offset

    node = start(nodes, tmp_path)
    node.create("p")
    assert [send(node, i) for i in range(3)] == [(0, 0), (0, 1), (0, 2)]
    os.kill(node.pid, signal.SIGKILL)
    node.process.wait(30)
    again = start(nodes, tmp_path, node.port)
    assert send(again, 2) == (0, 2)  # a retry of the acknowledged batch
    assert send(again, 3) == (0, 3)
    assert send(again, 9)[0] == 45  # 45 is OUT_OF_ORDER_SEQUENCE_NUMBER


def test_retention_removes_old_segments_and_moves_the_start(nodes: list[Node], tmp_path: Path) -> None:
    node = start(nodes, tmp_path, log_retention_check_interval_ms="100", log_segment_delete_delay_ms="0")
    node.create("aging", retention_bytes="1", segment_bytes=str(1 << 20))
    producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 0})
    for _ in range(40):
        producer.produce("aging", os.urandom(100_000))
        producer.flush(10)
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "x"})
    where = TopicPartition("aging", 0)
    eventually(lambda: consumer.get_watermark_offsets(where, timeout=30)[0] > 0, "the first segment to go")
    low, high = consumer.get_watermark_offsets(where, timeout=30)
    assert 0 < low < high == 40
    consumer.close()
    log_dir = node.dir / "data" / "aging-0"
    eventually(lambda: len(list(log_dir.glob("*.log"))) == 1, "the files to go")


def test_a_slow_reader_gets_all_it_asked_for_although_the_files_are_deleted_meanwhile(
    nodes: list[Node], tmp_path: Path
) -> None:
    """The response is views of a mapped file. The transport writes as much of them as the socket takes, again and again."""
    node = start(nodes, tmp_path, log_retention_check_interval_ms="100", log_segment_delete_delay_ms="0")
    node.create("vanishing")
    sent = [random.Random(number).randbytes(900_000) for number in range(9)]
    producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 0})
    for value in sent:
        producer.produce("vanishing", value)
        producer.flush(10)
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10 << 20)
    with node.wire() as wire:
        wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        request = FetchRequest(session_epoch=-1, topics=[FetchTopic(topic="vanishing", partitions=[partition])])
        fetched = wire.send(request, 12)
        assert len(wire.sock.recv(4, socket.MSG_PEEK | socket.MSG_WAITALL)) == 4, "the response has begun"
        with node.wire() as other:
            other.request(DeleteTopicsRequest(topics=[DeleteTopicState(name="vanishing")], timeout_ms=5000))
        files = f"{node.dir}/data/vanishing*/*.log"  # for glob.glob: Path.glob fails when a folder vanishes
        eventually(lambda: not glob(files), "the files to go")
        records = memoryview(wire.receive(*fetched).responses[0].partitions[0].records)
    received, position = [], 0
    while position < len(records):
        view = BatchView(records, position)
        received += [record.value for record in view.records()]
        position += view.size
    assert received == sent


def test_the_node_ends_when_ottla_dev_is_killed(tmp_path: Path) -> None:
    node = start_node(tmp_path)
    os.kill(node.process.pid, signal.SIGKILL)
    node.process.wait(10)
    eventually(lambda: gone(node.pid), "the node to follow its parent")
    assert (node.dir / "data" / ".kafka_cleanshutdown").exists()


def test_a_temporary_directory_goes_with_ottla_dev() -> None:
    node = start_node()
    assert node.dir.exists()
    assert stop_node(node) == 0
    assert not node.dir.exists()


def run_start(*overrides: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "ottla", "start"]
    for override in overrides:
        command += ["--override", override]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, timeout=30, env=environment, check=False)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("node.id=2", "belongs to node 1"),
        ("cluster.id=AAAAAAAAAAAAAAAAAAAAAA", "belongs to cluster"),
    ],
)
def test_a_directory_of_another_node_or_cluster_is_refused(tmp_path: Path, override: str, said: str) -> None:
    node = start_node(tmp_path)
    stop_node(node)
    failed = run_start(f"log.dirs={node.dir / 'data'}", "listeners=PLAINTEXT://:0,CONTROLLER://:25091", override)
    assert failed.returncode == 1
    assert said in failed.stderr
    assert "Traceback" not in failed.stderr + failed.stdout


def test_a_directory_that_is_none_of_ours_is_not_formatted(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    failed = run_start(f"log.dirs={tmp_path}", "listeners=PLAINTEXT://:0,CONTROLLER://:25091")
    assert failed.returncode == 1
    assert "not empty" in failed.stderr
    assert not (tmp_path / "meta.properties").exists()


def test_a_directory_in_use_is_refused(nodes: list[Node], tmp_path: Path) -> None:
    node = start(nodes, tmp_path)
    failed = run_start(f"log.dirs={node.dir / 'data'}", "listeners=PLAINTEXT://:0,CONTROLLER://:25091")
    assert failed.returncode == 1
    assert "Traceback" not in failed.stderr + failed.stdout


def test_a_wrong_value_is_explained_without_a_traceback(tmp_path: Path) -> None:
    failed = run_start(f"log.dirs={tmp_path}", "num.partitions=many")
    assert failed.returncode == 1
    assert "num.partitions" in failed.stderr
    assert "Traceback" not in failed.stderr + failed.stdout


def test_idle_sockets_take_no_descriptor_from_the_files_and_keep_no_client_out(tmp_path: Path) -> None:
    node = start_node(tmp_path, open_files=(128, 400))
    idle = []
    try:
        assert psutil.Process(node.pid).rlimit(psutil.RLIMIT_NOFILE) == (400, 400), "raised, as the JVM does"
        for _ in range(500):
            sock = socket.socket()
            sock.setblocking(False)
            sock.connect_ex(("127.0.0.1", node.port))
            idle.append(sock)
        eventually(lambda: reaches(node), "a client's connection that is served")
        node.create("t", partitions=20)
        producer = Producer({"bootstrap.servers": node.bootstrap})
        for partition in range(20):
            producer.produce("t", b"x", partition=partition)
        assert producer.flush(20) == 0
        assert node.process.poll() is None and "Too many open files" not in (node.dir / "server.log").read_text()
    finally:
        for sock in idle:
            sock.close()
        assert stop_node(node) == 0


@pytest.mark.chaos
def test_a_crowd_that_came_while_a_full_node_was_stopped_takes_no_descriptor_from_the_files(tmp_path: Path) -> None:
    """The idle connections from before had had their time. Before the fix each of them made way for another one, faster than
    the loop closes sockets.
    """
    node = start_node(tmp_path, open_files=(128, 400))
    idle: list[socket.socket] = []
    try:
        for count in (200, 300):
            os.kill(node.pid, signal.SIGSTOP)
            for _ in range(count):
                idle.append(socket.socket())
                idle[-1].setblocking(False)
                idle[-1].connect_ex(("127.0.0.1", node.port))
            time.sleep(UNKNOWN_NS / 1e9 + 0.2)
            os.kill(node.pid, signal.SIGCONT)
            eventually(lambda: reaches(node), "a client's connection that is served")
        assert node.process.poll() is None and "Too many open files" not in (node.dir / "server.log").read_text()
    finally:
        for sock in idle:
            sock.close()
        assert stop_node(node) == 0


def reaches(node: Node) -> bool:
    try:
        with node.wire() as wire:
            return bool(wire.request(MetadataRequest(topics=[]), 12))
    except OSError:
        return False
