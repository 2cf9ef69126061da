"""The settings that Kafka does not have: they work, and wrong values stop the start in one sentence."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

from ottla.node.settings import control_settings
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records.batch import crc32c
from ottla.server.config.node_config import NodeConfig
from tests.broker.conftest import ROOT, Node, start_node, stop_node
from tests.broker.records import batch
from tests.ports import free_ports


def with_broken_record() -> bytes:
    """Return a batch with a valid CRC, whose only record claims a length that it does not have."""
    data = bytearray(batch([b"value"]))
    data[61] = 0x7E  # the record's length, a varint: 63
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return bytes(data)


def error_of(node: Node, records: bytes) -> int:
    request = ProduceRequest(
        acks=-1,
        timeout_ms=5_000,
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=records)])],
    )
    with node.wire() as wire:
        return int(wire.request(request, 9).responses[0].partition_responses[0].error_code)


@pytest.mark.parametrize(("setting", "expected"), [("false", ErrorCode.NONE), ("true", ErrorCode.INVALID_RECORD)])
def test_records_inside_a_batch_are_checked_when_the_broker_is_configured_so(
    tmp_path: Path, setting: str, expected: int
) -> None:
    node = start_node(tmp_path / "data", ottla_produce_validate_records=setting)
    try:
        node.create("t")
        assert error_of(node, batch([b"good"])) == ErrorCode.NONE
        assert error_of(node, with_broken_record()) == expected
    finally:
        stop_node(node)


def test_metrics_are_served_on_the_port_that_is_set(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    node = start_node(tmp_path / "data", ottla_metrics_port=str(port))
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            assert b"kafka_server_replicamanager_partitioncount" in answer.read()
        with pytest.raises(ConnectionRefusedError):  # a node that listens at all addresses would accept here, too
            socket.create_connection(("127.0.0.2", port), timeout=10).close()
    finally:
        stop_node(node)


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("ottla.metrics.port=soon", "ottla.metrics.port"),
        (
            "listener.security.protocol.map=PLAINTEXT:SASL_SSL,CONTROLLER:PLAINTEXT",
            "gssapi.sasl.jaas.config",
        ),
    ],
)
def test_what_cannot_be_served_stops_the_start_with_one_sentence(tmp_path: Path, override: str, says: str) -> None:
    command = [sys.executable, "-m", "ottla", "start"]
    for setting in (
        f"log.dirs={tmp_path / 'data'}",
        "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        override,
    ):
        command += ["--override", setting]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, cwd=ROOT)
    assert done.returncode != 0
    assert says in done.stderr + done.stdout
    assert "Traceback" not in done.stderr


def test_a_damaged_vote_file_stops_the_start_and_says_which_file_it_is(tmp_path: Path) -> None:
    stop_node(start_node(tmp_path / "data"))
    vote = next((tmp_path / "data").rglob("quorum-state"))
    vote.write_text("{not json")
    port = "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0"
    command = [sys.executable, "-m", "ottla", "start"]
    for setting in (f"log.dirs={vote.parent.parent}", port):
        command += ["--override", setting]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, cwd=ROOT)
    assert done.returncode != 0
    assert str(vote) in done.stderr + done.stdout
    assert "Traceback" not in done.stderr + done.stdout
    assert vote.read_text() == "{not json", "evidence was overwritten"


def test_brokers_of_apache_kafka_get_the_time_until_their_next_heartbeat_when_a_connection_breaks() -> None:
    properties = {"process.roles": "controller", "node.id": "1", "listeners": "CONTROLLER://:9093"}
    properties["controller.listener.names"] = "CONTROLLER"
    for own, grace_ms in (({}, 100), ({"ottla.lost.connection.grace.ms": "3000"}, 3_000)):
        assert control_settings(NodeConfig({**properties, **own}), "cluster").lost_connection_grace_ms == grace_ms
