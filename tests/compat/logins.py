"""Each stock client over TLS and without, by each mechanism: it writes records as the user of the tests and reads them again."""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from kafka.net.sasl.oauth import AbstractTokenProvider

from tests.compat.librdkafka import Outcome
from tests.compat.secured import MECHANISMS, MODULES, PASSWORD, STORE_PASSWORD, USER, SecuredNode, java, librdkafka
from tests.kdc import REALM
from tools.apache_kafka import ToolSession, run_tool

WAIT_S = 30
COUNT = 10
RECORDS = [b"%d" % number for number in range(COUNT)]
PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")
SPARK_LOGINS = [("SASL_SSL", "PLAIN"), ("SASL_SSL", "SCRAM-SHA-512"), ("SSL", "")]
TOKEN = "token"


#: The permissions of the tests' user, who is no super user: for topics and groups of these names, and for the cluster.
TOPICS = "S"
MAY = {
    ResourceType.TOPIC: (
        AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (AclOperation.READ,),
    ResourceType.BROKER: (AclOperation.DESCRIBE, AclOperation.ALTER, AclOperation.DESCRIBE_CONFIGS),
}  # fmt: skip


class Failed(Exception):
    """A tool has ended with an error."""


class Token(AbstractTokenProvider):
    def __init__(self, text: str) -> None:
        self._text = text

    def token(self) -> str:
        return self._text


class AioToken(AioTokenProvider):
    def __init__(self, text: str) -> None:
        self._text = text

    async def token(self) -> str:
        return self._text


def logins_of(node: SecuredNode) -> list[tuple[str, str]]:
    """Return the logins of a node. SSL alone has no mechanism: the certificate is the login."""
    return [*((protocol, mechanism) for protocol in PROTOCOLS for mechanism in node.files.mechanisms), ("SSL", "")]


def allow_user(node: SecuredNode) -> None:
    """Write the ACLs of the user and of the certificate."""
    admin = AdminClient(librdkafka(node, "PLAINTEXT"))
    entries = []
    for principal in (f"User:{USER}", "User:CN=client"):
        for kind, operations in MAY.items():
            is_cluster = kind == ResourceType.BROKER
            name, pattern = (
                ("kafka-cluster", ResourcePatternType.LITERAL) if is_cluster else (TOPICS, ResourcePatternType.PREFIXED)
            )
            entries += [
                AclBinding(kind, name, pattern, principal, "*", operation, AclPermissionType.ALLOW)
                for operation in operations
            ]
    for done in admin.create_acls(entries).values():
        done.result(WAIT_S)


def bearer(node: SecuredNode, protocol: str) -> str:
    identity = node.files.identity
    return identity.token() if protocol == "SASL_SSL" else identity.unsigned()


def confluent(node: SecuredNode, protocol: str, mechanism: str, topic: str) -> None:
    settings: dict[str, Any] = {**librdkafka(node, protocol, mechanism)}
    if mechanism == "OAUTHBEARER":
        settings["oauth_cb"] = lambda _: (bearer(node, protocol), time.time() + 600)
    producer = confluent_kafka.Producer(settings)
    for record in RECORDS:
        producer.produce(topic, record)
    check(producer.flush(WAIT_S) == 0, "not delivered")
    consumer = confluent_kafka.Consumer(settings | {"group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes | None] = []
    until = time.monotonic() + WAIT_S
    while len(found) < COUNT and time.monotonic() < until:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.append(message.value())
    consumer.close()
    check(sorted(found, key=str) == sorted(RECORDS, key=str), f"read {found}")


def in_python(node: SecuredNode, protocol: str, mechanism: str) -> dict[str, Any]:
    found = {"bootstrap_servers": node.address(protocol), "security_protocol": protocol}
    if mechanism:
        found["sasl_mechanism"] = mechanism
    if mechanism == "GSSAPI":
        found["sasl_kerberos_service_name"] = "kafka"
    elif mechanism in MECHANISMS and mechanism != "OAUTHBEARER":
        found |= {"sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
    return found


def kafka_python(node: SecuredNode, protocol: str, mechanism: str, topic: str) -> None:
    settings = in_python(node, protocol, mechanism)
    if protocol.endswith("SSL"):
        settings["ssl_cafile"] = node.files.ca
    if protocol == "SSL":
        key = {"ssl_keyfile": node.files.path("client.key"), "ssl_password": STORE_PASSWORD}
        settings |= {"ssl_certfile": node.files.path("client.crt"), **key}
    if mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = Token(bearer(node, protocol))
    producer = kafka.KafkaProducer(acks="all", **settings)
    for sent in [producer.send(topic, record) for record in RECORDS]:
        sent.get(WAIT_S)
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic, group_id=topic, auto_offset_reset="earliest", consumer_timeout_ms=WAIT_S * 1000, **settings
    )
    found = [next(consumer).value for _ in range(COUNT)]
    consumer.close()
    check(sorted(found) == sorted(RECORDS), f"read {found}")


def aio(node: SecuredNode, protocol: str, mechanism: str, topic: str) -> None:
    asyncio.run(_aio(node, protocol, mechanism, topic))


async def _aio(node: SecuredNode, protocol: str, mechanism: str, topic: str) -> None:
    settings = in_python(node, protocol, mechanism)
    if protocol.endswith("SSL"):
        context = ssl.create_default_context(cafile=node.files.ca)
        if protocol == "SSL":
            context.load_cert_chain(node.files.path("client.crt"), node.files.path("client.key"), STORE_PASSWORD)
        settings["ssl_context"] = context
    if mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = AioToken(bearer(node, protocol))
    async with aiokafka.AIOKafkaProducer(acks="all", **settings) as producer:
        for record in RECORDS:
            await producer.send_and_wait(topic, record)
    consumer = aiokafka.AIOKafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **settings)
    async with consumer:
        found = [(await asyncio.wait_for(consumer.getone(), WAIT_S)).value for _ in range(COUNT)]
    check(sorted(found) == sorted(RECORDS), f"read {found}")


def kcat(node: SecuredNode, protocol: str, mechanism: str, topic: str) -> None:
    """Run librdkafka as the distribution builds it."""
    realm = node.files.kdc
    assert realm is not None
    settings = librdkafka(node, protocol, mechanism) | {
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.keytab": realm.keytab(USER),
        "sasl.kerberos.principal": f"{USER}@{REALM}",
    }
    command = ["kcat", "-q", "-t", topic, *(word for pair in settings.items() for word in ("-X", "=".join(pair)))]
    lines = "".join(f"{record.decode()}\n" for record in RECORDS)
    sent = subprocess.run([*command, "-P"], input=lines, capture_output=True, text=True, timeout=WAIT_S, check=False)
    check(sent.returncode == 0, sent.stderr)
    read = subprocess.run([*command, "-C", "-e"], capture_output=True, text=True, timeout=WAIT_S, check=False)
    check(sorted(read.stdout.split()) == sorted(lines.split()), f"read {read.stdout} {read.stderr}")


PYTHON_CLIENTS: dict[str, Callable[[SecuredNode, str, str, str], None]] = {
    "confluent-kafka": confluent,
    "kafka-python": kafka_python,
    "aiokafka": aio,
}


class JavaClients:
    """Apache Kafka's clients and tools, which share one JVM as far as they can."""

    def __init__(self, node: SecuredNode, tools: ToolSession, logs: Path) -> None:
        self._node, self._tools, self._logs = node, tools, logs

    def config(self, name: str, settings: dict[str, str]) -> str:
        file = self._logs / f"{name}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return str(file)

    def run(self, tool: str, protocol: str, config: str, *words: str, stdin: str = "") -> str:
        words = ("--bootstrap-server", self._node.address(protocol), "--command-config", config, *words)
        if tool == "kafka-console-consumer":
            done = run_tool(tool, *words, timeout_s=120)
        else:
            done = self._tools.run(tool, *words, stdin=stdin)
        check(done.returncode == 0 and "ERROR" not in done.stdout + done.stderr, done.stdout + done.stderr)
        return done.stdout

    def produce_and_consume(self, protocol: str, config: str, topic: str) -> None:
        lines = "".join(f"{record.decode()}\n" for record in RECORDS)
        self.run("kafka-console-producer", protocol, config, "--topic", topic, stdin=lines)
        read = self.run(
            "kafka-console-consumer", protocol, config, "--topic", topic, "--from-beginning", "--max-messages", str(COUNT),
            "--timeout-ms", str(WAIT_S * 1000), "--group", topic,
        )  # fmt: skip
        check(sorted(read.split()) == sorted(lines.split()), f"read {read}")

    def administrate(self, protocol: str, config: str, topic: str) -> None:
        run = self.run
        run("kafka-topics", protocol, config, "--create", "--topic", topic, "--partitions", "2")
        acl = ("--allow-principal", "User:zoe", "--operation", "Read", "--topic", topic)
        run("kafka-acls", protocol, config, "--add", *acl)
        check("User:zoe" in run("kafka-acls", protocol, config, "--list", "--topic", topic), "the ACL is not listed")
        entity = ("--entity-type", "topics", "--entity-name", topic)
        run("kafka-configs", protocol, config, "--alter", *entity, "--add-config", "retention.ms=60000")
        described = run("kafka-configs", protocol, config, "--describe", *entity)
        check("retention.ms=60000" in described, f"not described: {described}")
        user = ("--entity-type", "users", "--entity-name", "zoe")
        run("kafka-configs", protocol, config, "--alter", *user, "--add-config", "SCRAM-SHA-512=[password=planted-zoe]")
        described = run("kafka-configs", protocol, config, "--describe", *user)
        check("SCRAM-SHA-512=iterations=4096" in described, f"not described: {described}")
        words = ("--bootstrap-server", self._node.address(protocol), "--command-config", config)
        done = self._tools.run("kafka-topics", *words, "--create", "--topic", "forbidden")
        check("Authorization" in done.stdout + done.stderr, f"not refused without an ACL: {done.stdout + done.stderr}")

    def make_token(self, protocol: str, config: str) -> tuple[str, str]:
        """Return a delegation token's id and secret, after it was described and renewed."""
        made = self.run("kafka-delegation-tokens", protocol, config, "--create", "--max-life-time-period", "-1")
        token_id, secret = next(line.split()[:2] for line in made.splitlines() if "==" in line)
        owner = ("--owner-principal", f"User:{USER}")
        described = self.run("kafka-delegation-tokens", protocol, config, "--describe", *owner)
        check(token_id in described, f"not described: {described}")
        renew = ("--renew", "--renew-time-period", "-1", "--hmac", secret)
        self.run("kafka-delegation-tokens", protocol, config, *renew)
        return token_id, secret


def check(condition: bool, why: str) -> None:
    if not condition:
        raise Failed(why)


def outcome(name: str, work: Callable[[], object]) -> Outcome:
    began = time.monotonic()
    try:
        work()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".replace("\n", " ")[:300]
        return Outcome(name, "FAIL", time.monotonic() - began, reason)
    return Outcome(name, "PASS", time.monotonic() - began)


def in_python_all(node: SecuredNode, report: Callable[[Outcome], Outcome]) -> list[Outcome]:
    """Run every Python client with every login."""
    found = []
    for protocol, mechanism in logins_of(node):
        for client, work in PYTHON_CLIENTS.items():
            if mechanism == "GSSAPI" and client == "confluent-kafka":
                # kcat takes its place, because the wheel's librdkafka is built without Kerberos, and the distribution's has it.
                client, work = "kcat", kcat
                if shutil.which(client) is None:
                    print(
                        "kcat is left out: it is not installed (Debian: apt-get install kcat libsasl2-modules-gssapi-mit)"
                    )
                    continue
            name = f"{protocol}/{mechanism or 'certificate'}/{client}"
            topic = name.replace("/", "-")
            found.append(report(outcome(name, lambda w=work, t=topic, p=protocol, m=mechanism: w(node, p, m, t))))
    return found


def in_java_all(node: SecuredNode, logs: Path, report: Callable[[Outcome], Outcome]) -> list[Outcome]:
    """Run clients and tools of Apache Kafka with every login, and with a delegation token made by each login but
    OAUTHBEARER's.
    """
    found = []
    # Java takes tokens only from addresses that a system property names.
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={(node.files.directory / 'token').as_uri()}"
    os.environ["JAVA_TOOL_OPTIONS"] = allowed + node.files.java_options
    with ToolSession() as tools:
        clients = JavaClients(node, tools, logs)

        def both(protocol: str, login: str, settings: dict[str, str]) -> str:
            name = f"{protocol}/{login}"
            config = clients.config(name.replace("/", "-"), settings)
            topic = name.replace("/", "-") + "-java"
            found.append(report(outcome(f"{name}/java", lambda: clients.produce_and_consume(protocol, config, topic))))
            found.append(
                report(outcome(f"{name}/java tools", lambda: clients.administrate(protocol, config, f"{topic}-tools")))
            )
            return config

        for protocol, mechanism in logins_of(node):
            config = both(protocol, mechanism or "certificate", java(node, protocol, mechanism))
            if mechanism == "PLAIN":
                made: list[tuple[str, str]] = []
                name = f"{protocol}/{mechanism}/kafka-delegation-tokens"
                found.append(
                    report(outcome(name, lambda p=protocol, c=config, m=made: m.append(clients.make_token(p, c))))
                )
                for token_id, secret in made:
                    options = f'username="{token_id}" password="{secret}" tokenauth="true"'
                    jaas = f"{MODULES['SCRAM-SHA-256']} {options};"
                    both(protocol, TOKEN, java(node, protocol, "SCRAM-SHA-256") | {"sasl.jaas.config": jaas})
    return found


def in_spark(node: SecuredNode, logs: Path, report: Callable[[Outcome], Outcome]) -> list[Outcome]:
    """Run Spark's batch reader on records that confluent-kafka has written with the same login."""
    from ottla.pipeline import config, session

    spark = session.start(config.load(None, (f"pipeline.output={logs / 'spark'}", "spark.shuffle_partitions=1")))

    def read(protocol: str, mechanism: str) -> None:
        topic = f"{protocol}-{mechanism or 'certificate'}-spark"
        confluent(node, protocol, mechanism, topic)
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", node.address(protocol))
        for name, text in java(node, protocol, mechanism).items():
            reader = reader.option(f"kafka.{name}", text)
        rows = reader.option("subscribe", topic).load().select("value").collect()
        check(sorted(bytes(row.value) for row in rows) == sorted(RECORDS), f"read {rows}")

    try:
        return [
            report(
                outcome(f"{protocol}/{mechanism or 'certificate'}/spark", lambda p=protocol, m=mechanism: read(p, m))
            )
            for protocol, mechanism in SPARK_LOGINS
        ]
    finally:
        spark.stop()
