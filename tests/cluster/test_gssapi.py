"""Three nodes that log in to each other by GSSAPI, controllers and brokers, with sessions of seconds; skipped where there is no KDC."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import Cluster
from tests.cluster.shared import STEADY
from tests.kdc import kdc_in
from tests.ports import free_ports

WAIT_S = 60
SESSION_MS = 3_000
TOPIC = "replicated"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with kdc_in(tmp_path_factory.mktemp("kdc")) as kdc:
        keytab = kdc.add("kafka/127.0.0.1")
        login = (
            "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
            f'keyTab="{keytab}" principal="kafka/127.0.0.1";'
        )
        made = Cluster(directory=str(tmp_path_factory.mktemp("gssapi")), min_insync_replicas="3", **STEADY)
        for number, port in zip(made.nodes, free_ports(3), strict=True):
            own = made._properties[number]
            own |= {
                "listeners": f"{own['listeners']},SASL://127.0.0.1:{port}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
                "inter.broker.listener.name": "SASL",
                "sasl.enabled.mechanisms": "GSSAPI",
                "sasl.kerberos.service.name": "kafka",
                "listener.name.controller.gssapi.sasl.jaas.config": login,
                "listener.name.sasl.gssapi.sasl.jaas.config": login,
                "connections.max.reauth.ms": str(SESSION_MS),
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:kafka;User:ANONYMOUS",
            }
        with made:
            admin = AdminClient({"bootstrap.servers": made.bootstrap})
            admin.create_topics([NewTopic(TOPIC, 3, 3)])[TOPIC].result(WAIT_S)
            yield made


def write(cluster: Cluster, seconds: float) -> None:
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    until = time.monotonic() + seconds
    while not failures or time.monotonic() < until:
        producer.produce(TOPIC, b"x", on_delivery=lambda error, _: failures.append(error))
        assert producer.flush(WAIT_S) == 0
    assert set(failures) == {None}


def test_records_are_replicated_among_nodes_whose_sessions_end(cluster: Cluster) -> None:
    cluster.wait_isr(TOPIC, seconds=WAIT_S)
    write(cluster, 1.5 * SESSION_MS / 1000)
    logs = [cluster.log(number) for number in cluster.nodes]
    assert not any("Failed authentication" in log or "by GSSAPI failed" in log for log in logs)


def test_a_node_that_starts_again_gets_its_tickets_again(cluster: Cluster) -> None:
    cluster.restart(2)
    cluster.wait_isr(TOPIC, seconds=WAIT_S)
    write(cluster, 0)
