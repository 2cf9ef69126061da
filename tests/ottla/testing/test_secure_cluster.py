"""A cluster with TLS and logins, made by `Cluster(secure=True)` and `ottla dev --secure`, with stock clients and the command
line.
"""

from __future__ import annotations

import random
import re
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer

from ottla.local.secure_files import ADMIN, MECHANISM
from ottla.protocol.api import APIS, ApiKey
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.describe_acls import DescribeAclsRequest
from ottla.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from ottla.protocol.schema import ZERO_UUID
from ottla.testing import Cluster
from ottla.testing.connection import ClusterConnection
from tests.broker.authorization.entries import error_codes
from tests.broker.conftest import eventually
from tests.cluster.shared import STEADY
from tests.compat.authorization_requests import OWNERS, REQUESTS, TOPICS, Pick, build

pytestmark = pytest.mark.timeout(120)
TOPIC = "secured"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3, secure=True, **STEADY) as running:
        yield running


def ottla(cluster: Cluster, *words: str, config: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ottla", *words, "-b", cluster.bootstrap, "--timeout", "20"]
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


def in_sight(cluster: Cluster) -> tuple[object, ...]:
    """Return the state of the cluster that admin sees: topics with their leaders, entries, users."""
    with login(cluster) as admin:
        rows = admin.request(DescribeAclsRequest(1, None, 1, None, None, 1, 1), ApiKey.DESCRIBE_ACLS, 3).resources
        asked = DescribeUserScramCredentialsRequest(None)
        users = admin.request(asked, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0).results
    return topics_of(cluster), repr(rows), repr(users)


def topics_of(cluster: Cluster) -> list[str | None]:
    return sorted(topic.name for topic in cluster.metadata(node_id=1).topics)


def login(cluster: Cluster, user: str = ADMIN, mechanism: str = MECHANISM, port: int = 0) -> ClusterConnection:
    return ClusterConnection("127.0.0.1", port or cluster.nodes[1].port, cluster._secure, user, mechanism)


def test_a_user_without_entries_can_do_nothing_on_the_cluster_by_any_api(cluster: Cluster) -> None:
    cluster.add_user("mallory")
    admin = AdminClient(cluster.client_settings)
    admin.create_topics([NewTopic("apple", 1)])["apple"].result(30)
    eventually(lambda: "apple" in topics_of(cluster), "the topic at the node that is asked")
    before = in_sight(cluster)
    own = {"uuid:none": ZERO_UUID, "bytes:none": b"x" * 32} | {f"uuid:{topic}": b"g" * 16 for topic in TOPICS}
    own |= {f"bytes:{user}": b"x" * 32 for user in (*OWNERS, "carol")}
    unrefused = set()
    with login(cluster, "mallory") as mallory:
        served = {
            row.api_key: row for row in mallory.request(ApiVersionsRequest("x", "1"), ApiKey.API_VERSIONS, 3).api_keys
        }
        for api_key, spec in REQUESTS.items():
            if api_key in served:
                version = served[api_key].max_version
                request = build(APIS[api_key].request, spec(Pick(random.Random(api_key)), version), version, own)
                answer = mallory.request(request, api_key, version)
                if not error_codes(answer):
                    unrefused.add(api_key)
                    assert not shown(answer), answer
    assert unrefused <= NEED_NO_ENTRY
    assert in_sight(cluster) == before


#: These requests are answered for everyone, with what the caller may see: here that is nothing.
NEED_NO_ENTRY = {
    ApiKey.METADATA, ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_CLUSTER, ApiKey.DESCRIBE_DELEGATION_TOKEN,
    ApiKey.LIST_CONFIG_RESOURCES, ApiKey.DESCRIBE_TOPIC_PARTITIONS, ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
}  # fmt: skip


def shown(answer: Any) -> list[Any]:
    lists = ("topics", "groups", "transaction_states", "tokens", "config_resources", "results")
    return [each for name in lists for each in getattr(answer, name, None) or ()]


@pytest.mark.parametrize(
    ("mechanism", "reason"), [("SCRAM-SHA-512", "it enables PLAIN"), ("PLAIN", "Authentication failed")]
)
def test_a_user_cannot_log_in_at_the_controllers_listener(cluster: Cluster, mechanism: str, reason: str) -> None:
    cluster.add_user("trudy")
    with pytest.raises(ConnectionError, match=reason):
        login(cluster, "trudy", mechanism, cluster.nodes[1].controller_port)


def test_a_user_may_do_what_its_entries_allow_and_nothing_else(cluster: Cluster) -> None:
    alice = cluster.add_user("alice", "write topic:orders", "create cluster")
    refused: list[object] = []
    producer = Producer(alice | {"message.timeout.ms": 20_000})
    for topic in ("orders", TOPIC):
        try:
            producer.produce(topic, b"x", on_delivery=lambda error, _: refused.append(error and error.code()))
        except KafkaException as at_once:  # its metadata came before the record was queued
            refused.append(at_once.args[0].code())
        assert producer.flush(30) == 0
    assert refused == [None, KafkaError.TOPIC_AUTHORIZATION_FAILED]
    why = ottla(cluster, "acl", "why", "alice", "write", "topic:orders")
    assert why.returncode == 0 and "by: allow User:alice write on topic:orders" in why.stdout
    super_user = ottla(cluster, "acl", "why", "admin", "delete", f"topic:{TOPIC}")
    assert super_user.returncode == 0 and "by: super.users of the node's file" in super_user.stdout


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
    eventually(lambda: cluster.leaders("kept")[0] in cluster.nodes, "a leader")
