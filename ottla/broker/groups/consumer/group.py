"""The state of a consumer group, replayed from its records in the log, and values derived from it.

Everything here is hard state but what is marked as soft. Replay alone changes it, and takes records in any order, as
compaction leaves them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple

from ottla.broker.groups.commits import Commit, TopicPartition, check_epoch
from ottla.broker.groups.consumer.member import (
    CurrentAssignment,
    Holdings,
    Member,
    partitions_of,
    recorded_assignment,
)
from ottla.broker.groups.consumer.state import GroupState
from ottla.broker.groups.modern.assignment import NOTHING, Assignment, assignment_of
from ottla.broker.groups.modern.topics import count_names, narrows
from ottla.controller.metadata.topics import TopicsImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
)

NEVER_MS = -(2**63)


class ResolvedRegex(NamedTuple):
    """The topics of a regular expression in the metadata of `version`, which is an offset in the metadata log."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class ConsumerGroup:
    """A consumer group; a new one has no members, and epoch 1 without a record of it, as in Kafka 4.3."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 1
        self.metadata_hash = 0
        self.assignment_epoch = 1
        self.assignment_timestamp_ms = 0
        self.members: dict[str, Member] = {}
        # group.instance.id -> member id
        self.static_members: dict[str, str] = {}
        self.targets: dict[str, Assignment] = {}
        # How many members are subscribed to each name and to each regular expression, and what these were resolved to; how
        # many are members by the classic protocol.
        self.names: Counter[str] = Counter()
        self.expressions: Counter[str] = Counter()
        self.classic_members = 0
        self.regexes: dict[str, ResolvedRegex] = {}
        # Topic id -> partition -> the member that owns it or still has to revoke it.
        self._holders: dict[bytes, dict[int, str]] = {}
        # ---- soft
        # The metadata that the hash was last compared with.
        self.seen_topics: TopicsImage | None = None
        # The regular expressions are being resolved; when that began last, as it may fail.
        self.is_resolving = False
        self.is_regex_rejected = False
        self.is_assigning = False
        self.rejected_epoch = -1
        self.resolved_ms = NEVER_MS

    # ---- replay

    def replay_group(self, value: ConsumerGroupMetadataValue) -> None:
        self.epoch = value.epoch
        self.metadata_hash = value.metadata_hash

    def replay_member(self, member_id: str, value: ConsumerGroupMemberMetadataValue | None) -> None:
        if value is None:
            self.replay_current_assignment(member_id, None)
            member = self.members.pop(member_id, None)
            if member is not None:
                self._count(member, -1)
            if member is not None and self.static_members.get(member.metadata.instance_id or "") == member_id:
                del self.static_members[member.metadata.instance_id or ""]
            return
        member = self._member(member_id)
        self._count(member, -1)
        member.metadata = value
        self._count(member, +1)
        if value.instance_id is not None:
            self.static_members[value.instance_id] = member_id

    def replay_assignment_epoch(self, value: ConsumerGroupTargetAssignmentMetadataValue | None) -> None:
        self.assignment_epoch = 0 if value is None else value.assignment_epoch
        self.assignment_timestamp_ms = 0 if value is None else value.assignment_timestamp

    def replay_target(self, member_id: str, value: ConsumerGroupTargetAssignmentMemberValue | None) -> None:
        if value is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = assignment_of(value.topic_partitions)

    def replay_current_assignment(
        self, member_id: str, value: ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> None:
        if value is None and member_id not in self.members:
            return
        member = self._member(member_id)
        self._release(member_id, member.current.assigned)
        self._release(member_id, member.current.pending_revocation)
        member.current = CurrentAssignment() if value is None else recorded_assignment(value)
        self._hold(member_id, member.current.assigned)
        self._hold(member_id, member.current.pending_revocation)

    def replay_regex(self, expression: str, value: ConsumerGroupRegularExpressionValue | None) -> None:
        if value is None:
            self.regexes.pop(expression, None)
        else:
            self.regexes[expression] = ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)

    def _count(self, member: Member, by: int) -> None:
        expression = member.metadata.subscribed_topic_regex
        count_names(self.expressions, [expression] if expression else [], by)
        count_names(self.names, member.metadata.subscribed_topic_names, by)
        self.classic_members += by * member.is_classic

    def _member(self, member_id: str) -> Member:
        member = self.members.get(member_id)
        if member is None:
            member = self.members[member_id] = Member(member_id)
        return member

    def _hold(self, member_id: str, holdings: Holdings) -> None:
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

    @property
    def state(self) -> GroupState:
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING

    def is_free(self, topic_id: bytes, partition: int) -> bool:
        return partition not in self._holders.get(topic_id, ())

    def target(self, member_id: str) -> Assignment:
        return self.targets.get(member_id, NOTHING)

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

    # ---- requests of members

    def member(self, member_id: str) -> Member:
        """Raises KafkaError UNKNOWN_MEMBER_ID if there is no such member."""
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def validate_offset_commit(self, commit: Commit) -> None:
        """Raises KafkaError where the rules of `commits.py` do not let the member commit."""
        if commit.names_no_member or (commit.epoch < 0 and not self.members):
            # TxnOffsetCommit needs no member; nor does an admin client, or a consumer that assigns its partitions by itself.
            return
        member = self.member(commit.member_id)
        current = member.current

        def held_since(partition: TopicPartition) -> int | None:
            since = current.assigned.get(partition.topic_id, {}).get(partition.partition)
            if since is None:
                since = current.pending_revocation.get(partition.topic_id, {}).get(partition.partition)
            return since

        check_epoch(commit, current.epoch, member.is_classic, held_since)

    def validate_offset_fetch(self, member_id: str | None, epoch: int) -> None:
        if member_id is None and epoch < 0:
            return
        member = self.member(member_id or "")
        if epoch != member.current.epoch:
            raise (_other_generation if member.is_classic else _stale)(epoch, member.current.epoch)

    def validate_offset_delete(self) -> None:
        """Offsets of a group with members may be deleted only for topics that no member subscribes to."""

    def validate_delete(self) -> None:
        if self.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)


def _stale(received: int, expected: int) -> KafkaError:
    return KafkaError(
        ErrorCode.STALE_MEMBER_EPOCH,
        f"The received member epoch {received} does not match the expected member epoch {expected}.",
    )


def _other_generation(received: int, expected: int) -> KafkaError:
    return KafkaError(
        ErrorCode.ILLEGAL_GENERATION,
        f"The received generation id {received} does not match the expected member epoch {expected}.",
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
