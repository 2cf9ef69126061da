"""The state of a share partition, as leaders, the share coordinator and the records of `__share_group_state` have it in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.protocol.primitives import uuid_from_str, uuid_to_str

#: The group has no start offset yet: the leader takes that of share.auto.offset.reset. In an update: as it was.
UNINITIALIZED_START_OFFSET = -1
#: In an update of the number of finished deliveries: not known (KIP-1226).
UNKNOWN_COUNT = -1


class SharePartitionKey(NamedTuple):
    """One partition of one group."""

    group_id: str
    topic_id: bytes
    partition: int

    @property
    def coordinator_key(self) -> str:
        """The key of FindCoordinator, whose hash also chooses the partition of `__share_group_state`."""
        return f"{self.group_id}:{uuid_to_str(self.topic_id)}:{self.partition}"


def parse_coordinator_key(text: str) -> SharePartitionKey:
    """The key of a FindCoordinator for a share partition; ValueError says what is wrong. A group id may have colons."""
    if not text:
        raise ValueError("Share partition key cannot be empty.")
    group_and_topic, _, partition = text.rpartition(":")
    group_id, _, topic_id = group_and_topic.rpartition(":")
    if not group_id.strip() or not topic_id.strip():
        raise ValueError(f"Invalid key format: expected - groupId:topicId:partition, found -  {text}")
    return SharePartitionKey(group_id, uuid_from_str(topic_id), int(partition))


class StateBatch(NamedTuple):
    """Records from `first_offset` to `last_offset`, both included, in the same state after as many deliveries."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


class ShareState(NamedTuple):
    """What a leader reads when it begins with a share partition."""

    state_epoch: int
    start_offset: int
    batches: Sequence[StateBatch]


class StateUpdate(NamedTuple):
    """What a leader writes: batches that changed, and the new start offset."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    batches: Sequence[StateBatch]
    delivery_complete_count: int = UNKNOWN_COUNT


class StateSummary(NamedTuple):
    """What the group coordinator reads for DescribeShareGroupOffsets."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
