"""Tests that a user writes with annotations: `make lint` checks their types, and docs/TESTING.md shows the first half of them.

Each `type: ignore` marks a mistake that mypy has to find: with `strict`, a mark without a mistake is an error.
"""

from collections.abc import Callable

from confluent_kafka import Producer

from ottla.testing import ApiKey, Clients, Cluster, ClusterSnapshot, ErrorCode, SeenRecord, factories


def values(records: list[SeenRecord]) -> list[bytes | None]:
    return [each.value for each in records]


def test_a_shared_cluster(kafka_proc: Clients, kafka_topic: str, kafka_producer: Producer) -> None:
    kafka_producer.produce(kafka_topic, b"3 apples")
    kafka_producer.flush()
    assert values(kafka_proc.records(kafka_topic, 1)) == [b"3 apples"]


def test_a_cluster_of_its_own(kafka_to_break: Cluster) -> None:
    strikes = kafka_to_break.fail_next(ApiKey.PRODUCE, ErrorCode.NOT_LEADER_OR_FOLLOWER, 2)
    producer: Producer = kafka_to_break.producer(acks="all")
    producer.produce("orders", b"3 apples")
    producer.flush()
    assert values(kafka_to_break.records("orders", 1)) == [b"3 apples"] and strikes.left == 0


def test_what_others_share_is_not_broken(kafka_proc: Clients) -> None:
    kafka_proc.kill(1)  # type: ignore[attr-defined]


def test_verbs_and_arguments_are_known(kafka_to_break: Cluster) -> None:
    kafka_to_break.kil(1)  # type: ignore[attr-defined]
    kafka_to_break.advance(day=1)  # type: ignore[call-arg]
    kafka_to_break.fail_next(ApiKey.PRODUSE, ErrorCode.NONE)  # type: ignore[attr-defined]


def fill(cluster: Cluster) -> None:
    cluster.topic("stock", seed=[("apples", "3")])


filled: Callable[..., ClusterSnapshot[Cluster]] = factories.kafka_snapshot(fill)
fork: Callable[..., Cluster] = factories.kafka_fork("filled")
topic: Callable[..., str] = factories.kafka_topic(partitions=3)
no_cluster: Callable[..., Cluster] = factories.kafka_topic()  # type: ignore[assignment]
