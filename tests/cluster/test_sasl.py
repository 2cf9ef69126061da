"""Three nodes whose controllers and brokers log in to each other: PLAIN among controllers, SCRAM among brokers, sessions of seconds."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
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

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from ottla.protocol.messages.describe_acls import DescribeAclsRequest
from ottla.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.server.network.client import Channel
from ottla.server.network.wire import ChannelClosed
from ottla.testing import Cluster
from tests.clients.channels import Channels, channels
from tests.cluster.shared import STEADY, make_topics
from tests.ports import free_ports

WAIT_S = 30
SESSION_MS = 2_000
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
#: The time that a busy machine may need besides the measured time.
BUSY_S = 20
MECHANISM = "SCRAM-SHA-512"
SECRETS = ("planted-",)


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
        "delegation.token.secret.key": "planted-key",
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
        make_topics(self.admin, NewTopic(topic, 3, 3))

    def allow(self, user: str, topic: str) -> AclBinding:
        literal = ResourcePatternType.LITERAL
        entry = AclBinding(
            ResourceType.TOPIC, topic, literal, f"User:{user}", "*", AclOperation.WRITE, AclPermissionType.ALLOW
        )
        for done in self.admin.create_acls([entry]).values():
            done.result(WAIT_S)
        # The controller answers. A broker that has not replayed the entry yet rejects requests, as Kafka's does.
        assert all(asyncio.run(know_acls_of(f"User:{user}", address)) for address in self.cluster.bootstrap.split(","))
        return entry

    def client(self, user: str, password: str, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }


@contextlib.contextmanager
def started(directory: str) -> Iterator[Secured]:
    ports = free_ports(3)
    cluster = Cluster(directory=directory, min_insync_replicas="3", **STEADY)
    for number, port in zip(cluster.nodes, ports, strict=True):
        own = cluster._properties[number]
        own |= properties() | {"listeners": f"{own['listeners']},SASL://127.0.0.1:{port}"}
    with cluster:
        made = Secured(cluster, ports)
        made.add_user("node", b"planted-node")
        yield made


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with started(str(tmp_path_factory.mktemp("sasl"))) as made:
        yield made


class Sending:
    """A load on all partitions of a topic, with the acknowledgements, and the errors that the client has seen."""

    def __init__(self, config: dict[str, str], topic: str) -> None:
        self.accepted, self.accepted_at = 0, 0.0
        self.refused: dict[int, int] = {}
        self.errors: set[int] = set()
        self._topic = topic
        self._config = {**config, "acks": "all", "linger.ms": 0, "error_cb": self._failed}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Sending:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        producer, number = Producer(self._config), 0
        while not self._stop.is_set():
            try:
                producer.produce(self._topic, b"x", partition=number % 3, on_delivery=self._delivered)
            except KafkaException as error:
                # librdkafka itself rejects a record once its metadata says that the topic is not authorized.
                self.refused[number % 3] = error.args[0].code()
            producer.poll(0.01)
            number += 1
        producer.purge()

    def _failed(self, error: KafkaError) -> None:
        self.errors.add(error.code())

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.accepted, self.accepted_at = self.accepted + 1, time.monotonic()
        else:
            self.refused[message.partition()] = error.code()

    def wait(self, more: int) -> None:
        enough = self.accepted + more
        wait_for(lambda: self.accepted >= enough)


async def know_acls_of(principal: str, address: str) -> bool:
    """Wait for an ACL of the principal; return whether the node at the address has replayed one in time."""
    wanted = DescribeAclsRequest(1, None, 1, principal, None, 1, 1)
    async with channels(address) as to:
        node, began = to.anonymous(address), time.monotonic()
        while time.monotonic() - began < WAIT_S:
            if (await node.request(wanted)).resources:
                return True
            await asyncio.sleep(0.02)
    return False


def can_log_in(config: dict[str, str]) -> bool:
    errors: list[KafkaError] = []
    admin = AdminClient({**config, "error_cb": errors.append})
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        if KafkaError._AUTHENTICATION in {error.code() for error in errors}:
            return False
        with contextlib.suppress(KafkaException):
            admin.list_topics(timeout=0.5)
            return True
        admin.poll(0)
    raise AssertionError("neither accepted nor refused")


def write(config: dict[str, str], topic: str, count: int = 1) -> None:
    failures: list[object] = []
    producer = Producer({**config, "acks": "all", "message.timeout.ms": "20000"})
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
    secured.allow("bob", "guarded")
    write(bob, "guarded", 3)


@pytest.mark.chaos
def test_a_client_and_the_nodes_outlive_their_sessions(secured: Secured) -> None:
    """No acknowledged record is lost, and no leader changes, while each connection is renewed several times."""
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
    seen: set[bytes] = set()
    while len(seen) < count:
        seen.add(next(consumer).value)
    consumer.close()
    assert secured.cluster.log(1).count("Shrinking ISR") == shrunk


def test_a_changed_password_ends_sessions_at_their_re_authentication_and_is_asked_for_at_once(secured: Secured) -> None:
    secured.create("changed")
    secured.add_user("carol", b"planted-carol")
    secured.allow("carol", "changed")
    with Sending(secured.client("carol", "planted-carol"), "changed") as load:
        load.wait(20)
        secured.add_user("carol", b"planted-changed")
        changed = time.monotonic()
        wait_for(lambda: not can_log_in(secured.client("carol", "planted-carol")))
        for address in secured.bootstrap.split(","):  # each node reads of the change for itself
            changed_there = {**secured.client("carol", "planted-changed"), "bootstrap.servers": address}
            wait_for(lambda config=changed_there: can_log_in(config))
        wait_for(lambda: KafkaError._AUTHENTICATION in load.errors)
        ended = time.monotonic() - changed
        with Sending(secured.client("carol", "planted-changed"), "changed") as other:
            other.wait(20)
    # A session that its client is too slow to renew ends as well: the client connects again.
    assert KafkaError._AUTHENTICATION not in other.errors and not load.refused and not other.refused
    assert ended < SESSION_MS / 1000 + BUSY_S, "a session ends with its time; the rest is what a busy machine takes"


def test_an_acl_that_is_removed_stops_a_load_on_all_nodes(secured: Secured) -> None:
    secured.create("taken")
    secured.add_user("dave", b"planted-dave")
    entry = secured.allow("dave", "taken")
    with Sending(secured.client("dave", "planted-dave"), "taken") as load:
        load.wait(30)
        same = AclBindingFilter(
            entry.restype, entry.name, entry.resource_pattern_type, entry.principal, entry.host, entry.operation, entry.permission_type
        )  # fmt: skip
        for done in secured.admin.delete_acls([same]).values():
            done.result(WAIT_S)
        removed = time.monotonic()
        wait_for(lambda: load.refused.keys() == {0, 1, 2})
    assert set(load.refused.values()) == {KafkaError.TOPIC_AUTHORIZATION_FAILED}
    assert load.accepted_at - removed < BUSY_S, (
        "on a quiet machine after a few milliseconds; in each case nothing later"
    )


async def test_a_delegation_token_that_is_expired_ends_on_all_nodes(secured: Secured) -> None:
    """New logins fail at once; sessions end at their re-authentication."""
    addresses = secured.bootstrap.split(",")
    async with channels(addresses[0]) as to:
        owner = to.plain("alice")
        made = await owner.request(CreateDelegationTokenRequest())
        assert made.error_code == ErrorCode.NONE
        assert [await until(to, made, address, is_served=True) for address in addresses]
        sessions = [to.token(MECHANISM, made, address=address) for address in addresses]
        for session in sessions:
            await session.request(MetadataRequest(topics=[]))
        assert (await owner.request(ExpireDelegationTokenRequest(made.hmac, -1))).error_code == ErrorCode.NONE
        assert [await until(to, made, address, is_served=False) for address in addresses]
        assert [await is_refused(session) for session in sessions] == [True] * len(sessions)


async def is_refused(session: Channel) -> bool:
    """Return whether the re-authentication of the session is rejected in time. If the session ends before the response, the
    next login counts.
    """
    began = time.monotonic()
    while time.monotonic() - began < SESSION_MS / 1000 + BUSY_S:
        try:
            await session.request(MetadataRequest(topics=[]))
        except ChannelClosed as closed:
            if "due to invalid credentials" in str(closed):
                return True
            assert "has ended" in str(closed)
        await asyncio.sleep(0.05)
    return False


async def until(to: Channels, made: CreateDelegationTokenResponse, address: str, *, is_served: bool) -> bool:
    """Log in by the token, with a new connection each time, until the node has seen the change."""
    began = time.monotonic()
    while time.monotonic() - began < BUSY_S:
        try:
            await to.token(MECHANISM, made, address=address).request(MetadataRequest(topics=[]))
        except ChannelClosed as closed:
            assert "due to invalid credentials" in str(closed)
            if not is_served:
                return True
        else:
            if is_served:
                return True
        await asyncio.sleep(0.02)
    return False


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
