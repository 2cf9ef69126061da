"""A cluster with TLS and logins as `Cluster(secure=True)` and `ottla dev --secure` make it, with stock clients and the command line."""

from __future__ import annotations

import re
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer

from ottla.testing import Cluster
from tests.broker.conftest import eventually

pytestmark = pytest.mark.timeout(120)
TOPIC = "secured"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3, secure=True) as running:
        yield running


def ottla(cluster: Cluster, *words: str, config: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ottla.main", *words, "-b", cluster.bootstrap, "--timeout", "20"]
    return subprocess.run(
        [*command, "--config", config or cluster.client_file], capture_output=True, text=True, timeout=60
    )


def test_stock_clients_log_in_over_tls_and_read_what_another_has_written(cluster: Cluster) -> None:
    settings = cluster.client_settings
    producer = Producer(settings)
    producer.produce(TOPIC, b"of librdkafka")
    assert producer.flush(30) == 0
    consumer = KafkaConsumer(
        TOPIC,
        bootstrap_servers=cluster.bootstrap,
        auto_offset_reset="earliest",
        security_protocol="SASL_SSL",
        ssl_cafile=settings["ssl.ca.location"],
        sasl_mechanism="SCRAM-SHA-512",
        sasl_plain_username=settings["sasl.username"],
        sasl_plain_password=settings["sasl.password"],
        consumer_timeout_ms=30_000,
    )
    try:
        assert next(iter(consumer)).value == b"of librdkafka"
    finally:
        consumer.close()


async def test_aiokafka_logs_in_over_tls(cluster: Cluster) -> None:
    settings = cluster.client_settings
    producer = AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap,
        security_protocol="SASL_SSL",
        ssl_context=ssl.create_default_context(cafile=settings["ssl.ca.location"]),
        sasl_mechanism="SCRAM-SHA-512",
        sasl_plain_username=settings["sasl.username"],
        sasl_plain_password=settings["sasl.password"],
    )
    await producer.start()
    try:
        assert (await producer.send_and_wait("of.aiokafka", b"x")).offset == 0
    finally:
        await producer.stop()


def test_the_command_line_connects_with_the_clients_file(cluster: Cluster) -> None:
    created = ottla(cluster, "topic", "create", "by.command", "--set", "retention.ms=60000")
    assert (created.returncode, created.stderr) == (0, "")
    assert "by.command" in ottla(cluster, "topic", "list").stdout
    assert ottla(cluster, "cluster", "health").returncode == 0


def test_a_wrong_password_ends_the_command_with_the_reason_and_without_the_password(
    cluster: Cluster, tmp_path: Path
) -> None:
    text = Path(cluster.client_file).read_text()
    password = cluster.client_settings["sasl.password"]
    wrong = tmp_path / "wrong.properties"
    wrong.write_text(text.replace(password, "planted-secret"))
    done = ottla(cluster, "topic", "list", config=str(wrong))
    assert done.returncode != 0
    assert "Authentication failed" in done.stderr
    for said in (done.stdout, done.stderr, *map(cluster.log, cluster.nodes)):
        assert "planted-secret" not in said and password not in said


def test_no_password_is_in_a_list_of_processes_or_a_file_that_others_can_read(cluster: Cluster) -> None:
    passwords = planted(cluster)
    for node_id in cluster.nodes:
        process = Path("/proc") / str(cluster.pid(node_id))
        for shown in (process / "cmdline", process / "environ"):
            assert not [secret for secret in passwords if secret in shown.read_bytes()]
    readable = [path for path in Path(cluster.directory).rglob("*") if path.is_file() and path.stat().st_mode & 0o077]
    for path in readable:
        assert not [secret for secret in passwords if secret in path.read_bytes()], path


def planted(cluster: Cluster) -> set[bytes]:
    """The passwords of the users, and that of the nodes."""
    text = "".join(path.read_text() for path in Path(cluster.directory).rglob("secure/**/*.properties"))
    found = {secret.encode() for secret in re.findall(r'password="([^"]+)"', text)}
    assert len(found) == 2, "of the user admin, and of the nodes"
    return found


def test_a_plaintext_client_gets_no_answer_and_one_line_in_the_log(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "socket.timeout.ms": 2000})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=1)
    eventually(lambda: any("wants SSL" in cluster.log(node_id) for node_id in cluster.nodes), "the line")


def test_users_and_data_survive_a_kill_of_a_node_and_of_all(cluster: Cluster) -> None:
    producer = Producer(cluster.client_settings | {"acks": "all"})
    producer.produce("kept", b"1")
    assert producer.flush(30) == 0
    for node_id in cluster.nodes:
        cluster.kill(node_id)
    cluster.start(*cluster.nodes)
    consumer = Consumer(cluster.client_settings | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["kept"])
    read: list[bytes | None] = []

    def poll() -> bool:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            read.append(message.value())
        return bool(read)

    try:
        eventually(poll, "the record", 60)
        assert read == [b"1"]
    finally:
        consumer.close()
    assert cluster.leaders("kept")[0] in cluster.nodes
