"""What scripts of requests of groups share: who answers them, and the requests that all kinds of groups have."""

from __future__ import annotations

import time
from typing import Any, Protocol

from ottla.broker.api.streams_group_heartbeat import check_topic_names
from ottla.broker.groups.config import GroupSettings
from ottla.broker.groups.describe import CONSUMER_GROUPS, STREAMS_GROUPS
from ottla.broker.groups.group_metadata_manager import Client
from ottla.broker.topic_names import INTERNAL_TOPICS
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.join_group import JoinGroupRequest
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
from ottla.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse
from ottla.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse
from tests.broker.conftest import eventually
from tests.broker.groups.cluster import id_of
from tests.broker.groups.harness import GroupCoordinatorHarness
from tests.broker.wire import Wire

#: Longer than the interval in which one target is computed.
INTERVAL_MS = 1_200
GROUP_RESOURCE, SET = 32, 0
DELAY, STANDBY = "streams.initial.rebalance.delay.ms", "streams.num.standby.replicas"
SETTINGS = {DELAY: "initial_rebalance_delay_ms", STANDBY: "standby_replicas"}


class Side(Protocol):
    """Who answers."""

    topic: str
    topic_id: bytes

    def request(self, message: Any, version: int) -> Any: ...

    def create(self, suffix: str, partitions: int) -> bytes: ...

    def configure(self, group: str, name: str, value: int) -> None: ...

    def wait(self) -> None: ...


class Broker:
    """A running one, Kafka's or ours."""

    def __init__(self, port: int) -> None:
        self.wire = Wire(port)
        self.topic = f"t{time.time():.0f}"
        self.topic_id = self.create("", 4)
        find = FindCoordinatorRequest(coordinator_keys=[self.topic])
        eventually(lambda: not self.request(find, 4).coordinators[0].error_code, "the coordinator")
        missing = ConsumerGroupDescribeRequest(group_ids=[self.topic])
        eventually(
            lambda: self.request(missing, 1).groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND, "the coordinator"
        )

    def create(self, suffix: str, partitions: int) -> bytes:
        new = CreatableTopic(name=self.topic + suffix, num_partitions=partitions, replication_factor=1)
        topic_id: bytes = self.wire.request(CreateTopicsRequest(topics=[new])).topics[0].topic_id
        self.wait()
        return topic_id

    def configure(self, group: str, name: str, value: int) -> None:
        config = AlterableConfig(name, SET, str(value))
        resource = AlterConfigsResource(GROUP_RESOURCE, group, [config])
        answer = self.wire.request(IncrementalAlterConfigsRequest(resources=[resource]))
        assert not answer.responses[0].error_code, answer
        self.wait()

    def request(self, message: Any, version: int) -> Any:
        return self.wire.request(message, version)

    def wait(self) -> None:
        time.sleep(INTERVAL_MS / 1000)


class Harness:
    def __init__(self) -> None:
        self.harness = GroupCoordinatorHarness(streams_settings=GroupSettings(initial_rebalance_delay_ms=0))
        self.topic = "script"
        self.topic_id = self.create("", 4)

    def create(self, suffix: str, partitions: int) -> bytes:
        self.harness.topics[self.topic + suffix] = partitions
        self.wait()
        return id_of(self.topic + suffix)

    def request(self, message: Any, version: int) -> Any:
        coordinator = self.harness.coordinator
        match message:
            case StreamsGroupHeartbeatRequest():
                try:
                    check_topic_names(message, INTERNAL_TOPICS)
                except KafkaError as error:
                    return StreamsGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
                answer = coordinator.streams_heartbeat(message, Client(version, "wire", "/127.0.0.1"))
                # As the broker does (broker/cluster/streams_topics.py).
                for topic in answer.missing.values():
                    self.harness.topics[topic.name] = topic.num_partitions
                return answer.response
            case StreamsGroupDescribeRequest():
                return StreamsGroupDescribeResponse(
                    groups=coordinator.describe_modern(message.group_ids, STREAMS_GROUPS)
                )
            case ConsumerGroupHeartbeatRequest():
                return coordinator.consumer_heartbeat(message, Client(version, "wire", "/127.0.0.1"))
            case ConsumerGroupDescribeRequest():
                return ConsumerGroupDescribeResponse(
                    groups=coordinator.describe_modern(message.group_ids, CONSUMER_GROUPS)
                )
            case JoinGroupRequest():
                answers: list[Any] = []
                coordinator.join(message, Client(version, "wire", "/127.0.0.1")).when_done(answers.append)
                return answers[0]
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
                return DeleteGroupsResponse(results=self.harness.delete_groups(message.groups_names))
        raise AssertionError(message)

    def configure(self, group: str, name: str, value: int) -> None:
        self.harness.streams_settings = self.harness.streams_settings._replace(**{SETTINGS[name]: value})
        self.wait()

    def wait(self) -> None:
        self.harness.clock.advance(INTERVAL_MS)


class GroupScript:
    """The group has the topic's name."""

    protocol = ""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.group = side.topic

    def described(self) -> Any:
        raise NotImplementedError

    def epoch(self, member: str) -> int:
        return next((m.member_epoch for m in self.described().members if m.member_id == member), 0)

    def commit(self, member: str, epoch: int, partition: int, version: int = 9) -> str:
        topic = OffsetCommitRequestTopic(self.side.topic, partitions=[OffsetCommitRequestPartition(partition, 1)])
        request = OffsetCommitRequest(self.group, epoch, member, topics=[topic])
        return ErrorCode(self.side.request(request, version).topics[0].partitions[0].error_code).name

    def fetch(self, member: str | None, epoch: int) -> str:
        topics = [OffsetFetchRequestTopics(self.side.topic, partition_indexes=[0])]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(self.group, member, epoch, topics)])
        return ErrorCode(self.side.request(request, 9).groups[0].error_code).name

    def classic(self) -> str:
        group = self.side.request(DescribeGroupsRequest(groups=[self.group]), 6).groups[0]
        return f"{ErrorCode(group.error_code).name} {self.common(group.error_message)} {group.group_state}"

    def list(self) -> str:
        groups = self.side.request(ListGroupsRequest(types_filter=[self.protocol]), 5).groups
        return " ".join(f"{g.protocol_type} {g.group_state} {g.group_type}" for g in groups if g.group_id == self.group)

    def delete(self) -> str:
        request = DeleteGroupsRequest(groups_names=[self.group])
        return ErrorCode(self.side.request(request, 2).results[0].error_code).name

    def common(self, text: str | None) -> str:
        return (text or "").replace(self.side.topic, "T")
