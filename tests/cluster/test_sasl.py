"""Three nodes whose controllers and brokers log in to each other: PLAIN among controllers, SCRAM among brokers, sessions of seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kafka import KafkaConsumer

from ottla.testing import Cluster
from tests.ports import free_ports

WAIT_S = 60
SESSION_MS = 2_000
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
SECRETS = ("planted-node", "planted-alice", "planted-bob", "planted-wrong")


def properties() -> dict[str, str]:
    return {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "inter.broker.listener.name": "SASL",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": f'{PLAIN} username="node" password="planted-node" '
        'user_node="planted-node";',
        "listener.name.sasl.plain.sasl.jaas.config": f'{PLAIN} user_alice="planted-alice";',
        "listener.name.sasl.scram-sha-512.sasl.jaas.config": f'{SCRAM} username="node" password="planted-node";',
        "connections.max.reauth.ms": str(SESSION_MS),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:node;User:ANONYMOUS",
    }


class Secured:
    def __init__(self, cluster: Cluster, ports: list[int]) -> None:
        self.cluster = cluster
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports)
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap})

    def add_user(self, name: str, password: bytes) -> None:
        change = UserScramCredentialUpsertion(name, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), password)
        for done in self.admin.alter_user_scram_credentials([change]).values():
            done.result(WAIT_S)

    def create(self, topic: str) -> None:
        self.admin.create_topics([NewTopic(topic, 3, 3)])[topic].result(WAIT_S)

    def client(self, user: str, password: str, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    ports = free_ports(3)
    cluster = Cluster(directory=str(tmp_path_factory.mktemp("sasl")), min_insync_replicas="3")
    for number, port in zip(cluster.nodes, ports, strict=True):
        own = cluster._properties[number]
        own |= properties() | {"listeners": f"{own['listeners']},SASL://127.0.0.1:{port}"}
    with cluster:
        made = Secured(cluster, ports)
        made.add_user("node", b"planted-node")
        yield made


def write(config: dict[str, str], topic: str, count: int = 1) -> None:
    failures: list[object] = []
    producer = Producer({**config, "acks": "all", "message.timeout.ms": str(WAIT_S * 1000)})
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=number % 3, on_delivery=lambda e, _: failures.append(e))
    assert producer.flush(WAIT_S) == 0
    assert set(failures) == {None}


def test_records_are_replicated_among_brokers_that_log_in(secured: Secured) -> None:
    secured.create("replicated")
    write({"bootstrap.servers": secured.cluster.bootstrap}, "replicated", 30)


def test_a_principal_may_do_what_its_acls_allow(secured: Secured) -> None:
    secured.create("guarded")
    secured.add_user("bob", b"planted-bob")
    bob = secured.client("bob", "planted-bob")
    error = Producer(bob).list_topics("guarded", WAIT_S).topics["guarded"].error
    assert error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    allow = AclBinding(
        ResourceType.TOPIC,
        "guarded",
        ResourcePatternType.LITERAL,
        "User:bob",
        "*",
        AclOperation.WRITE,
        AclPermissionType.ALLOW,
    )
    for done in secured.admin.create_acls([allow]).values():
        done.result(WAIT_S)
    write(bob, "guarded", 3)


def test_a_client_and_the_nodes_outlive_their_sessions(secured: Secured) -> None:
    """Nothing that was acknowledged is lost, and no leader changes, while each connection is renewed several times."""
    secured.create("long")
    shrunk = secured.cluster.log(1).count("Shrinking ISR")
    producer = Producer({**secured.client("node", "planted-node"), "acks": "all"})
    failures: list[object] = []
    until, count = time.monotonic() + 4 * SESSION_MS / 1000, 0
    while time.monotonic() < until:
        producer.produce("long", str(count).encode(), on_delivery=lambda e, _: failures.append(e))
        count += 1
        producer.poll(0.02)
    assert producer.flush(WAIT_S) == 0 and set(failures) == {None}
    consumer = KafkaConsumer(
        "long",
        bootstrap_servers=secured.cluster.bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=WAIT_S * 1000,
    )
    assert len({next(consumer).value for _ in range(count)}) == count
    consumer.close()
    assert secured.cluster.log(1).count("Shrinking ISR") == shrunk


def test_a_node_comes_back(secured: Secured) -> None:
    secured.create("returned")
    secured.cluster.restart(2)
    secured.cluster.wait_isr("returned")
    write({"bootstrap.servers": secured.cluster.bootstrap}, "returned", 3)


def test_a_node_with_a_wrong_password_says_so(secured: Secured) -> None:
    own = secured.cluster._properties[3]
    name = "listener.name.sasl.scram-sha-512.sasl.jaas.config"
    right = own[name]
    try:
        own[name] = right.replace("planted-node", "planted-wrong")
        secured.cluster.restart(3)
        wait_for(lambda: "by SCRAM-SHA-512 failed: Authentication failed during" in secured.cluster.log(3))
    finally:
        own[name] = right
        secured.cluster.restart(3)
    secured.cluster.wait_isr("replicated")


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_zz_no_secret_is_in_a_log(secured: Secured) -> None:
    for number in secured.cluster.nodes:
        log = secured.cluster.log(number)
        assert not [secret for secret in SECRETS if secret in log]
