"""The state of a consumer group, replayed from its records in the log, and values derived from it.

Everything here is hard state, except for fields that are marked as soft. Replay alone changes it, and takes records in any
order, as compaction leaves them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import field, replace
from typing import Any, NamedTuple, TypeAlias

from ottla.broker.coordinator.outcome import CoordinatorRecord
from ottla.broker.groups.group import GroupType, TopicPartition
from ottla.broker.groups.modern.assignment import (
    NOTHING,
    Assignment,
    assignment_of,
    structs_of,
    structs_with_epochs,
    with_epochs,
)
from ottla.broker.groups.modern.modern_group import (
    JOINING_EPOCH,
    UNREVOKED,
    CommittingGroup,
    MemberProgress,
    MemberState,
    ModernGroupState,
    ModernRecords,
)
from ottla.broker.groups.modern.topics import count_names, narrows
from ottla.controller.metadata.topics import TopicsImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics import group_records
from ottla.protocol.messages.shared_structs import TopicIdPartitions
from ottla.protocol.slotted import entity, frozen

#: Topic id -> partition -> the member epoch at which it was assigned (KIP-1251).
Holdings: TypeAlias = Mapping[bytes, Mapping[int, int]]

# Without classic_member_metadata=None the record would be that of a classic member: its default is not null.
EMPTY_METADATA = group_records.ConsumerGroupMemberMetadataValue(
    instance_id=None, rack_id=None, server_assignor=None, classic_member_metadata=None
)


class ResolvedRegex(NamedTuple):
    """The topics of a regular expression in the metadata of `version`, which is an offset in the metadata log."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


@frozen
class CurrentAssignment(MemberProgress):
    """The reconciliation state of a member, as in group_records.ConsumerGroupCurrentMemberAssignmentValue."""

    assigned: Holdings = field(default_factory=dict)
    pending_revocation: Holdings = field(default_factory=dict)

    def value(self) -> group_records.ConsumerGroupCurrentMemberAssignmentValue:
        return group_records.ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state.value,
            assigned_partitions=structs_with_epochs(self.assigned, group_records.ConsumerGroupTopicPartitions),
            partitions_pending_revocation=structs_with_epochs(
                self.pending_revocation, group_records.ConsumerGroupTopicPartitions
            ),
        )


@entity
class ConsumerGroupMember:
    member_id: str
    metadata: group_records.ConsumerGroupMemberMetadataValue = field(default_factory=lambda: EMPTY_METADATA)
    current: CurrentAssignment = CurrentAssignment()
    # Soft: the partitions that the member reported last as its own, or None if it has reported none since the group was loaded.
    owned: Assignment | None = None

    @property
    def is_classic(self) -> bool:
        """Return whether the member speaks the classic protocol, in a group that was upgraded or that it joined."""
        return self.metadata.classic_member_metadata is not None


def recorded_assignment(value: group_records.ConsumerGroupCurrentMemberAssignmentValue) -> CurrentAssignment:
    return CurrentAssignment(
        value.member_epoch,
        value.previous_member_epoch,
        MemberState(value.state),
        _holdings(value.assigned_partitions, value.member_epoch),
        _holdings(value.partitions_pending_revocation, value.member_epoch),
    )


def topics_of(
    metadata: group_records.ConsumerGroupMemberMetadataValue, regexes: Mapping[str, ResolvedRegex]
) -> Set[str]:
    names = frozenset(metadata.subscribed_topic_names)
    resolved = regexes.get(metadata.subscribed_topic_regex or "")
    if resolved is None:
        return names
    return names | resolved.topics if names else resolved.topics


def _holdings(topics: list[group_records.ConsumerGroupTopicPartitions], epoch: int) -> Holdings:
    return with_epochs(((topic.topic_id, topic.partitions, topic.assignment_epochs) for topic in topics), epoch)


RECORDS = ModernRecords[Assignment](
    group=group_records.ConsumerGroupMetadataKey,
    group_value=group_records.ConsumerGroupMetadataValue,
    member=group_records.ConsumerGroupMemberMetadataKey,
    assignment_epoch=group_records.ConsumerGroupTargetAssignmentMetadataKey,
    assignment_epoch_value=group_records.ConsumerGroupTargetAssignmentMetadataValue,
    target=group_records.ConsumerGroupTargetAssignmentMemberKey,
    target_value=lambda target: group_records.ConsumerGroupTargetAssignmentMemberValue(
        structs_of(target, TopicIdPartitions)
    ),
    recorded_target=lambda value: assignment_of(value.topic_partitions),
    current=group_records.ConsumerGroupCurrentMemberAssignmentKey,
    recorded_current=recorded_assignment,
)


def regex_record(group_id: str, expression: str, resolved: ResolvedRegex | None) -> CoordinatorRecord:
    value = None
    if resolved is not None:
        value = group_records.ConsumerGroupRegularExpressionValue(
            sorted(resolved.topics), resolved.version, resolved.timestamp_ms
        )
    return group_records.ConsumerGroupRegularExpressionKey(group_id, expression), value


NEVER_MS = -(2**63)


class ConsumerGroup(CommittingGroup[ConsumerGroupMember, Assignment]):
    """A consumer group; a new one has no members, and epoch 1 without a record of it, as in Kafka 4.3."""

    type = GroupType.CONSUMER
    states = ModernGroupState.EMPTY, ModernGroupState.ASSIGNING, ModernGroupState.RECONCILING, ModernGroupState.STABLE
    records = RECORDS
    other_records = (group_records.ConsumerGroupRegularExpressionKey,)
    new_member = ConsumerGroupMember
    no_target = NOTHING

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id, epoch=1, assignment_epoch=1)
        # group.instance.id -> member id
        self.static_members: dict[str, str] = {}
        # How many members are subscribed to each name and to each regular expression, and what these were resolved to; how
        # many are members by the classic protocol.
        self.names: Counter[str] = Counter()
        self.expressions: Counter[str] = Counter()
        self.classic_members = 0
        self.regexes: dict[str, ResolvedRegex] = {}
        # Topic id -> partition -> the member that owns it or still has to revoke it.
        self._holders: dict[bytes, dict[int, str]] = {}
        # ---- soft
        # The regular expressions are being resolved; when that began last, as it may fail.
        self.is_resolving = False
        self.is_regex_rejected = False
        self.resolved_ms = NEVER_MS

    # ---- replay

    def replay_other(self, key: group_records.ConsumerGroupRegularExpressionKey, value: Any) -> None:
        if value is None:
            self.regexes.pop(key.regular_expression, None)
        else:
            resolved = ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
            self.regexes[key.regular_expression] = resolved

    def _count(self, member: ConsumerGroupMember, by: int) -> None:
        metadata = member.metadata
        expression = metadata.subscribed_topic_regex
        count_names(self.expressions, [expression] if expression else [], by)
        count_names(self.names, metadata.subscribed_topic_names, by)
        self.classic_members += by * member.is_classic
        if metadata.instance_id is not None and by > 0:
            self.static_members[metadata.instance_id] = member.member_id
        elif metadata.instance_id is not None and self.static_members.get(metadata.instance_id) == member.member_id:
            del self.static_members[metadata.instance_id]

    def _hold(self, member: ConsumerGroupMember, by: int) -> None:
        change = self._take if by > 0 else self._release
        change(member.member_id, member.current.assigned)
        change(member.member_id, member.current.pending_revocation)

    def _take(self, member_id: str, holdings: Holdings) -> None:
        for topic_id, partitions in holdings.items():
            self._holders.setdefault(topic_id, {}).update(dict.fromkeys(partitions, member_id))

    def _release(self, member_id: str, holdings: Holdings) -> None:
        for topic_id, partitions in holdings.items():
            holders = self._holders.get(topic_id, {})
            for partition in partitions:
                if holders.get(partition) == member_id:
                    del holders[partition]
            if not holders:
                self._holders.pop(topic_id, None)

    # ---- what follows

    def is_free(self, topic_id: bytes, partition: int) -> bool:
        return partition not in self._holders.get(topic_id, ())

    def assignor_name(self, default: str) -> str:
        """Return the assignor that most members prefer."""
        votes = Counter(member.metadata.server_assignor for member in self.members.values())
        del votes[None]
        return min(votes, key=lambda name: (-votes[name], name or "")) or default if votes else default

    def subscribed_topics(
        self, changed: Mapping[str, Iterable[str]], regexes: Mapping[str, ResolvedRegex] | None = None
    ) -> set[str]:
        """Return the names of all members' topics after a change: `changed` has the new topics of some members, `regexes` the
        new results of expressions.
        """
        regexes = self.regexes if regexes is None else regexes
        before = [self.members[member_id].metadata for member_id in changed if member_id in self.members]
        gone = Counter(name for each in before for name in each.subscribed_topic_names)
        gone_expressions = Counter(each.subscribed_topic_regex for each in before)
        names = {name for name, count in self.names.items() if count > gone[name]}
        for expression, count in self.expressions.items():
            if count > gone_expressions[expression] and expression in regexes:
                names |= regexes[expression].topics
        return names.union(*changed.values())

    def topics_of(self, metadata: group_records.ConsumerGroupMemberMetadataValue) -> Set[str]:
        """Return the names that a member asks for, and what its regular expression was resolved to."""
        return topics_of(metadata, self.regexes)

    def has_changed_topics(self, topics: TopicsImage) -> bool:
        """Return whether the topics of the subscription differ from those in the metadata with which the hash was last
        compared.
        """
        seen = self.seen_topics
        if seen is None or seen is topics:
            return seen is None
        return any(topics.by_name(name) != seen.by_name(name) for name in self.subscribed_topics({}))

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.names or any(topic in resolved.topics for resolved in self.regexes.values())

    def static_member(self, instance_id: str, member_id: str) -> ConsumerGroupMember:
        """Return the member, if it has the instance id; KafkaError UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another one has."""
        holder = self.members.get(self.static_members.get(instance_id, ""))
        if holder is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if holder.member_id != member_id:
            raise KafkaError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member {holder.member_id}.",
            )
        return holder

    def supports_classic(self, protocol_type: str, protocols: Sequence[str]) -> bool:
        """Return whether a classic member with these protocols has one that all other classic members support, too."""
        if protocol_type != "consumer" or not protocols:
            return False
        common = set(protocols)
        for member in self.members.values():
            if member.metadata.classic_member_metadata is not None:
                common &= {protocol.name for protocol in member.metadata.classic_member_metadata.supported_protocols}
        return bool(common)

    def _held_since(self, member: ConsumerGroupMember, partition: TopicPartition) -> int | None:
        held = (member.current.assigned, member.current.pending_revocation)
        assigned, pending = (each.get(partition.topic_id, {}).get(partition.partition) for each in held)
        return pending if assigned is None else assigned

    def _is_classic(self, member: ConsumerGroupMember) -> bool:
        return member.is_classic

    def names_without(self, member_ids: Collection[str], topics: TopicsImage) -> set[str] | None:
        leaving = [self.members[member_id].metadata for member_id in member_ids]
        names = Counter(name for each in leaving for name in each.subscribed_topic_names)
        expressions = Counter(each.subscribed_topic_regex or "" for each in leaving)
        is_narrowed = narrows(self.names, names) or narrows(self.expressions, expressions)
        if self.seen_topics is topics and not is_narrowed:
            return None
        return self.subscribed_topics(dict.fromkeys(member_ids, ()))

    def session_timeout_ms(self, member: ConsumerGroupMember, default_ms: int) -> int:
        classic = member.metadata.classic_member_metadata
        return default_ms if classic is None else classic.session_timeout_ms

    def release_timeout_ms(self, member: ConsumerGroupMember) -> int | None:
        if member.current.state is not UNREVOKED or member.is_classic:
            return None
        return member.metadata.rebalance_timeout_ms

    # ---- records

    def regex_tombstones(self, expression: str, given_up: int = 1) -> list[CoordinatorRecord]:
        """Return the tombstones of an expression that `given_up` members give up, if no other member has subscribed to it."""
        return [regex_record(self.group_id, expression, None)] if self.expressions.get(expression) == given_up else []

    def tombstones_without(self, member_ids: Collection[str]) -> Iterator[CoordinatorRecord]:
        leaving = Counter(self.members[member_id].metadata.subscribed_topic_regex or "" for member_id in member_ids)
        for expression, given_up in leaving.items():
            yield from self.regex_tombstones(expression, given_up)

    def replacement(self, former: ConsumerGroupMember, member_id: str) -> list[CoordinatorRecord]:
        """Return the records of a static member's new process, which takes the place of the former one: it has the same
        partitions, at epoch 0.
        """
        # The assignment counts as made at the first epoch of the new process, so that its commits in any of its epochs are
        # accepted (KIP-1251).
        assigned = {topic_id: dict.fromkeys(held, JOINING_EPOCH) for topic_id, held in former.current.assigned.items()}
        current = replace(former.current, epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH, assigned=assigned)
        return [
            *RECORDS.member_tombstones(self.group_id, former.member_id),
            RECORDS.member_record(self.group_id, member_id, former.metadata),
            RECORDS.target_record(self.group_id, member_id, self.target(former.member_id)),
            RECORDS.current_record(self.group_id, member_id, current),
        ]

    def tombstones(self) -> Iterator[CoordinatorRecord]:
        for member_id in self.members:
            yield from RECORDS.member_tombstones(self.group_id, member_id)
        for expression in self.regexes:
            yield regex_record(self.group_id, expression, None)
        yield RECORDS.assignment_epoch(self.group_id), None
        yield RECORDS.group(self.group_id), None
