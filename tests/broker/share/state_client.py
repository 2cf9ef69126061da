"""A client of the share coordinator over the wire: each request is about one share partition, and returns its one result."""

from __future__ import annotations

from typing import Any

from ottla.protocol.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from ottla.protocol.messages.shared_structs import ReadStatePartition, ReadStateTopic
from tests.broker.wire import Wire


class StateClient:
    def __init__(self, wire: Wire, group_id: str, topic_id: bytes, partition: int = 0) -> None:
        self.wire = wire
        self.group_id = group_id
        self.topic_id = topic_id
        self.partition = partition

    def initialize(self, state_epoch: int = 0, start_offset: int = -1) -> Any:
        m = initialize_share_group_state
        data = m.InitializeStateData(self.topic_id, [m.PartitionData(self.partition, state_epoch, start_offset)])
        return self._only(m.InitializeShareGroupStateRequest(self.group_id, [data]))

    def read(self, leader_epoch: int = 0) -> Any:
        m = read_share_group_state
        data = ReadStateTopic(self.topic_id, [ReadStatePartition(self.partition, leader_epoch)])
        return self._only(m.ReadShareGroupStateRequest(self.group_id, [data]))

    def write(
        self, *batches: tuple[int, int, int, int], state_epoch: int = 0, leader_epoch: int = 0, start_offset: int = -1
    ) -> Any:
        m = write_share_group_state
        structs = [m.StateBatch(*batch) for batch in batches]
        data = m.PartitionData(self.partition, state_epoch, leader_epoch, start_offset, 0, structs)
        return self._only(m.WriteShareGroupStateRequest(self.group_id, [m.WriteStateData(self.topic_id, [data])]))

    def delete(self) -> Any:
        m = delete_share_group_state
        data = m.DeleteStateData(self.topic_id, [m.PartitionData(self.partition)])
        return self._only(m.DeleteShareGroupStateRequest(self.group_id, [data]))

    def summary(self) -> Any:
        m = read_share_group_state_summary
        data = ReadStateTopic(self.topic_id, [ReadStatePartition(self.partition, 0)])
        return self._only(m.ReadShareGroupStateSummaryRequest(self.group_id, [data]))

    def _only(self, request: Any) -> Any:
        """Send a request; return its only result. An empty response is returned as it is."""
        response = self.wire.request(request)
        return response.results[0].partitions[0] if response.results else response
