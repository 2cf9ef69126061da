"""A member of a consumer group with the memory of a real client: its id, its epoch, and its partitions."""

from __future__ import annotations

from typing import Any

from ottla.broker.groups.group_metadata_manager import Client
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.protocol.messages.shared_structs import TopicIdPartitions
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.broker.groups.cluster import id_of
from tests.broker.groups.harness import GroupCoordinatorHarness

Owned = dict[str, set[int]]


class ConsumerMember:
    """It revokes partitions as soon as a response takes them away, unless `owned` is set by the test."""

    def __init__(
        self,
        harness: GroupCoordinatorHarness,
        name: str,
        *,
        group: str = "g",
        instance: str | None = None,
        topics: str = "t",
        regex: str | None = None,
        assignor: str | None = None,
        rebalance: int = 60_000,
        version: int = 1,
        member: str | None = None,
    ) -> None:
        self.harness = harness
        self.name = name
        self.group = group
        self.instance = instance
        self.topics = topics if regex is None else ""
        self.regex = regex
        #: Topics that the member may not describe.
        self.hidden = frozenset[str]()
        self.assignor = assignor
        self.rebalance = rebalance
        self.version = version
        self.member_id = name if member is None else member
        self.epoch = 0
        self.owned: Owned = {}
        self._sent: Owned | None = None

    def beat(self, epoch: int | None = None, owned: Owned | None = None, full: bool = False) -> Any:
        """Send a heartbeat. The first one, at epoch 0, has all fields; later ones have only the fields that have changed."""
        self.epoch = self.epoch if epoch is None else epoch
        if self.epoch == 0:
            self.owned, self._sent = {}, None
        having = self.owned if owned is None else owned
        is_full = full or self.epoch == 0
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance,
            topic_partitions=_structs(having) if is_full or having != self._sent else None,
        )
        if is_full:
            request.rebalance_timeout_ms = self.rebalance
            request.subscribed_topic_names = [topic for topic in self.topics.split(",") if topic]
            request.subscribed_topic_regex = self.regex
            request.server_assignor = self.assignor
        self._sent = {topic: set(partitions) for topic, partitions in having.items()}
        return self._heartbeat(request)

    def leave(self, epoch: int) -> Any:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member_id, member_epoch=epoch, instance_id=self.instance
        )
        answer = self._heartbeat(request)
        self.epoch = 0
        return answer

    def _heartbeat(self, request: ConsumerGroupHeartbeatRequest) -> Any:
        client = Client(self.version, self.name, "/127.0.0.1", lambda topic: topic not in self.hidden)
        answer = self.harness.coordinator.consumer_heartbeat(request, client)
        if isinstance(answer, ConsumerGroupHeartbeatResponse) and not answer.error_code:
            self.member_id = answer.member_id or ""
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.owned = {
                    topic.topic_id.decode().strip("\0"): set(topic.partitions)
                    for topic in answer.assignment.topic_partitions
                }
        return answer

    def commit(self, offsets: dict[tuple[str, int], int], epoch: int | None = None, version: int = 9) -> Any:
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.epoch if epoch is None else epoch,
            member_id=self.member_id,
            group_instance_id=self.instance,
            topics=[
                OffsetCommitRequestTopic(topic, id_of(topic), [OffsetCommitRequestPartition(partition, offset)])
                for (topic, partition), offset in offsets.items()
            ],
        )
        return self.harness.coordinator.commit_offsets(request, version)

    def commit_transactional(
        self, offsets: dict[tuple[str, int], int], epoch: int | None = None, member_id: str | None = None
    ) -> Any:
        request = TxnOffsetCommitRequest(
            group_id=self.group,
            producer_id=1,
            generation_id_or_member_epoch=self.epoch if epoch is None else epoch,
            member_id=self.member_id if member_id is None else member_id,
            topics=[
                TxnOffsetCommitRequestTopic(topic, id_of(topic), [TxnOffsetCommitRequestPartition(partition, offset)])
                for (topic, partition), offset in offsets.items()
            ],
        )
        return self.harness.coordinator.commit_transactional_offsets(request)

    def fetch(self, partitions: list[tuple[str, int]], epoch: int | None = None) -> Any:
        topics = [OffsetFetchRequestTopics(topic, id_of(topic), [partition]) for topic, partition in partitions]
        epoch = self.epoch if epoch is None else epoch
        request = OffsetFetchRequestGroup(self.group, self.member_id, epoch, topics)
        return self.harness.coordinator.fetch_offsets(request, False)


def _structs(owned: Owned) -> list[TopicIdPartitions]:
    return [TopicIdPartitions(id_of(topic), sorted(partitions)) for topic, partitions in owned.items()]
