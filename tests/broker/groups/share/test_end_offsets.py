"""The ends of logs, for the lag of share groups: this broker reads its own, and asks the leaders of all others."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.cluster.channels import BrokerChannels
from ottla.broker.groups.group_wiring import EndOffsets, Offsets
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.replication.replicas import Replicas
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.server.world import World
from tests.controller.harness import DecisionHarness

LATEST = CONSUMER = -1
Partition = tuple[str, int]


class Brokers:
    """Broker 1 asks; `ends` has the high watermarks, or errors, of the partitions that brokers 2 and 3 lead."""

    def __init__(self) -> None:
        controller = DecisionHarness(brokers=3)
        controller.topic("here", "1 2", partitions=2)
        controller.topic("second", "2 1", partitions=2)
        controller.topic("other", "2 3")
        controller.topic("third", "3 1")
        metadata = MetadataCache(1, "cluster")
        metadata.image = controller.image
        self.ends: dict[Partition, int | ErrorCode] = {}
        self.dead: set[int] = set()
        self.asked: list[tuple[int, list[Partition]]] = []
        self.end_offsets = EndOffsets(
            cast(World, SimpleNamespace(spawn=lambda coroutine, name: asyncio.run(coroutine))),
            metadata,
            cast(Replicas, SimpleNamespace(get=self._replica)),
            cast(BrokerChannels, self),
        )

    def _replica(self, topic: str, index: int) -> Any:
        if (topic, index) not in self.ends:
            return None
        log = SimpleNamespace(high_watermark=self.ends[topic, index])
        return SimpleNamespace(local_log=lambda epoch, require_leader: log)

    async def request(self, node_id: int, request: ListOffsetsRequest) -> ListOffsetsResponse:
        assert request.replica_id == CONSUMER
        assert {row.timestamp for topic in request.topics for row in topic.partitions} == {LATEST}
        names = [(topic.name, row.partition_index) for topic in request.topics for row in topic.partitions]
        self.asked.append((node_id, names))
        if node_id in self.dead:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION)
        topics = []
        for topic in request.topics:
            rows = []
            for row in topic.partitions:
                end = self.ends[topic.name, row.partition_index]
                error, offset = (end, -1) if isinstance(end, ErrorCode) else (ErrorCode.NONE, end)
                rows.append(ListOffsetsPartitionResponse(row.partition_index, error, offset=offset))
            topics.append(ListOffsetsTopicResponse(topic.name, rows))
        return ListOffsetsResponse(topics=topics)

    def find(self, *partitions: Partition) -> dict[Partition, int | ErrorCode]:
        found: list[Offsets] = []
        self.end_offsets.find(partitions).when_done(found.append)
        (offsets,) = found
        return {tp: end.code if isinstance(end, KafkaError) else end for tp, end in offsets.items()}


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


def test_each_other_leader_is_asked_once_for_the_high_watermarks_of_its_partitions(brokers: Brokers) -> None:
    brokers.ends = {("here", 0): 5, ("second", 0): 20, ("second", 1): 0, ("other", 0): 22, ("third", 0): 30}
    assert brokers.find(*brokers.ends) == brokers.ends
    assert brokers.asked == [(2, [("second", 0), ("second", 1), ("other", 0)]), (3, [("third", 0)])]


def test_partitions_that_are_all_led_here_are_read_without_a_request(brokers: Brokers) -> None:
    brokers.ends = {("here", 0): 5}
    assert brokers.find(("here", 0), ("here", 1)) == {
        ("here", 0): 5,
        ("here", 1): ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
    assert brokers.asked == []


def test_a_partition_that_its_leader_refuses_is_an_error_and_the_others_have_their_ends(brokers: Brokers) -> None:
    brokers.ends = {("second", 0): ErrorCode.NOT_LEADER_OR_FOLLOWER, ("second", 1): 21}
    assert brokers.find(*brokers.ends) == brokers.ends


def test_a_leader_that_cannot_be_asked_is_an_error_of_its_partitions_alone(brokers: Brokers) -> None:
    brokers.ends = {("here", 0): 5, ("second", 0): 20, ("other", 0): 22, ("third", 0): 30}
    brokers.dead = {2}
    lost = dict.fromkeys([("second", 0), ("other", 0)], ErrorCode.NETWORK_EXCEPTION)
    assert brokers.find(*brokers.ends) == {("here", 0): 5, ("third", 0): 30, **lost}


def test_a_partition_without_a_leader_is_an_error_too(brokers: Brokers) -> None:
    """There is no channel to broker -1, as there is none to a dead broker."""
    brokers.dead = {-1}
    assert brokers.find(("gone", 0)) == {("gone", 0): ErrorCode.NETWORK_EXCEPTION}
