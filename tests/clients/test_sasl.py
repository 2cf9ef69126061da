"""Stock clients log in at a node with each mechanism, and wrong passwords get Kafka's error."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from kafka import KafkaAdminClient, KafkaProducer
from kafka.errors import KafkaError as PythonKafkaError
from kafka.net.sasl.oauth import AbstractTokenProvider

from tests.ports import free_ports

READY = "Kafka Server started"
PLANTED = ("planted-admin", "planted-alice", "planted-bob", "planted-wrong")
PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
USERS = {
    "PLAIN": ("alice", "planted-alice"),
    "SCRAM-SHA-256": ("bob", "planted-bob"),
    "SCRAM-SHA-512": ("bob", "planted-bob"),
}


class Token(AbstractTokenProvider):
    def token(self) -> str:
        return "a-token"


class Node(NamedTuple):
    plaintext: str
    sasl: str
    log: Path


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node with a listener for clients that log in, and one for this test."""
    directory = tmp_path_factory.mktemp("sasl")
    plaintext, controller, sasl = free_ports(3)
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{plaintext},CONTROLLER://127.0.0.1:{controller},CLIENTS://127.0.0.1:{sasl}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
        "log.dirs": str(directory / "data"),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.clients.plain.sasl.jaas.config": f'{PLAIN_LOGIN} username="admin" password="planted-admin" '
        'user_admin="planted-admin" user_alice="planted-alice";',
    }
    file, log = directory / "server.properties", directory / "log"
    file.write_text("".join(f"{name}={text}\n" for name, text in properties.items()))
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "ottla.main", "start", str(file)], stdout=output, stderr=output
        )
    try:
        deadline = time.monotonic() + 30
        while READY not in log.read_text():
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
        made = Node(f"127.0.0.1:{plaintext}", f"127.0.0.1:{sasl}", log)
        add_user(made, "bob", b"planted-bob")
        yield made
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0, "the node did not stop cleanly"


def add_user(node: Node, user: str, password: bytes) -> None:
    admin = AdminClient({"bootstrap.servers": node.plaintext})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        change = UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4096), password)
        for done in admin.alter_user_scram_credentials([change]).values():
            done.result(10)


def librdkafka(node: Node, mechanism: str, user: str, password: str, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": node.sasl,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        **more,
    }


def in_python(node: Node, mechanism: str, user: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": node.sasl,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka_logs_in(node: Node, topic: str, mechanism: str) -> None:
    producer = Producer(librdkafka(node, mechanism, *USERS[mechanism]))
    producer.produce(topic, b"v")
    assert producer.flush(20) == 0


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_logs_in(node: Node, topic: str, mechanism: str) -> None:
    producer = KafkaProducer(**in_python(node, mechanism, *USERS[mechanism]))
    assert producer.send(topic, b"v").get(20).offset == 0
    producer.close()
    admin = KafkaAdminClient(**in_python(node, mechanism, *USERS[mechanism]))
    assert topic in admin.list_topics()
    admin.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_aiokafka_logs_in_and_reads_what_it_wrote(node: Node, topic: str, mechanism: str) -> None:
    options = in_python(node, mechanism, *USERS[mechanism])
    async with AIOKafkaProducer(**options) as producer:
        await producer.send_and_wait(topic, b"v")
    async with AIOKafkaConsumer(topic, group_id="g", auto_offset_reset="earliest", **options) as consumer:
        assert (await consumer.getone()).value == b"v"


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_wrong_password_is_refused(node: Node, mechanism: str) -> None:
    user, _ = USERS[mechanism]
    errors: list[KafkaError] = []
    admin = AdminClient(librdkafka(node, mechanism, user, "planted-wrong", error_cb=errors.append))
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=2)
    admin.poll(0)
    assert KafkaError._AUTHENTICATION in {error.code() for error in errors}
    with pytest.raises(AioKafkaError):
        await AIOKafkaProducer(**in_python(node, mechanism, user, "planted-wrong")).start()


def test_a_password_that_is_changed_is_asked_for_at_once(node: Node) -> None:
    add_user(node, "carol", b"planted-bob")
    AdminClient(librdkafka(node, "SCRAM-SHA-256", "carol", "planted-bob")).list_topics(timeout=10)
    add_user(node, "carol", b"planted-alice")
    AdminClient(librdkafka(node, "SCRAM-SHA-256", "carol", "planted-alice")).list_topics(timeout=10)
    with pytest.raises(KafkaException):
        AdminClient(librdkafka(node, "SCRAM-SHA-256", "carol", "planted-bob")).list_topics(timeout=1)


def test_an_unknown_mechanism_is_refused(node: Node) -> None:
    with pytest.raises(PythonKafkaError):
        KafkaAdminClient(
            bootstrap_servers=node.sasl,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Token(),
            bootstrap_timeout_ms=2_000,
        )


def test_zz_no_secret_is_in_the_log(node: Node) -> None:
    text = node.log.read_text()
    assert "Failed authentication with /127.0.0.1" in text
    assert not [secret for secret in PLANTED if secret in text]
