"""Partitions and replicas of auto-created topics, as Kafka's AutoTopicCreationTest has them: of the broker's file, else of the controller's."""

from __future__ import annotations

from pathlib import Path

from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.conftest import eventually
from tests.broker.wire import Wire
from tests.cluster.roles import separate_roles


def created(port: int, topic: str) -> tuple[int, int]:
    """Return the numbers of partitions and replicas of a topic that a client of this broker asks for."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True)
    found: list[list[int]] = []

    def is_there() -> bool:
        with Wire(port) as wire:
            answer = wire.request(request, 12).topics[0]
        found[:] = [partition.replica_nodes for partition in answer.partitions]
        return not answer.error_code

    eventually(is_there, f"{topic} to be created", 60)
    return len(found), len(found[0])


def test_what_a_brokers_file_sets_counts_and_the_rest_is_the_controllers(tmp_path: Path) -> None:
    with separate_roles(tmp_path, controllers=1, brokers=2) as roles:
        plain, own = roles.brokers.values()
        roles.controllers[1].properties |= {"num.partitions": "3"}
        own.properties |= {"num.partitions": "5", "default.replication.factor": "2"}
        roles.start(*roles.all)
        assert created(plain.port, "only-the-controller-sets-it") == (3, 1)
        assert created(own.port, "both-set-it") == (5, 2)
