"""Stock clients, each with its own version setting, at nodes that emulate older releases (docs/EMULATE.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from kafka import KafkaConsumer, KafkaProducer

from ottla.cli.commands import dev
from ottla.cli.errors import USAGE
from ottla.processes import start
from ottla.server.config.key import ConfigError
from ottla.server.config.node_config import NodeConfig
from ottla.testing import KAFKA_VERSIONS, Cluster
from ottla.testing.factories import unused_name

COUNT = 20
VALUES = [b"%d" % number for number in range(COUNT)]


@pytest.fixture(scope="module", params=["2.8", "3.5"])
def emulated(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(1, ottla_advertised_release=request.param, group_initial_rebalance_delay_ms="0") as cluster:
        yield cluster


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return unused_name(request)


@pytest.mark.parametrize("version", [(2, 6), (1, 0), (0, 10, 1), (0, 10, 0), (0, 9)])
def test_kafka_python_of_any_setting(emulated: Cluster, topic: str, version: tuple[int, ...]) -> None:
    """0.9 has messages of magic 0, 0.10 of magic 1, and both commit offsets in a group."""
    emulated.topic(topic)
    for compression in (None, "gzip"):
        producer = KafkaProducer(
            bootstrap_servers=emulated.bootstrap, api_version=version, compression_type=compression
        )
        for value in VALUES:
            producer.send(topic, value, key=b"k")
        producer.flush(30)
        producer.close()
    consumer = KafkaConsumer(
        topic, bootstrap_servers=emulated.bootstrap, api_version=version, group_id=topic, auto_offset_reset="earliest"
    )
    read: list[bytes] = []
    while len(read) < 2 * COUNT:
        found = consumer.poll(10_000)
        assert found, read
        read += [record.value for records in found.values() for record in records]
    assert read == VALUES * 2
    consumer.commit()
    consumer.close()


@pytest.mark.parametrize("settings", [{}, {"api.version.request": False, "broker.version.fallback": "0.9.0.1"}])
def test_librdkafka_of_any_setting(emulated: Cluster, topic: str, settings: dict[str, object]) -> None:
    emulated.topic(topic)
    common = {"bootstrap.servers": emulated.bootstrap} | settings
    producer = Producer(common)
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(30) == 0
    consumer = Consumer(common | {"group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    read = []
    while len(read) < COUNT:
        message = consumer.poll(20)
        assert message is not None and message.error() is None, read
        read.append(message.value())
    assert read == VALUES
    consumer.commit(asynchronous=False)
    consumer.close()


async def test_aiokafka(emulated: Cluster, topic: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=emulated.bootstrap, enable_idempotence=True)
    await producer.start()
    for value in VALUES:
        await producer.send(topic, value)
    await producer.stop()
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=emulated.bootstrap, group_id=topic, auto_offset_reset="earliest"
    )
    await consumer.start()
    async with asyncio.timeout(30):
        read = [(await consumer.getone()).value for _ in VALUES]
    await consumer.stop()
    assert read == VALUES


def test_an_admin_finds_the_configurations_of_the_release(emulated: Cluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": emulated.bootstrap})
    former = {"message.format.version": "2.0"}
    admin.create_topics([NewTopic(topic, 1, 1, config=former)])[topic].result(30)
    later = admin.create_topics([NewTopic(f"{topic}-2", 1, 1, config={"remote.copy.lag.ms": "1"})])[f"{topic}-2"]
    with pytest.raises(Exception, match=r"Unknown topic config name: remote\.copy\.lag\.ms"):
        later.result(30)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    (described,) = admin.describe_configs([resource]).values()
    configs = described.result(30)
    assert configs["message.format.version"].value == "2.0"
    assert configs["message.downconversion.enable"].value == "true"
    assert "remote.copy.lag.ms" not in configs and "retention.ms" in configs


def test_three_nodes_have_all_versions_among_themselves(topic: str) -> None:
    with Cluster(3, ottla_advertised_release="2.8") as cluster:
        cluster.topic(topic)
        producer = cluster.producer(acks="all")
        producer.produce(topic, b"before")
        assert producer.flush(30) == 0
        cluster.wait_isr(topic)
        admins = [AdminClient({"bootstrap.servers": cluster.address(node)}) for node in cluster.nodes]
        assert {admin.list_topics(timeout=30).controller_id for admin in admins} == {1}, "a broker, and the same at all"
        cluster.kill(producer.list_topics(topic, timeout=30).topics[topic].partitions[0].leader)
        producer.produce(topic, b"after")
        assert producer.flush(60) == 0
        assert [each.value for each in cluster.records(topic, 2)] == [b"before", b"after"]


@pytest.mark.parametrize("text", ["3.6", "nonsense", "2.8.1"])
def test_another_version_is_an_error_with_those_that_there_are(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    for main in (dev.main, start.main):
        with pytest.raises(SystemExit) as ended:
            main(["--emulate", text])
        assert ended.value.code == USAGE
        assert "2.1, 2.4, 2.8" in capsys.readouterr().err
    with pytest.raises(ConfigError, match=r"2\.1, 2\.4, 2\.8"):
        NodeConfig({"ottla.advertised.release": text})


def test_the_versions_of_a_matrix_are_those_that_a_node_takes() -> None:
    assert KAFKA_VERSIONS == ("2.1", "2.4", "2.8", "3.0", "3.3", "3.5", "3.7", "3.9", "4.0", "4.1", "4.2", "4.3", "4.4")
