"""A script of requests of consumer groups, and what a coordinator answers: Apache Kafka's answers are in kafka_answers.txt.

.venv/bin/python -m tests.broker.groups.consumer.scripted PORT     prints the answers of a broker on this port
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any, Protocol

from ottla.broker.groups.shard import Client
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tests.broker.conftest import eventually
from tests.broker.groups.cluster import id_of
from tests.broker.groups.harness import GroupCoordinatorHarness
from tests.broker.wire import Wire

#: Longer than the interval in which one target is computed.
INTERVAL_MS = 1_200


class Side(Protocol):
    """Who answers."""

    topic: str
    topic_id: bytes

    def request(self, message: Any, version: int) -> Any: ...

    def wait(self) -> None: ...


class Broker:
    """A running one, Kafka's or ours."""

    def __init__(self, port: int) -> None:
        self.wire = Wire(port)
        self.topic = f"t{time.time():.0f}"
        new = CreatableTopic(name=self.topic, num_partitions=4, replication_factor=1)
        self.topic_id: bytes = self.wire.request(CreateTopicsRequest(topics=[new])).topics[0].topic_id
        find = FindCoordinatorRequest(coordinator_keys=[self.topic])
        eventually(lambda: not self.request(find, 4).coordinators[0].error_code, "the coordinator")
        missing = ConsumerGroupDescribeRequest(group_ids=[self.topic])
        eventually(
            lambda: self.request(missing, 1).groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND, "the coordinator"
        )

    def request(self, message: Any, version: int) -> Any:
        return self.wire.request(message, version)

    def wait(self) -> None:
        time.sleep(INTERVAL_MS / 1000)


class Harness:
    def __init__(self) -> None:
        self.harness = GroupCoordinatorHarness()
        self.topic, self.topic_id = "script", id_of("script")
        self.harness.topics = {"script": 4}

    def request(self, message: Any, version: int) -> Any:
        coordinator = self.harness.coordinator
        match message:
            case ConsumerGroupHeartbeatRequest():
                return coordinator.consumer_heartbeat(message, Client(version, "wire", "/127.0.0.1"))
            case ConsumerGroupDescribeRequest():
                return ConsumerGroupDescribeResponse(groups=coordinator.describe_consumer_groups(message.group_ids))
            case OffsetCommitRequest():
                for topic in message.topics:
                    topic.topic_id = id_of(topic.name)
                return coordinator.commit_offsets(message, version)
            case OffsetFetchRequest():
                return OffsetFetchResponse(groups=[coordinator.fetch_offsets(message.groups[0], False)])
            case DescribeGroupsRequest():
                return DescribeGroupsResponse(groups=coordinator.describe(message.groups, error_since=True))
            case ListGroupsRequest():
                return ListGroupsResponse(groups=coordinator.list([], message.types_filter)[1])
            case DeleteGroupsRequest():
                return DeleteGroupsResponse(results=coordinator.delete(message.groups_names))
        raise AssertionError(message)

    def wait(self) -> None:
        self.harness.clock.advance(INTERVAL_MS)


class Script:
    """The group has the topic's name."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.group = side.topic

    # ---- requests, each in a line

    def beat(self, member: str, epoch: int | None = None, owned: list[int] | None = None, **fields: Any) -> str:
        epoch = self.epoch(member) if epoch is None else epoch
        if epoch == 0 or fields.pop("full", False):
            fields = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": [self.side.topic]} | fields
            owned = owned or []
        topics = None
        if owned is not None:
            topics = [TopicPartitions(self.side.topic_id, owned)] if owned else []
        answer = self.side.request(
            ConsumerGroupHeartbeatRequest(self.group, member, epoch, topic_partitions=topics, **fields), 1
        )
        error = ErrorCode(answer.error_code).name
        if answer.error_code:
            return f"{error}: {self._common(answer.error_message)}"
        text = f"{answer.member_id} epoch={answer.member_epoch} interval={answer.heartbeat_interval_ms}"
        return text if answer.assignment is None else f"{text} {_partitions(answer.assignment)}"

    def commit(self, member: str, epoch: int, partition: int, version: int = 9) -> str:
        topic = OffsetCommitRequestTopic(self.side.topic, partitions=[OffsetCommitRequestPartition(partition, 1)])
        request = OffsetCommitRequest(self.group, epoch, member, topics=[topic])
        return ErrorCode(self.side.request(request, version).topics[0].partitions[0].error_code).name

    def fetch(self, member: str | None, epoch: int) -> str:
        topics = [OffsetFetchRequestTopics(self.side.topic, partition_indexes=[0])]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(self.group, member, epoch, topics)])
        return ErrorCode(self.side.request(request, 9).groups[0].error_code).name

    def _described(self) -> Any:
        return self.side.request(ConsumerGroupDescribeRequest(group_ids=[self.group]), 1).groups[0]

    def epoch(self, member: str) -> int:
        return next((m.member_epoch for m in self._described().members if m.member_id == member), 0)

    def describe(self) -> str:
        group = self._described()
        if group.error_code:
            return f"{ErrorCode(group.error_code).name}: {self._common(group.error_message)}"
        members = [
            f"{m.member_id} {m.instance_id} {m.rack_id} epoch={m.member_epoch} {m.client_host} type={m.member_type}"
            f" {','.join(sorted(map(self._common, m.subscribed_topic_names)))} {m.subscribed_topic_regex!r}"
            f" has {_partitions(m.assignment)} of {_partitions(m.target_assignment)}"
            for m in sorted(group.members, key=lambda m: str(m.member_id))
        ]
        epochs = f"{group.group_epoch}/{group.assignment_epoch}"
        return "; ".join([f"{group.group_state} {epochs} {group.assignor_name}", *members])

    def classic(self) -> str:
        group = self.side.request(DescribeGroupsRequest(groups=[self.group]), 6).groups[0]
        return f"{ErrorCode(group.error_code).name} {self._common(group.error_message)} {group.group_state}"

    def list(self) -> str:
        groups = self.side.request(ListGroupsRequest(types_filter=["consumer"]), 5).groups
        return " ".join(f"{g.protocol_type} {g.group_state} {g.group_type}" for g in groups if g.group_id == self.group)

    def delete(self) -> str:
        return ErrorCode(
            self.side.request(DeleteGroupsRequest(groups_names=[self.group]), 2).results[0].error_code
        ).name

    def _common(self, text: str | None) -> str:
        return (text or "").replace(self.side.topic, "T")

    # ---- the script

    def answers(self) -> Iterator[str]:
        yield from self.bad_requests()
        yield from self.two_members()
        yield from self.static_members()
        yield from self.the_end()

    def bad_requests(self) -> Iterator[str]:
        yield self.describe()
        yield self.beat("a", 5)
        yield self.beat("a", -1)
        yield self.beat("", 0)
        yield self.beat("a", -3)
        yield self.beat("a", 0, server_assignor="x")
        yield self.beat("a", 0, instance_id="")
        yield self.beat("a", 0, rack_id="")
        yield self.beat("a", 0, rebalance_timeout_ms=-1)
        yield self.beat("a", 0, subscribed_topic_names=None)
        yield self.beat("a", 0, owned=[1])
        yield self.beat("a", -2)
        yield self.beat("z", 0, subscribed_topic_names=[])
        yield self.beat("z", -1)
        yield self.describe()

    def two_members(self) -> Iterator[str]:
        for _ in range(2):
            yield self.beat("a", 0)
        yield self.beat("a")
        yield self.beat("a", 9)
        yield self.beat("b", 0)
        yield self.describe()
        yield self.beat("b")
        self.side.wait()
        yield self.beat("b")
        before = self.epoch("a")
        yield self.beat("a", before)
        yield self.describe()
        yield self.commit("a", before, 3)
        yield self.beat("a", before, [0, 1, 2, 3])
        yield self.beat("a", before)
        yield self.beat("a", before, [0, 1])
        yield self.describe()
        yield self.beat("b")
        yield self.describe()
        now = self.epoch("a")
        for epoch, partition, version in ((before, 0, 9), (before, 3, 9), (now, 0, 9), (9, 0, 9), (now, 0, 8)):
            yield self.commit("a", epoch, partition, version)
        yield self.commit("q", 1, 0)
        yield self.commit("", -1, 0)
        for member, epoch in (("a", now), ("a", 1), ("q", 2), (None, -1)):
            yield self.fetch(member, epoch)
        yield self.beat("a", 0)
        yield self.describe()
        yield self.beat("a", -1)
        yield self.beat("a", -1)
        yield self.describe()
        self.side.wait()
        yield self.beat("b")
        yield self.beat("b")
        yield self.describe()

    def static_members(self) -> Iterator[str]:
        yield self.beat("s", 0, instance_id="i")
        self.side.wait()
        yield self.beat("s", instance_id="i")
        yield self.beat("b")
        yield self.beat("b", owned=[0, 1])
        yield self.beat("s", instance_id="i")
        yield self.describe()
        epoch = self.epoch("s")
        yield self.beat("s2", 0, instance_id="i")
        yield self.beat("s2", epoch, instance_id="i")
        yield self.beat("s", -2, instance_id="i")
        yield self.describe()
        yield self.beat("s", epoch, instance_id="i")
        yield self.beat("s2", 0, instance_id="i")
        yield self.describe()
        yield self.beat("s", epoch, instance_id="i")
        yield self.beat("s", -1, instance_id="i")
        yield self.beat("s", -1, instance_id="j")

    def the_end(self) -> Iterator[str]:
        yield self.beat("b", owned=[0, 1], full=True)
        yield self.beat("b", self.epoch("b") - 1, [0, 1], full=True)
        yield self.beat("b", self.epoch("b") - 1, [2], full=True)
        yield self.beat("b", subscribed_topic_names=[self.side.topic, "q"])
        yield self.describe()
        yield self.beat("b", rack_id="r")
        yield self.beat("b", server_assignor="range")
        yield self.describe()
        yield self.classic()
        yield self.list()
        yield self.delete()
        yield self.beat("b", -1)
        yield self.beat("s2", -1, instance_id="i")
        yield self.describe()
        yield self.commit("", -1, 0)
        yield self.delete()
        yield self.describe()


def _partitions(assignment: Any) -> list[int]:
    return [partition for topic in assignment.topic_partitions for partition in topic.partitions]


if __name__ == "__main__":
    print("\n".join(Script(Broker(int(sys.argv[1]))).answers()))
