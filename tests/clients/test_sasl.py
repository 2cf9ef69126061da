"""Stock clients log in at a node with each mechanism, and wrong passwords get Kafka's error."""

from __future__ import annotations

import asyncio
import base64
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jwt
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from cryptography.hazmat.primitives.asymmetric import rsa
from kafka import KafkaAdminClient, KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider

from tests.ports import free_ports

READY = "Kafka Server started"
PLANTED = ("planted-admin", "planted-alice", "planted-bob", "planted-wrong")
PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
OAUTH_LOGIN = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
USERS = {
    "PLAIN": ("alice", "planted-alice"),
    "SCRAM-SHA-256": ("bob", "planted-bob"),
    "SCRAM-SHA-512": ("bob", "planted-bob"),
}


KEY = rsa.generate_private_key(65537, 2048)
ISSUER, AUDIENCE = "https://idp", "kafka"


def signed(**changes: object) -> str:
    now_s = int(time.time())
    claims = {"sub": "dora", "iss": ISSUER, "aud": AUDIENCE, "iat": now_s, "exp": now_s + 600, **changes}
    return jwt.encode(claims, KEY, "RS256", headers={"kid": "k"})


def unsigned() -> str:
    parts = ({"alg": "none"}, {"sub": "dora", "iss": ISSUER, "aud": AUDIENCE, "iat": 0, "exp": 2**33})
    encoded = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts)
    return ".".join([*encoded, ""])


class Token(AbstractTokenProvider):
    def token(self) -> str:
        return signed()


class AsyncToken(AioTokenProvider):
    def __init__(self, lifetime_s: int) -> None:
        self._lifetime_s = lifetime_s

    async def token(self) -> str:
        return signed(exp=int(time.time()) + self._lifetime_s)


class Node(NamedTuple):
    plaintext: str
    sasl: str
    log: Path


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node with a listener for clients that log in, and one for this test."""
    directory = tmp_path_factory.mktemp("sasl")
    plaintext, controller, sasl = free_ports(3)
    keys = directory / "keys.json"
    row = jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key(), as_dict=True)
    keys.write_text(json.dumps({"keys": [{**row, "kid": "k"}]}))
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
        "sasl.enabled.mechanisms": ",".join((*MECHANISMS, "OAUTHBEARER")),
        "listener.name.clients.oauthbearer.sasl.jaas.config": f"{OAUTH_LOGIN};",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
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


def test_librdkafka_logs_in_with_a_token(node: Node, topic: str) -> None:
    options = {
        "bootstrap.servers": node.sasl,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (signed(), time.time() + 600),
    }
    producer = Producer(options)
    producer.produce(topic, b"v")
    assert producer.flush(20) == 0


def test_kafka_python_logs_in_with_a_token(node: Node) -> None:
    KafkaAdminClient(
        bootstrap_servers=node.sasl,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Token(),
    ).close()


async def test_aiokafka_logs_in_with_a_token(node: Node, topic: str) -> None:
    async with aio_with(node, 600) as producer:
        await producer.send_and_wait(topic, b"v")


@pytest.mark.parametrize(
    "token", [signed(exp=int(time.time()) - 60, iat=0), signed(iss="https://other"), signed(aud="other"), unsigned()]
)
def test_an_expired_or_unsigned_token_or_one_for_others_is_refused(node: Node, token: str) -> None:
    errors: list[KafkaError] = []
    options = librdkafka(node, "OAUTHBEARER", "", "", error_cb=errors.append) | {
        "oauth_cb": lambda _: (token, time.time() + 600)
    }
    admin = AdminClient({name: value for name, value in options.items() if value != ""})
    admin.poll(0)
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=2)
    admin.poll(0)
    assert KafkaError._AUTHENTICATION in {error.code() for error in errors}
    assert token not in node.log.read_text()


async def test_the_session_of_a_token_ends_with_it(node: Node, topic: str) -> None:
    """aiokafka does not re-authenticate: its connection is closed at the first request after the end, and it logs in again."""
    producer = aio_with(node, 2)
    await producer.start()
    await producer.send_and_wait(topic, b"v")
    await asyncio.sleep(3)
    assert "its session has expired" not in node.log.read_text()
    await producer.send_and_wait(topic, b"v")
    assert "its session has expired" in node.log.read_text()
    await producer.stop()


def aio_with(node: Node, lifetime_s: int) -> AIOKafkaProducer:
    return AIOKafkaProducer(
        bootstrap_servers=node.sasl,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=AsyncToken(lifetime_s),
        request_timeout_ms=2_000,
        metadata_max_age_ms=300_000,
    )


def test_zz_no_secret_is_in_the_log(node: Node) -> None:
    text = node.log.read_text()
    assert "Failed authentication with /127.0.0.1" in text
    assert not [secret for secret in PLANTED if secret in text]
