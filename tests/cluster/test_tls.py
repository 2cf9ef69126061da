"""Three nodes whose brokers, controllers and clients speak TLS with certificates on both sides; stock clients; rotation under load."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import aiokafka
import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from cryptography import x509
from kafka import KafkaConsumer, KafkaProducer

from ottla.local.certificates import Authority, Issued
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.testing import Cluster
from tests.broker.wire import Wire
from tests.cluster.shared import STEADY, make_topics
from tests.ports import free_ports
from tests.server.tiny_node import heartbeat

SECRET = "a secret that stands nowhere"
WAIT_S = 30


def node_properties(directory: Path, number: int, authority: Authority) -> dict[str, str]:
    """Return the properties of a node. All its ports use TLS, except the one by which the test itself reads metadata."""
    write_key_store(directory, number, authority.issue(f"node-{number}", ["localhost", "127.0.0.1"]))
    (directory / "ca.pem").write_text(authority.pem)
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / f"node-{number}.pem"),
        "ssl.key.password": SECRET,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "ca.pem"),
        "ssl.client.auth": "required",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TLS:SSL,CONTROLLER:SSL",
        "inter.broker.listener.name": "TLS",
    }


def write_key_store(directory: Path, number: int, issued: Issued) -> None:
    path = directory / f"node-{number}.pem"
    new = path.with_suffix(".new")
    new.write_text(issued.encrypted_key_pem(SECRET) + issued.chain_pem)
    new.rename(path)


class Secured:
    """A cluster with TLS, and what its clients need."""

    def __init__(self, directory: Path, cluster: Cluster, authority: Authority, ports: list[int]) -> None:
        self.directory = directory
        self.cluster = cluster
        self.authority = authority
        self.ports = ports
        self.bootstrap = ",".join(f"localhost:{port}" for port in ports)
        self.ca = str(directory / "ca.pem")
        self.certificate = str(directory / "client.pem")
        self.key = str(directory / "client.key")
        client = authority.issue("client")
        Path(self.certificate).write_text(client.chain_pem)
        Path(self.key).write_text(client.key_pem)

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca)
        context.load_cert_chain(self.certificate, self.key)
        return context

    @property
    def librdkafka(self) -> dict[str, str]:
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SSL",
            "ssl.ca.location": self.ca,
            "ssl.certificate.location": self.certificate,
            "ssl.key.location": self.key,
        }


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("tls")
    authority = Authority.create("test CA")
    (base, *_) = free_ports(300)
    per_node = {}
    for number in (1, 2, 3):
        plain, tls, controller = (base + step + number - 1 for step in (0, 50, 100))
        per_node[number] = node_properties(directory, number, authority) | {
            "listeners": f"PLAINTEXT://127.0.0.1:{plain},TLS://localhost:{tls},CONTROLLER://127.0.0.1:{controller}",
        }
    with Cluster(3, directory=str(directory / "cluster"), base_port=base, per_node=per_node, **STEADY) as cluster:
        yield Secured(directory, cluster, authority, [base + 50 + index for index in range(3)])


def test_stock_clients_produce_and_consume_with_certificates(secured: Secured) -> None:
    admin = AdminClient(secured.librdkafka)
    make_topics(admin, NewTopic("t", 6, 3))
    producer = confluent_kafka.Producer(secured.librdkafka)
    for number in range(1000):
        producer.produce("t", str(number))
    assert producer.flush(WAIT_S) == 0
    kafka_python = {
        "bootstrap_servers": secured.bootstrap.split(","),
        "security_protocol": "SSL",
        "ssl_cafile": secured.ca,
        "ssl_certfile": secured.certificate,
        "ssl_keyfile": secured.key,
    }
    consumer = KafkaConsumer("t", auto_offset_reset="earliest", consumer_timeout_ms=WAIT_S * 1000, **kafka_python)
    seen = {int(next(consumer).value) for _ in range(1000)}
    assert seen == set(range(1000))
    consumer.close()
    python_producer = KafkaProducer(acks="all", **kafka_python)
    python_producer.send("t", b"1000").get(WAIT_S)
    python_producer.close()
    asyncio.run(check_aiokafka(secured))
    assert {each.host for each in admin.list_topics(timeout=WAIT_S).brokers.values()} == {"localhost"}
    for number in (1, 2, 3):
        assert "ERROR" not in secured.cluster.log(number)


async def check_aiokafka(secured: Secured) -> None:
    settings = {"bootstrap_servers": secured.bootstrap, "security_protocol": "SSL", "ssl_context": secured.context()}
    async with aiokafka.AIOKafkaProducer(acks="all", **settings) as producer:
        await producer.send_and_wait("t", b"1001")
    async with aiokafka.AIOKafkaConsumer("t", auto_offset_reset="earliest", **settings) as consumer:
        seen = {int((await asyncio.wait_for(consumer.getone(), WAIT_S)).value) for _ in range(1002)}
    assert seen == set(range(1002))


def test_a_client_without_a_certificate_or_with_one_of_another_authority_is_not_let_in(secured: Secured) -> None:
    other = Authority.create("other").issue("client")
    context = ssl.create_default_context(cafile=secured.ca)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        exchange(secured, context)
    with private_pem(secured, other) as path:
        context.load_cert_chain(path)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            exchange(secured, context)
    for reason in ("peer did not return a certificate", "the peer's certificate is not accepted: self-signed"):
        wait_for(lambda reason=reason: f"SSL handshake failed: {reason}" in secured.cluster.log(1))
    assert SECRET not in secured.cluster.log(1)


def test_the_command_line_takes_the_client_properties_of_kafkas_tools(secured: Secured) -> None:
    file = secured.directory / "client.properties"
    file.write_text(
        "security.protocol=SSL\nssl.keystore.type=PEM\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={secured.ca}\nssl.keystore.location={secured.directory / 'client-store.pem'}\n"
    )
    (secured.directory / "client-store.pem").write_text(
        Path(secured.key).read_text() + Path(secured.certificate).read_text()
    )
    ottla = [sys.executable, "-m", "ottla", "topic", "list", "--bootstrap", secured.bootstrap]
    topics = [
        sys.executable,
        "-m",
        "ottla.cli.shims",
        "kafka-topics",
        "--bootstrap-server",
        secured.bootstrap,
        "--list",
    ]
    for command in ([*ottla, "--config"], [*topics, "--command-config"]):
        done = subprocess.run([*command, str(file)], capture_output=True, text=True, timeout=WAIT_S)
        assert done.returncode == 0 and "t" in done.stdout.split(), done.stderr
    plain = subprocess.run([*ottla, "--timeout", "5"], capture_output=True, text=True, timeout=WAIT_S)
    assert plain.returncode != 0
    wait_for(lambda: "the client speaks plaintext, but this listener wants SSL" in secured.cluster.log(1))


@contextmanager
def private_pem(secured: Secured, issued: Issued) -> Iterator[str]:
    path = secured.directory / "another.pem"
    path.write_text(issued.key_pem + issued.chain_pem)
    yield str(path)


def exchange(secured: Secured, context: ssl.SSLContext) -> bytes:
    """Return the first node's response to a request. With TLS 1.3 the client sees a rejection only after its handshake."""
    with (
        socket.create_connection(("localhost", secured.ports[0]), WAIT_S) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as connection,
    ):
        connection.sendall(heartbeat())
        answer = connection.recv(4)
    if not answer:
        raise ConnectionError("closed")
    return answer


class Load:
    """Produces all the time, with a new connection for each record, and counts failures; a consumer keeps its connections."""

    def __init__(self, secured: Secured) -> None:
        self.done = 0
        self.read = 0
        self.failures: list[str] = []
        self._secured = secured
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._produce, self._consume)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        wait_for(lambda: self.read >= self.done)
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _consume(self) -> None:
        settings = {"group.id": "load", "auto.offset.reset": "earliest", "error_cb": self._failed}
        consumer = confluent_kafka.Consumer({**self._secured.librdkafka, **settings})
        consumer.subscribe(["load"])
        while not self._stop.is_set():
            message = consumer.poll(0.1)
            self.read += message is not None and message.error() is None
        consumer.close()

    def _failed(self, error: confluent_kafka.KafkaError) -> None:
        self.failures.append(f"consumer: {error}")

    def _produce(self) -> None:
        while not self._stop.is_set():
            producer = confluent_kafka.Producer(self._secured.librdkafka)
            producer.produce("load", b"x", callback=self._delivered)
            if producer.flush(WAIT_S):
                self.failures.append("not delivered")

    def _delivered(self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        if error is not None:
            self.failures.append(str(error))
        else:
            self.done += 1

    def wait(self, more: int) -> None:
        until = self.done + more
        wait_for(lambda: self.done >= until)


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "not within the time"
        time.sleep(0.02)


def serial_number(port: int, secured: Secured) -> int:
    """Return the serial number of the certificate that the node shows."""
    pem = ssl.get_server_certificate(("127.0.0.1", port))
    return x509.load_pem_x509_certificate(pem.encode()).serial_number


def test_certificates_are_rotated_node_by_node_under_load(secured: Secured) -> None:
    admin = AdminClient(secured.librdkafka)
    make_topics(admin, NewTopic("load", 3, 3))
    with Load(secured) as load:
        load.wait(3)
        for number, port in zip((1, 2, 3), secured.ports, strict=True):
            issued = secured.authority.issue(f"node-{number}", ["localhost", "127.0.0.1"])
            write_key_store(secured.directory, number, issued)
            wait_for(lambda port=port, issued=issued: serial_number(port, secured) == issued.certificate.serial_number)
            load.wait(3)
    assert load.failures == []
    assert secured.cluster.isr("load") and secured.cluster.wait_isr("load") < WAIT_S


@pytest.mark.chaos
def test_a_new_key_store_that_does_not_fit_is_refused_with_one_line_and_the_old_one_stays(secured: Secured) -> None:
    before = serial_number(secured.ports[0], secured)
    path = secured.directory / "node-1.pem"
    good = path.read_text()
    for wrong, why in (
        ("no PEM at all", "Expected one private key, but found 0"),
        (Authority.create("other").issue("node-1", ["localhost", "127.0.0.1"]), "other nodes would refuse it"),
        (secured.authority.issue("another", ["localhost", "127.0.0.1"]), "DistinguishedName does not match"),
        (secured.authority.issue("node-1", ["localhost"]), "SubjectAltNames do not match: 127.0.0.1 would be lost"),
    ):
        text = wrong if isinstance(wrong, str) else wrong.encrypted_key_pem(SECRET) + wrong.chain_pem
        path.write_text(text)
        said_before = secured.cluster.log(1).count(why)
        wait_for(lambda why=why, said=said_before: secured.cluster.log(1).count(why) > said)
        assert serial_number(secured.ports[0], secured) == before
    path.write_text(good)
    wait_for(lambda: "have been replaced" in secured.cluster.log(1).rpartition("would be lost")[2])
    assert exchange(secured, secured.context())
    assert SECRET not in secured.cluster.log(1)


def test_a_key_store_is_replaced_by_the_dynamic_configuration(secured: Secured) -> None:
    issued = secured.authority.issue("node-2", ["localhost", "127.0.0.1"])
    path = secured.directory / "node-2-new.pem"
    path.write_text(issued.encrypted_key_pem(SECRET) + issued.chain_pem)
    resource = ConfigResource(
        "broker",
        "2",
        incremental_configs=[
            ConfigEntry(
                "listener.name.tls.ssl.keystore.location", str(path), incremental_operation=AlterConfigOpType.SET
            )
        ],
    )
    admin = AdminClient(secured.librdkafka)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(WAIT_S)
    wait_for(lambda: serial_number(secured.ports[1], secured) == issued.certificate.serial_number)
    assert exchange(secured, secured.context())


def test_a_key_store_that_cannot_be_used_is_refused_by_its_broker_and_changes_nothing(secured: Secured) -> None:
    before = serial_number(secured.ports[1], secured)
    name = "listener.name.tls.ssl.keystore.location"
    (secured.directory / "other.pem").write_text(
        (issued := Authority.create("other").issue("node-2", ["localhost", "127.0.0.1"])).encrypted_key_pem(SECRET)
        + issued.chain_pem
    )
    admin = AdminClient(secured.librdkafka)
    for wrong, why in (("none.pem", "there is no such file"), ("other.pem", "other nodes would refuse it")):
        path = str(secured.directory / wrong)
        entry = ConfigEntry(name, path, incremental_operation=AlterConfigOpType.SET)
        requests = (
            (admin.incremental_alter_configs, ConfigResource("broker", "2", incremental_configs=[entry])),
            (admin.alter_configs, ConfigResource("broker", "2", set_config={name: path})),
        )
        for alter, resource in requests:
            with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # AlterConfigs (33)
                (future,) = alter([resource]).values()
            with pytest.raises(confluent_kafka.KafkaException, match=why) as refused:
                future.result(WAIT_S)
            assert refused.value.args[0].code() == confluent_kafka.KafkaError.INVALID_REQUEST
        (described,) = admin.describe_configs([ConfigResource("broker", "2")]).values()
        stored = described.result(WAIT_S).get(name)
        assert stored is None or stored.value != path
    assert serial_number(secured.ports[1], secured) == before


def test_what_else_a_request_changes_is_changed_when_its_key_store_is_refused(secured: Secured) -> None:
    def resource(kind: ResourceType, of: str, name: str, value: str) -> AlterConfigsResource:
        return AlterConfigsResource(
            resource_type=kind.value, resource_name=of, configs=[AlterableConfig(name=name, value=value)]
        )

    request = IncrementalAlterConfigsRequest(
        resources=[
            resource(ResourceType.BROKER, "2", "listener.name.tls.ssl.keystore.location", "none.pem"),
            resource(ResourceType.BROKER, "", "log.retention.ms", "7200000"),
        ]
    )
    with Wire(secured.cluster.nodes[2].port) as wire:
        answer = wire.request(request, 1)
    assert sorted((each.resource_name, each.error_code) for each in answer.responses) == [
        ("", ErrorCode.NONE),
        ("2", ErrorCode.INVALID_REQUEST),
    ]


def test_access_is_decided_by_the_name_in_the_certificate(tmp_path: Path) -> None:
    """Nodes are super users by the names in their certificates, also on the controllers' listener."""
    authority = Authority.create("test CA")
    (base, *_) = free_ports(150)
    properties = node_properties(tmp_path, 1, authority) | {
        "listeners": f"PLAINTEXT://127.0.0.1:{base},TLS://localhost:{base + 50},CONTROLLER://127.0.0.1:{base + 100}",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:CN=node-1;User:ADMIN",
        "ssl.principal.mapping.rules": "RULE:^CN=(adm.*)$/$1/U,DEFAULT",
    }
    with Cluster(1, directory=str(tmp_path / "cluster"), base_port=base, per_node={1: properties}) as cluster:
        people = {}
        for name in ("admin", "app"):
            issued = authority.issue(name)
            (tmp_path / f"{name}.pem").write_text(issued.chain_pem + issued.key_pem)
            people[name] = {
                "bootstrap.servers": f"localhost:{base + 50}",
                "security.protocol": "SSL",
                "ssl.ca.location": str(tmp_path / "ca.pem"),
                "ssl.certificate.location": str(tmp_path / f"{name}.pem"),
                "ssl.key.location": str(tmp_path / f"{name}.pem"),
            }
        admin, app = AdminClient(people["admin"]), AdminClient(people["app"])
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(WAIT_S)
        with pytest.raises(confluent_kafka.KafkaException, match="AUTHORIZATION_FAILED"):
            app.create_topics([NewTopic("mine", 1, 1)])["mine"].result(WAIT_S)
        entry = AclBinding(
            ResourceType.TOPIC, "mine", ResourcePatternType.LITERAL, "User:CN=app", "*",
            AclOperation.CREATE, AclPermissionType.ALLOW,
        )  # fmt: skip
        admin.create_acls([entry])[entry].result(WAIT_S)
        app.create_topics([NewTopic("mine", 1, 1)])["mine"].result(WAIT_S)
        assert "ERROR" not in cluster.log(1)
