"""Entries of the records in `__consumer_offsets` in the stories of groups: epochs, members and states, by the type of the record.

Commits of offsets, and the targets and steps of members, of which a rebalance of a large group has a thousand, are entries that grow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.broker.coordinator.outcome import CoordinatorRecord
from ottla.broker.coordinator.stories import CoordinatorStories, RecordAccount
from ottla.broker.groups.group import group_of
from ottla.broker.groups.modern.modern_group import MemberState
from ottla.protocol.internal_topics import group_records as records_of
from ottla.protocol.internal_topics.group_records import GroupMetadataKey, OffsetCommitKey

COMMITTED = "Offsets were committed"
OFFSET_REMOVED = RecordAccount(
    "The committed offset of %s-%d was removed", lambda key, value: (key.topic, key.partition), is_frequent=True
)
GROUP_REMOVED = RecordAccount("The group was removed from the log", lambda key, value: ())
OTHER = RecordAccount("%s was written", lambda key, value: (type(key).__name__.removesuffix("Key"),), is_frequent=True)
OTHER_REMOVED = RecordAccount(
    "%s was removed", lambda key, value: (type(key).__name__.removesuffix("Key"),), is_frequent=True
)

GENERATION = RecordAccount(
    "Generation %d was written: %d members, protocol %s, leader %s",
    lambda key, value: (value.generation, len(value.members), value.protocol, value.leader),
)
EPOCH = RecordAccount("The group is at epoch %d", lambda key, value: (value.epoch,))
MEMBER = RecordAccount(
    "Member %s is of client %s at %s", lambda key, value: (key.member_id, value.client_id, value.client_host)
)
MEMBER_REMOVED = RecordAccount("Member %s was removed", lambda key, value: (key.member_id,))
TARGET_EPOCH = RecordAccount("The target is that of epoch %d", lambda key, value: (value.assignment_epoch,))
TARGET = RecordAccount("Member %s has a new target", lambda key, value: (key.member_id,), is_frequent=True)
STEP = RecordAccount(
    "Member %s is at epoch %d, %s",
    lambda key, value: (key.member_id, value.member_epoch, MemberState(value.state).name),
    is_frequent=True,
)
#: The records of the three modern kinds have the same names except for their beginning.
MODERN = {
    "MetadataKey": (EPOCH, GROUP_REMOVED),
    "MemberMetadataKey": (MEMBER, MEMBER_REMOVED),
    "TargetAssignmentMetadataKey": (TARGET_EPOCH, OTHER_REMOVED),
    "TargetAssignmentMemberKey": (TARGET, OTHER_REMOVED),
    "CurrentMemberAssignmentKey": (STEP, OTHER_REMOVED),
}
#: Entries of a value and of a tombstone, by the class of the key.
FACTS: dict[type[object], tuple[RecordAccount, RecordAccount]] = {
    GroupMetadataKey: (GENERATION, GROUP_REMOVED),
    OffsetCommitKey: (OTHER, OFFSET_REMOVED),
} | {
    getattr(records_of, f"{kind}Group{name}"): facts
    for kind in ("Consumer", "Share", "Streams")
    for name, facts in MODERN.items()
}
UNKNOWN = (OTHER, OTHER_REMOVED)


class GroupStories(CoordinatorStories):
    """The stories of a broker's groups."""

    def subject_of(self, key: Any) -> str:
        return group_of(key)

    def appended(self, records: Sequence[CoordinatorRecord]) -> None:
        key: Any
        key, value = records[0]
        if value is not None and key.__class__ is OffsetCommitKey:
            # All records of a commit are of one group. On this hot path they are counted, not looked at one by one.
            self.grow(key.group, COMMITTED, (), len(records))
            return
        for key, value in records:
            of_value, of_tombstone = FACTS.get(key.__class__, UNKNOWN)
            self.add_record(group_of(key), of_tombstone if value is None else of_value, key, value)
