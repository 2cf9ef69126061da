"""The state of a consumer group, replayed from its records in the log, and values derived from it.

Everything here is hard state but what is marked as soft. Replay alone changes it, and takes records in any order, as
compaction leaves them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

from ottla.broker.coordinator.outcome import CoordinatorRecord
from ottla.broker.groups.modern.assignment import NOTHING, Assignment, assignment_of, structs_of
from ottla.broker.groups.modern.topics import count_names, narrows
from ottla.broker.groups.state import commits
from ottla.broker.groups.state.consumer_member import (
    Holdings,
    Member,
    ResolvedRegex,
    recorded_assignment,
    topics_of,
)
from ottla.broker.groups.state.group import GroupType
from ottla.broker.groups.state.member_state import UNREVOKED
from ottla.broker.groups.state.modern_group import JOINING_EPOCH, GroupState, ModernGroup, ModernRecords
from ottla.controller.metadata.topics import TopicsImage
from ottla.protocol.internal_topics.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from ottla.protocol.messages.shared_structs import TopicIdPartitions

RECORDS = ModernRecords[Assignment](
    group=ConsumerGroupMetadataKey,
    group_value=ConsumerGroupMetadataValue,
    member=ConsumerGroupMemberMetadataKey,
    assignment_epoch=ConsumerGroupTargetAssignmentMetadataKey,
    assignment_epoch_value=ConsumerGroupTargetAssignmentMetadataValue,
    target=ConsumerGroupTargetAssignmentMemberKey,
    target_value=lambda target: ConsumerGroupTargetAssignmentMemberValue(structs_of(target, TopicIdPartitions)),
    recorded_target=lambda value: assignment_of(value.topic_partitions),
    current=ConsumerGroupCurrentMemberAssignmentKey,
    recorded_current=recorded_assignment,
)


def regex_record(group_id: str, expression: str, resolved: ResolvedRegex | None) -> CoordinatorRecord:
    value = None
    if resolved is not None:
        value = ConsumerGroupRegularExpressionValue(sorted(resolved.topics), resolved.version, resolved.timestamp_ms)
    return ConsumerGroupRegularExpressionKey(group_id, expression), value


NEVER_MS = -(2**63)


class ConsumerGroup(ModernGroup[Member, Assignment]):
    """A consumer group; a new one has no members, and epoch 1 without a record of it, as in Kafka 4.3."""

    type = GroupType.CONSUMER
    states = GroupState.EMPTY, GroupState.ASSIGNING, GroupState.RECONCILING, GroupState.STABLE
    records = RECORDS
    other_records = (ConsumerGroupRegularExpressionKey,)
    new_member = Member
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

    def replay_other(self, key: ConsumerGroupRegularExpressionKey, value: Any) -> None:
        if value is None:
            self.regexes.pop(key.regular_expression, None)
        else:
            resolved = ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
            self.regexes[key.regular_expression] = resolved

    def _count(self, member: Member, by: int) -> None:
        metadata = member.metadata
        expression = metadata.subscribed_topic_regex
        count_names(self.expressions, [expression] if expression else [], by)
        count_names(self.names, metadata.subscribed_topic_names, by)
        self.classic_members += by * member.is_classic
        if metadata.instance_id is not None and by > 0:
            self.static_members[metadata.instance_id] = member.member_id
        elif metadata.instance_id is not None and self.static_members.get(metadata.instance_id) == member.member_id:
            del self.static_members[metadata.instance_id]

    def _hold(self, member: Member, by: int) -> None:
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
        """Returns the assignor that most members prefer."""
        votes = Counter(member.metadata.server_assignor for member in self.members.values())
        del votes[None]
        return min(votes, key=lambda name: (-votes[name], name or "")) or default if votes else default

    def subscribed_topics(
        self, changed: Mapping[str, Iterable[str]], regexes: Mapping[str, ResolvedRegex] | None = None
    ) -> set[str]:
        """The names of all members' topics, as if those in `changed` were subscribed to these, and `regexes` resolved to these."""
        regexes = self.regexes if regexes is None else regexes
        before = [self.members[member_id].metadata for member_id in changed if member_id in self.members]
        gone = Counter(name for each in before for name in each.subscribed_topic_names)
        gone_expressions = Counter(each.subscribed_topic_regex for each in before)
        names = {name for name, count in self.names.items() if count > gone[name]}
        for expression, count in self.expressions.items():
            if count > gone_expressions[expression] and expression in regexes:
                names |= regexes[expression].topics
        return names.union(*changed.values())

    def is_narrowed_without(self, member_ids: Iterable[str]) -> bool:
        """Whether these members have a name or a regular expression that no other member is subscribed to."""
        leaving = [self.members[member_id].metadata for member_id in member_ids]
        return narrows(
            self.names, Counter(name for each in leaving for name in each.subscribed_topic_names)
        ) or narrows(self.expressions, Counter(each.subscribed_topic_regex or "" for each in leaving))

    def topics_of(self, metadata: ConsumerGroupMemberMetadataValue) -> Set[str]:
        """The names that a member asks for, and what its regular expression was resolved to."""
        return topics_of(metadata, self.regexes)

    def has_changed_topics(self, topics: TopicsImage) -> bool:
        """Whether a topic of the subscription is another one than in the metadata that the hash was last compared with."""
        seen = self.seen_topics
        if seen is None or seen is topics:
            return seen is None
        return any(topics.by_name(name) != seen.by_name(name) for name in self.subscribed_topics({}))

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.names or any(topic in resolved.topics for resolved in self.regexes.values())

    def supports_classic(self, protocol_type: str, protocols: Sequence[str]) -> bool:
        """Whether a classic member with these protocols can be with the other classic ones, who share one with it."""
        if protocol_type != "consumer" or not protocols:
            return False
        common = set(protocols)
        for member in self.members.values():
            if member.metadata.classic_member_metadata is not None:
                common &= {protocol.name for protocol in member.metadata.classic_member_metadata.supported_protocols}
        return bool(common)

    def _held_since(self, member: Member, partition: commits.TopicPartition) -> int | None:
        current = member.current
        since = current.assigned.get(partition.topic_id, {}).get(partition.partition)
        if since is None:
            since = current.pending_revocation.get(partition.topic_id, {}).get(partition.partition)
        return since

    def _is_classic(self, member: Member) -> bool:
        return member.is_classic

    def names_without(self, member_ids: Collection[str], topics: TopicsImage) -> set[str] | None:
        if self.seen_topics is topics and not self.is_narrowed_without(member_ids):
            return None
        return self.subscribed_topics(dict.fromkeys(member_ids, ()))

    def session_timeout_ms(self, member: Member, default_ms: int) -> int:
        classic = member.metadata.classic_member_metadata
        return default_ms if classic is None else classic.session_timeout_ms

    def release_timeout_ms(self, member: Member) -> int | None:
        if member.current.state is not UNREVOKED or member.is_classic:
            return None
        return member.metadata.rebalance_timeout_ms

    # ---- records

    def replacement(self, former: Member, member_id: str) -> list[CoordinatorRecord]:
        """The records of a static member's new process, which takes the place of the former one: it has what that one had, at epoch 0."""
        # Each epoch of the new process is after its partitions' assignment, which begins again (KIP-1251).
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
