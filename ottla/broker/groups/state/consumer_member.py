"""One member of a consumer group: its subscription and its current assignment. All of it is hard state."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from ottla.broker.groups.modern.assignment import Assignment, structs_with_epochs, with_epochs
from ottla.broker.groups.state.member_state import Progress, member_state
from ottla.protocol.internal_topics.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupTopicPartitions,
)

#: Topic id -> partition -> the member epoch at which it was assigned (KIP-1251).
Holdings: TypeAlias = Mapping[bytes, Mapping[int, int]]

# Without classic_member_metadata=None the record would be that of a classic member: its default is not null.
EMPTY_METADATA = ConsumerGroupMemberMetadataValue(
    instance_id=None, rack_id=None, server_assignor=None, classic_member_metadata=None
)


class ResolvedRegex(NamedTuple):
    """The topics of a regular expression in the metadata of `version`, which is an offset in the metadata log."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class CurrentAssignment(Progress):
    """The reconciliation state of a member, as in ConsumerGroupCurrentMemberAssignmentValue."""

    assigned: Holdings = field(default_factory=dict)
    pending_revocation: Holdings = field(default_factory=dict)

    def value(self) -> ConsumerGroupCurrentMemberAssignmentValue:
        return ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state.value,
            assigned_partitions=structs_with_epochs(self.assigned, ConsumerGroupTopicPartitions),
            partitions_pending_revocation=structs_with_epochs(self.pending_revocation, ConsumerGroupTopicPartitions),
        )


@dataclass(slots=True, eq=False)
class Member:
    member_id: str
    metadata: ConsumerGroupMemberMetadataValue = field(default_factory=lambda: EMPTY_METADATA)
    current: CurrentAssignment = CurrentAssignment()

    @property
    def is_classic(self) -> bool:
        """It speaks the classic protocol, in a group that was upgraded or that it joined."""
        return self.metadata.classic_member_metadata is not None


def recorded_assignment(value: ConsumerGroupCurrentMemberAssignmentValue) -> CurrentAssignment:
    return CurrentAssignment(
        value.member_epoch,
        value.previous_member_epoch,
        member_state(value.state),
        _holdings(value.assigned_partitions, value.member_epoch),
        _holdings(value.partitions_pending_revocation, value.member_epoch),
    )


def topics_of(metadata: ConsumerGroupMemberMetadataValue, regexes: Mapping[str, ResolvedRegex]) -> Set[str]:
    names = frozenset(metadata.subscribed_topic_names)
    resolved = regexes.get(metadata.subscribed_topic_regex or "")
    if resolved is None:
        return names
    return names | resolved.topics if names else resolved.topics


def is_subset(owned: Assignment | None, assigned: Holdings) -> bool:
    """Returns True if the request names the owned partitions, and all of them were assigned to the member."""
    if owned is None:
        return False
    given = partitions_of(assigned)
    return all(partitions <= given.get(topic_id, frozenset()) for topic_id, partitions in owned.items())


def partitions_of(holdings: Holdings) -> Assignment:
    return {topic_id: frozenset(partitions) for topic_id, partitions in holdings.items()}


def _holdings(topics: list[ConsumerGroupTopicPartitions], epoch: int) -> Holdings:
    return with_epochs(((topic.topic_id, topic.partitions, topic.assignment_epochs) for topic in topics), epoch)
