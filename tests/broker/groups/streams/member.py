"""A member of a streams group with the memory of a real client: its id, its epoch, and its tasks."""

from __future__ import annotations

from typing import Any

from ottla.broker.groups.group_metadata_manager import Client
from ottla.broker.groups.modern.assignment import structs_of
from ottla.broker.groups.streams.streams_group import TasksTuple, task_set
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.shared_structs import TaskIds
from ottla.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Topology,
)
from tests.broker.groups.cluster import id_of
from tests.broker.groups.harness import GroupCoordinatorHarness


class StreamsMember:
    """It closes tasks as soon as a response takes them away, unless `owned` is set by the test."""

    def __init__(
        self,
        harness: GroupCoordinatorHarness,
        name: str,
        topology: Topology,
        *,
        process: str | None = None,
        rebalance: int = 60_000,
    ) -> None:
        self.harness = harness
        self.name = name
        self.topology = topology
        self.process = name if process is None else process
        self.rebalance = rebalance
        self.epoch = 0
        self.owned = TasksTuple()
        self._sent: TasksTuple | None = None
        #: The internal topics that the last response called missing.
        self.missing: dict[str, int] = {}

    def beat(self, epoch: int | None = None, owned: TasksTuple | None = None, full: bool = False) -> Any:
        """Send a heartbeat. The first one, at epoch 0, has all fields; later ones have only the fields that have changed."""
        self.epoch = self.epoch if epoch is None else epoch
        request = StreamsGroupHeartbeatRequest("g", self.name, self.epoch)
        if self.epoch == 0:
            self.owned, self._sent = TasksTuple(), None
            request.rebalance_timeout_ms = self.rebalance
            request.topology = self.topology
            request.process_id = self.process
        having = self.owned if owned is None else owned
        if self.epoch == 0 or full or having != self._sent:
            request.active_tasks = structs_of(having.active, TaskIds)
            request.standby_tasks = structs_of(having.standby, TaskIds)
            request.warmup_tasks = []
        self._sent = having
        return self._heartbeat(request)

    def leave(self, shutdown: bool = False) -> Any:
        answer = self._heartbeat(StreamsGroupHeartbeatRequest("g", self.name, -1, shutdown_application=shutdown))
        self.epoch = 0
        return answer

    def _heartbeat(self, request: StreamsGroupHeartbeatRequest) -> Any:
        answered = self.harness.coordinator.streams_heartbeat(request, Client(0, self.name, "/127.0.0.1"))
        answer: Any = answered
        self.missing = {topic.name: topic.num_partitions for topic in answer.missing.values()}
        response = answer.response
        if not response.error_code:
            self.epoch = response.member_epoch
            if response.active_tasks is not None:
                kinds = (response.active_tasks, response.standby_tasks, response.warmup_tasks)
                self.owned = TasksTuple(*(task_set(kind) for kind in kinds))
        return response

    def commit(self, topic: str, partition: int, epoch: int | None = None) -> Any:
        request = OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=self.epoch if epoch is None else epoch,
            member_id=self.name,
            topics=[OffsetCommitRequestTopic(topic, id_of(topic), [OffsetCommitRequestPartition(partition, 1)])],
        )
        return self.harness.coordinator.commit_offsets(request, 9)
