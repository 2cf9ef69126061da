"""A share coordinator on a log in memory: one partition of `__share_group_state`, one topic of three partitions."""

from __future__ import annotations

from typing import Any

from ottla.broker.share.coordinator.share_coordinator import TOPIC, ShareCoordinator
from ottla.broker.share.coordinator.share_shard import ShareCoordinatorConfig, ShareRecordCodec, ShareShard
from ottla.controller.metadata.topics import TopicsImage
from ottla.protocol.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from ottla.protocol.messages.shared_structs import ReadStatePartition, ReadStateTopic
from tests.broker.coordinator.harness import CoordinatorHarness
from tests.broker.groups.cluster import id_of, topics_image

ORDERS = id_of("orders")


class ShareCoordinatorHarness(CoordinatorHarness[ShareCoordinator]):
    """A harness whose requests are about partition 0 of "orders" and group "g", unless a test says otherwise. Each returns its
    only result.
    """

    tp = (TOPIC, 0)

    def __init__(self, **config: int) -> None:
        self.config = ShareCoordinatorConfig(**config)
        self.topics: dict[str, int] = {"orders": 3}
        self.pruned: list[int] = []
        super().__init__()

    def _coordinator(self) -> ShareCoordinator:
        return ShareCoordinator(
            self.config,
            self.log,
            self.clock,
            lambda: 1,
            self.topics_image,
            lambda _, offset: self.pruned.append(offset),
        )

    def _codec(self) -> ShareRecordCodec:
        return ShareRecordCodec()

    def topics_image(self) -> TopicsImage:
        return topics_image(self.topics)

    @property
    def shard(self) -> ShareShard:
        return self.coordinator.runtime.shard(0)

    def initialize(self, state_epoch: int = 1, start_offset: int = -1, partition: int = 0) -> Any:
        return only(self.send_initialize(state_epoch, start_offset, partition))

    def send_initialize(self, state_epoch: int, start_offset: int = -1, partition: int = 0) -> Any:
        """Return the response, which may be a reply."""
        m = initialize_share_group_state
        data = m.PartitionData(partition, state_epoch, start_offset)
        return self.coordinator.respond(
            m.InitializeShareGroupStateRequest("g", [m.InitializeStateData(ORDERS, [data])])
        )

    def read(self, leader_epoch: int = 0, partition: int = 0) -> Any:
        m = read_share_group_state
        data = ReadStatePartition(partition, leader_epoch)
        return only(self.coordinator.respond(m.ReadShareGroupStateRequest("g", [ReadStateTopic(ORDERS, [data])])))

    def write(
        self,
        *batches: tuple[int, int, int, int],
        state_epoch: int = 1,
        leader_epoch: int = 0,
        start_offset: int = -1,
        partition: int = 0,
    ) -> Any:
        m = write_share_group_state
        structs = [m.StateBatch(*batch) for batch in batches]
        data = m.PartitionData(partition, state_epoch, leader_epoch, start_offset, len(batches), structs)
        return only(self.coordinator.respond(m.WriteShareGroupStateRequest("g", [m.WriteStateData(ORDERS, [data])])))

    def delete(self, partition: int = 0) -> Any:
        m = delete_share_group_state
        data = m.PartitionData(partition)
        return only(self.coordinator.respond(m.DeleteShareGroupStateRequest("g", [m.DeleteStateData(ORDERS, [data])])))

    def summary(self, partition: int = 0) -> Any:
        m = read_share_group_state_summary
        data = ReadStatePartition(partition, 0)
        return only(
            self.coordinator.respond(m.ReadShareGroupStateSummaryRequest("g", [ReadStateTopic(ORDERS, [data])]))
        )


def only(answer: Any) -> Any:
    """Return the only result of a response."""
    return answer.results[0].partitions[0]
