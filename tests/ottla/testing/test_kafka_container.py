"""`KafkaContainer`, used by a suite that was written for testcontainers."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource

from ottla.testing.kafka import KafkaContainer

pytestmark = pytest.mark.timeout(120)


def test_a_suite_for_containers_runs_with_the_environment_of_the_image() -> None:
    container = KafkaContainer("confluentinc/cp-kafka:7.6.0").with_kraft().with_name("kafka")
    container.with_env("KAFKA_NUM_PARTITIONS", 4).with_env("KAFKA_LISTENERS", "PLAINTEXT://0.0.0.0:9093")
    container.with_env("KAFKA_HEAP_OPTS", "-Xmx1G").with_env("CLUSTER_ID", "MkU3OEVBNTcwNTJENDM2Qk")
    with container as kafka:
        assert kafka.get_bootstrap_server() == f"{kafka.get_container_host_ip()}:{kafka.get_exposed_port(kafka.port)}"
        producer = Producer({"bootstrap.servers": kafka.get_bootstrap_server()})
        producer.produce("orders", b"3 apples")
        assert producer.flush(30) == 0
        assert len(kafka.cluster.leaders("orders")) == 4
        resource = ConfigResource(ConfigResource.Type.BROKER, "1")
        admin = AdminClient({"bootstrap.servers": kafka.get_bootstrap_server()})
        described = admin.describe_configs([resource])
        assert described[resource].result(30)["num.partitions"].value == "4"
        assert b"Kafka Server started" in kafka.get_logs()[0]
    with pytest.raises(RuntimeError, match="not been started"):
        container.get_bootstrap_server()


def test_what_only_a_container_has_is_refused_in_one_sentence() -> None:
    kafka = KafkaContainer()
    with pytest.raises(AttributeError, match="with_volume_mapping: this is a node process and no container"):
        kafka.with_volume_mapping("/here", "/there")
    with pytest.raises(AttributeError, match="exec: "):
        kafka.exec("kafka-topics --list")


def test_a_node_that_cannot_start_says_why() -> None:
    with pytest.raises(RuntimeError, match=r"num\.partitions"):
        KafkaContainer().with_env("KAFKA_NUM_PARTITIONS", "many").start()
