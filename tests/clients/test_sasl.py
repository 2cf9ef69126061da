"""Stock clients log in at a node with each mechanism, and wrong passwords get Kafka's error.

Invariant 50: a changed password counts at the next login.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from cryptography.hazmat.primitives.asymmetric import rsa
from kafka import KafkaAdminClient, KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider

from ottla.__main__ import main
from ottla.local.certificates import Authority
from tests.broker.conftest import eventually
from tests.clients.sasl_node import MECHANISMS, PLAIN_LOGIN, SaslNode, add_user, started

#: The lifetime of a token whose end is waited for. On a busy machine a client takes seconds from the making of its token to its
#: first record.
LIFETIME_SECONDS = 8
OAUTH_LOGIN = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
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


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslNode]:
    directory = tmp_path_factory.mktemp("sasl")
    keys = directory / "keys.json"
    row = jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key(), as_dict=True)
    keys.write_text(json.dumps({"keys": [{**row, "kid": "k"}]}))
    oauth = {
        "listener.name.clients.sasl.enabled.mechanisms": ",".join((*MECHANISMS, "OAUTHBEARER")),
        "listener.name.clients.oauthbearer.sasl.jaas.config": f"{OAUTH_LOGIN};",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
    }
    with started(directory, oauth) as made:
        yield made


def librdkafka(node: SaslNode, mechanism: str, user: str, password: str, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": node.sasl,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        **more,
    }


def in_python(node: SaslNode, mechanism: str, user: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": node.sasl,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka_logs_in(node: SaslNode, topic: str, mechanism: str) -> None:
    producer = Producer(librdkafka(node, mechanism, *USERS[mechanism]))
    producer.produce(topic, b"v")
    assert producer.flush(20) == 0


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_logs_in(node: SaslNode, topic: str, mechanism: str) -> None:
    producer = KafkaProducer(**in_python(node, mechanism, *USERS[mechanism]))
    assert producer.send(topic, b"v").get(20).offset == 0
    producer.close()
    admin = KafkaAdminClient(**in_python(node, mechanism, *USERS[mechanism]))
    assert topic in admin.list_topics()
    admin.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_aiokafka_logs_in_and_reads_what_it_wrote(node: SaslNode, topic: str, mechanism: str) -> None:
    options = in_python(node, mechanism, *USERS[mechanism])
    async with AIOKafkaProducer(**options) as producer:
        await producer.send_and_wait(topic, b"v")
    async with AIOKafkaConsumer(topic, group_id="g", auto_offset_reset="earliest", **options) as consumer:
        assert (await consumer.getone()).value == b"v"


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_wrong_password_is_refused(node: SaslNode, mechanism: str) -> None:
    user, _ = USERS[mechanism]
    errors: list[KafkaError] = []
    admin = AdminClient(librdkafka(node, mechanism, user, "planted-wrong", error_cb=errors.append))
    is_refused(admin, errors)
    with pytest.raises(AioKafkaError):
        await AIOKafkaProducer(**in_python(node, mechanism, user, "planted-wrong")).start()


def is_refused(admin: AdminClient, errors: list[KafkaError]) -> None:
    def has_come() -> bool:
        admin.poll(0.05)
        return KafkaError._AUTHENTICATION in {error.code() for error in errors}

    eventually(has_come, "the error of the login")
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=0.2)


def test_a_password_that_is_changed_is_asked_for_at_once(node: SaslNode) -> None:
    add_user(node, "carol", b"planted-bob")
    AdminClient(librdkafka(node, "SCRAM-SHA-256", "carol", "planted-bob")).list_topics(timeout=30)
    add_user(node, "carol", b"planted-alice")
    AdminClient(librdkafka(node, "SCRAM-SHA-256", "carol", "planted-alice")).list_topics(timeout=30)
    errors: list[KafkaError] = []
    is_refused(AdminClient(librdkafka(node, "SCRAM-SHA-256", "carol", "planted-bob", error_cb=errors.append)), errors)


def test_librdkafka_logs_in_with_a_token(node: SaslNode, topic: str) -> None:
    options = {
        "bootstrap.servers": node.sasl,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (signed(), time.time() + 600),
    }
    producer = Producer(options)
    producer.produce(topic, b"v")
    assert producer.flush(20) == 0


def test_kafka_python_logs_in_with_a_token(node: SaslNode) -> None:
    KafkaAdminClient(
        bootstrap_servers=node.sasl,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Token(),
    ).close()


async def test_aiokafka_logs_in_with_a_token(node: SaslNode, topic: str) -> None:
    async with aio_with(node, 600) as producer:
        await producer.send_and_wait(topic, b"v")


@pytest.mark.parametrize(
    "token", [signed(exp=int(time.time()) - 60, iat=0), signed(iss="https://other"), signed(aud="other"), unsigned()]
)
def test_an_expired_or_unsigned_token_or_one_for_others_is_refused(node: SaslNode, token: str) -> None:
    errors: list[KafkaError] = []
    options = librdkafka(node, "OAUTHBEARER", "", "", error_cb=errors.append) | {
        "oauth_cb": lambda _: (token, time.time() + 600)
    }
    admin = AdminClient({name: value for name, value in options.items() if value != ""})
    is_refused(admin, errors)
    assert token not in node.log.read_text()


@pytest.mark.chaos
async def test_the_session_of_a_token_ends_with_it(node: SaslNode, topic: str) -> None:
    """aiokafka does not re-authenticate: its connection is closed at the first request after the end of the session, and it
    logs in again.
    """
    producer = aio_with(node, LIFETIME_SECONDS)
    await producer.start()
    await producer.send_and_wait(topic, b"v")
    await asyncio.sleep(LIFETIME_SECONDS + 1)
    assert "its session has expired" not in node.log.read_text()
    await producer.send_and_wait(topic, b"v")
    # A thread of its own writes the log.
    eventually(lambda: "its session has expired" in node.log.read_text(), "the line of the end")
    await producer.stop()


def aio_with(node: SaslNode, lifetime_s: int) -> AIOKafkaProducer:
    return AIOKafkaProducer(
        bootstrap_servers=node.sasl,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=AsyncToken(lifetime_s),
        metadata_max_age_ms=300_000,
    )


def test_a_user_of_kafka_storage_logs_in_from_the_start(tmp_path: Path) -> None:
    with started(tmp_path, {}, "--add-scram", "SCRAM-SHA-512=[name=first,password=planted-alice]") as node:
        AdminClient(librdkafka(node, "SCRAM-SHA-512", "first", "planted-alice")).list_topics(timeout=30)


async def test_clients_log_in_over_tls(tmp_path: Path) -> None:
    """With SASL_SSL the principal is that of the login, whatever certificate the client has."""
    authority = Authority.create("test")
    issued = authority.issue("node", ["localhost", "127.0.0.1"])
    (tmp_path / "node.pem").write_text(issued.key_pem + issued.chain_pem)
    (tmp_path / "ca.pem").write_text(authority.pem)
    secured = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,CLIENTS:SASL_SSL",
        "listener.name.clients.ssl.keystore.type": "PEM",
        "listener.name.clients.ssl.keystore.location": str(tmp_path / "node.pem"),
    }
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    with started(tmp_path, secured) as node:
        for mechanism, (user, password) in USERS.items():
            options = librdkafka(node, mechanism, user, password) | {
                "security.protocol": "SASL_SSL",
                "ssl.ca.location": str(tmp_path / "ca.pem"),
            }
            producer = Producer(options)
            producer.produce("secured", b"v")
            assert await asyncio.to_thread(producer.flush, 20) == 0
            in_common = in_python(node, mechanism, user, password) | {
                "security_protocol": "SASL_SSL",
                "ssl_context": context,
            }
            async with AIOKafkaProducer(**in_common) as aio:
                await aio.send_and_wait("secured", b"v")
            await asyncio.to_thread(lambda options=in_common: KafkaAdminClient(**options).close())
        wrong = librdkafka(node, "PLAIN", "alice", "planted-wrong") | {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(tmp_path / "ca.pem"),
        }
        errors: list[KafkaError] = []
        is_refused(AdminClient({**wrong, "error_cb": errors.append}), errors)
        eventually(lambda: "Failed authentication with /127.0.0.1" in node.log.read_text(), "the line of the refusal")


def test_zz_no_secret_is_in_log_configs_or_dumps(node: SaslNode, capsys: pytest.CaptureFixture[str]) -> None:
    """The tests before this one have used each mechanism, and a password is set while the node runs."""
    text = node.log.read_text()
    assert "Failed authentication with /127.0.0.1" in text
    admin = AdminClient({"bootstrap.servers": node.plaintext})
    name, broker = "listener.name.clients.plain.sasl.jaas.config", ("broker", "1")
    changed = ConfigEntry(
        name, f'{PLAIN_LOGIN} user_alice="planted-alice";', incremental_operation=AlterConfigOpType.SET
    )
    for done in admin.incremental_alter_configs([ConfigResource(*broker, incremental_configs=[changed])]).values():
        done.result(10)
    (described,) = admin.describe_configs([ConfigResource(*broker)]).values()
    shown = {entry.name: entry for entry in described.result(10).values()}
    assert shown[name].is_sensitive and shown[name].value is None
    for segment in sorted((node.log.parent / "data").rglob("*.log")):
        main(["inspect", str(segment), "--records"])
    dumps = capsys.readouterr().out
    assert name in dumps and "UserScramCredentialRecord" in dumps
    configs = "".join(f"{entry.value} {entry.synonyms}" for entry in shown.values())
    for where in (node.log.read_text(), configs, dumps):
        assert "planted-" not in where and "Bearer" not in where and "eyJ" not in where, "eyJ begins each token"
