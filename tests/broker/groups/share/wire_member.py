"""A member of a share group over the wire: its connection, its epoch, and what it was assigned."""

from __future__ import annotations

from typing import Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.broker.wire import Wire


class WireMember:
    """A member that is a connection to the group coordinator, `wire`."""

    def __init__(self, wire: Wire, group_id: str, member_id: str = "m") -> None:
        self.wire = wire
        self.group_id = group_id
        self.member_id = member_id
        self.epoch = 0
        self.partitions: list[int] = []

    def beat(self, *topics: str, epoch: int | None = None) -> Any:
        request = ShareGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch if epoch is None else epoch,
            subscribed_topic_names=list(topics) if topics else None,
        )
        response = self.wire.request(request)
        if not response.error_code:
            self.epoch = response.member_epoch
            if response.assignment is not None:
                self.partitions = [p for topic in response.assignment.topic_partitions for p in topic.partitions]
        return response

    def joins(self, *topics: str) -> bool:
        """Return whether the member has joined: its first request makes the node create `__consumer_offsets`."""
        self.wire.request(FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group_id]))
        return bool(self.beat(*topics, epoch=0).error_code == ErrorCode.NONE)

    def has(self, partitions: list[int]) -> bool:
        assert self.beat().error_code == ErrorCode.NONE
        return self.partitions == partitions
