"""Users of bitnami's image exist once the node serves, and topics of wurstmeister's image are created."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from ottla.container.first_start import add_scram
from ottla.container.resolve import resolve
from ottla.container.settings import User
from ottla.local.add_scram import read_add_scram
from ottla.server.sasl.scram import salted_password
from tests.docker.compose_file import ROOT
from tests.docker.harness import READY
from tests.ports import free_ports

#: A quote cannot stand in the argument of --add-scram as it is.
PASSWORD = 'secret"word'


def test_a_password_of_any_characters_is_an_argument_of_add_scram() -> None:
    records = [read_add_scram(text, Random(1)) for text in add_scram([User("ann", PASSWORD)], Random(2))]
    assert [(record.name, record.mechanism) for record in records] == [("ann", 1), ("ann", 2)]
    (plain, _) = add_scram([User("ann", PASSWORD)], Random(2))
    assert PASSWORD not in plain and "ann" in plain
    assert repr(User("ann", "secret")) == "<User ann>"
    assert salted_password("sha256", b"a", b"s" * 32, 4096) != salted_password("sha256", b"b", b"s" * 32, 4096)


def test_users_are_written_only_where_a_mechanism_asks_for_them() -> None:
    given = {
        "KAFKA_CFG_LISTENER_SECURITY_PROTOCOL_MAP": "CLIENT:SASL_PLAINTEXT",
        "KAFKA_CLIENT_USERS": "ann",
        "KAFKA_CLIENT_PASSWORDS": "pw",
    }
    assert not resolve({**given, "KAFKA_CFG_SASL_ENABLED_MECHANISMS": "PLAIN"}, lambda _: None).users
    users = resolve(given, lambda _: None).users
    assert {user.name for user in users} == {"ann", "user", "controller_user"}


@pytest.fixture
def container(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """A node that the entry point of the image has started. It returns the address of the first listener."""
    client, controller = free_ports(2)
    given = {
        name: value.replace("CLIENT_PORT", str(client)).replace("CONTROLLER_PORT", str(controller))
        for name, value in request.param.items()
    }
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ottla", "container", "run", "--root", str(tmp_path)],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "OTTLA_ADMIN_LISTENER": "", **given},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + 60
        while READY not in log.read_text():
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        assert PASSWORD not in log.read_text()
        yield f"127.0.0.1:{client}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


BITNAMI = {
    "KAFKA_CFG_NODE_ID": "0",
    "KAFKA_CFG_PROCESS_ROLES": "controller,broker",
    "KAFKA_CFG_CONTROLLER_QUORUM_VOTERS": "0@127.0.0.1:CONTROLLER_PORT",
    "KAFKA_CFG_LISTENERS": "SASL_PLAINTEXT://127.0.0.1:CLIENT_PORT,CONTROLLER://127.0.0.1:CONTROLLER_PORT",
    "KAFKA_CFG_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
    "KAFKA_CFG_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_CFG_INTER_BROKER_LISTENER_NAME": "SASL_PLAINTEXT",
    "KAFKA_CFG_SASL_MECHANISM_INTER_BROKER_PROTOCOL": "SCRAM-SHA-256",
    "KAFKA_CFG_SASL_ENABLED_MECHANISMS": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "KAFKA_CLIENT_USERS": "alice;bob",
    "KAFKA_CLIENT_PASSWORDS": f"{PASSWORD};other",
    "KAFKA_INTER_BROKER_USER": "ib",
    "KAFKA_INTER_BROKER_PASSWORD": "ibpw",
}


@pytest.mark.parametrize("container", [BITNAMI], indirect=True, ids=["bitnami"])
def test_bitnamis_users_log_in_by_plain_and_by_scram(container: str) -> None:
    """The users had no credentials: PLAIN worked, but SCRAM logins were rejected for ever without any message."""

    def topics(mechanism: str, user: str, password: str) -> set[str]:
        login = {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password, "log_level": "0"}
        admin = AdminClient({"bootstrap.servers": container, "security.protocol": "SASL_PLAINTEXT", **login})
        return set(admin.list_topics(timeout=2 if password == "wrong" else 15).topics)

    assert topics("PLAIN", "alice", PASSWORD) == set()
    assert topics("SCRAM-SHA-256", "alice", PASSWORD) == set()
    assert topics("SCRAM-SHA-512", "bob", "other") == set()
    with pytest.raises(KafkaException):
        topics("SCRAM-SHA-256", "alice", "wrong")


WURSTMEISTER = {
    "KAFKA_ADVERTISED_HOST_NAME": "127.0.0.1",
    "KAFKA_ADVERTISED_PORT": "CLIENT_PORT",
    "KAFKA_PORT": "CLIENT_PORT",
    "KAFKA_ZOOKEEPER_CONNECT": "zookeeper:2181",
    "KAFKA_CREATE_TOPICS": "orders:3:1,table:1:1:compact",
}


@pytest.mark.parametrize("container", [WURSTMEISTER], indirect=True, ids=["wurstmeister"])
def test_the_topics_of_the_list_are_created_once_the_node_serves(container: str) -> None:
    admin = AdminClient({"bootstrap.servers": container})
    deadline = time.monotonic() + 30
    while len(found := admin.list_topics(timeout=10).topics) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert {name: len(topic.partitions) for name, topic in found.items()} == {"orders": 3, "table": 1}
