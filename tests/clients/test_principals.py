"""A user who has logged in has quotas and access of his own, also on connections that are open when these change."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer

from tests.clients.sasl_node import PLAIN_LOGIN, started

USERS = {"ann": "planted-ann", "ben": "planted-ben"}


class Node(NamedTuple):
    plaintext: str
    sasl: str
    log: Path

    def ottla(self, *words: str) -> None:
        subprocess.run(
            [sys.executable, "-m", "ottla", *words, "-b", self.plaintext],
            check=True,
            capture_output=True,
            timeout=60,
        )

    def create(self, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.plaintext})
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(10)

    def producer(self, user: str, throttled_s: list[float] | None = None) -> Producer:
        """Return a producer. The throttle times of its responses are added to `throttled_s`."""
        held = [] if throttled_s is None else throttled_s
        return Producer(
            {
                "bootstrap.servers": self.sasl,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": user,
                "sasl.password": USERS[user],
                "linger.ms": 0,
                "batch.size": 20_000,
                "message.timeout.ms": 20_000,
                "throttle_cb": lambda event: held.append(event.throttle_time),
            }
        )


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Run a node with an authorizer. A client without a login may do everything, so that the tests can change the node."""
    users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    properties = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": f"{PLAIN_LOGIN} {users};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with started(tmp_path_factory.mktemp("principals"), properties) as made:
        yield Node(made.plaintext, made.sasl, made.log)


def until(condition: Callable[[], object], seconds: float) -> float:
    """Wait until the condition holds; return the seconds."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, f"waited {seconds} s"
        time.sleep(0.01)
    return time.monotonic() - began


def send(producer: Producer, topic: str, size: int = 10) -> KafkaError | None:
    """Send a record; return the error that the client gets."""
    outcome: list[KafkaError | None] = []
    try:
        producer.produce(topic, bytes(size), on_delivery=lambda error, message: outcome.append(error))
    except KafkaException as at_once:  # the client had the denied topic's metadata before the record was queued
        return cast(KafkaError, at_once.args[0])
    producer.flush(30)
    return outcome[0]


def test_an_entry_counts_at_once_and_its_removal_also_on_an_open_connection(node: Node) -> None:
    node.create("guarded")
    refused = send(node.producer("ben"), "guarded")
    assert refused is not None and refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    node.ottla("acl", "add", "ben", "write", "topic:guarded")
    ben = node.producer("ben")
    assert send(ben, "guarded") is None
    node.ottla("acl", "remove", "ben", "write", "topic:guarded")
    until(lambda: send(ben, "guarded") is not None, 30)  # the change takes effect without a new login
    lines = node.log.read_text()
    assert (
        "Principal = User:ben is Denied operation = DESCRIBE from host = 127.0.0.1 on resource = Topic:LITERAL:guarded"
        in lines
    )
    assert "with resourceRefCount = 1 based on rule DefaultDeny" in lines
    assert not any(password in lines for password in USERS.values())


def test_a_consumer_that_may_not_read_does_not_see_the_topic(node: Node) -> None:
    node.create("read")
    node.ottla("acl", "add", "ann", "read", "topic:rea", "--prefixed", "--host", "127.0.0.0/8")
    answers = []
    for user in ("ann", "ben"):
        consumer = KafkaConsumer(
            bootstrap_servers=node.sasl,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_plain_username=user,
            sasl_plain_password=USERS[user],
        )
        answers.append(consumer.partitions_for_topic("read"))
        consumer.close()
    assert answers == [{0}, set()]


def test_a_quota_of_a_user_holds_back_that_user_alone(node: Node) -> None:
    node.create("shared")
    for user in USERS:
        node.ottla("acl", "add", user, "write", "topic:shared")
    node.ottla("quota", "set", "user", "ann", "producer_byte_rate=20000")
    seconds, throttled_s = {}, {user: list[float]() for user in USERS}
    for user in USERS:
        producer = node.producer(user, throttled_s[user])
        until(lambda producer=producer: send(producer, "shared") is None, 30)
        began = time.monotonic()
        for _ in range(6):
            assert send(producer, "shared", 15_000) is None
        seconds[user] = time.monotonic() - began
    assert seconds["ann"] > 2, "six requests, of which the second's worth and the last do not wait"
    assert any(throttled_s["ann"]) and not any(throttled_s["ben"]), throttled_s
