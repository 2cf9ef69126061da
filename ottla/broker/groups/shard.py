"""One partition of `__consumer_offsets` as state: its groups and their committed offsets.

`replay` is where hard state changes. Decisions are functions on the shard in modules of their own (`classic/`, `consumer/`,
`offsets`, `describe`, `expiry`), which import this one; what the runtime calls is coordinator_shard.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ottla.broker.coordinator.client_errors import unreadable
from ottla.broker.coordinator.timers import Timers
from ottla.broker.groups.classic.group import ClassicGroup, recorded_group
from ottla.broker.groups.committed import CommittedOffsets
from ottla.broker.groups.config import ConsumerGroupSettings, GroupCoordinatorConfig, StreamsGroupSettings
from ottla.broker.groups.consumer.group import ConsumerGroup
from ottla.broker.groups.counts import GroupCounts
from ottla.broker.groups.modern.offload import TargetWorker
from ottla.broker.groups.modern.resolution import MayDescribe, RegexResolver
from ottla.broker.groups.modern.topics import TopicHashes
from ottla.broker.groups.records import ConsumerKey, GroupKey, StreamsKey, group_of
from ottla.broker.groups.share.group import ShareGroup
from ottla.broker.groups.share.records import ShareKey
from ottla.broker.groups.streams import replay as streams_replay
from ottla.broker.groups.streams.group import StreamsGroup
from ottla.controller.metadata.topics import TopicsImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
)
from ottla.protocol.internal_topics.group_records import GroupMetadataKey, GroupMetadataValue
from ottla.protocol.internal_topics.share_group_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupMemberMetadataKey,
    ShareGroupMetadataKey,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMetadataKey,
)

#: A share group is at the epoch after this one when its first member has joined, as in Kafka.
NEW_SHARE_GROUP_EPOCH = 1


class Client(NamedTuple):
    """The client fields of a request that groups use."""

    api_version: int
    client_id: str
    # As Java prints an address without a name, "/127.0.0.1": tools show it.
    host: str
    may_describe: MayDescribe = lambda topic: True


class ClusterView(NamedTuple):
    """The newest metadata as far as groups need it.

    `version()` is its offset, and `topics_created()` that of the newest one with a new topic.
    """

    topics: Callable[[], TopicsImage]
    consumer_settings: Callable[[str], ConsumerGroupSettings]
    share_settings: Callable[[str], ConsumerGroupSettings]
    streams_settings: Callable[[str], StreamsGroupSettings]
    version: Callable[[], int]
    topics_created: Callable[[], int]
    resolve: RegexResolver
    compute: TargetWorker
    hashes: TopicHashes


class GroupShard:
    """`wall_ms` is for what timers set off; requests bring their own time."""

    def __init__(
        self,
        timers: Timers,
        config: GroupCoordinatorConfig,
        wall_ms: Callable[[], int],
        new_uuid: Callable[[], str],
        cluster: ClusterView,
        counts: GroupCounts | None = None,
    ) -> None:
        self.timers = timers
        self.config = config
        self.wall_ms = wall_ms
        self.new_uuid = new_uuid
        self.cluster = cluster
        self.counts = GroupCounts() if counts is None else counts
        # An id is that of a group of one kind: these have no key in common.
        self.groups: dict[str, ClassicGroup] = {}
        self.consumer_groups: dict[str, ConsumerGroup] = {}
        self.share_groups: dict[str, ShareGroup] = {}
        self.streams_groups: dict[str, StreamsGroup] = {}
        self.offsets = CommittedOffsets()
        # The offset of the newest replayed record.
        self.newest_offset = -1
        # Groups that are rejected, with the keys of their records that could not be replayed.
        self.unreadable: dict[str, dict[str, GroupKey]] = {}
        self._is_loaded = False

    # ---- hard state

    def replay(self, offset: int, producer_id: int, key: GroupKey, value: Any) -> None:
        self.newest_offset = offset
        if self.unreadable:
            self._is_readable_again(key)
        if isinstance(key, GroupMetadataKey):
            self._replay_group(key.group, value)
        elif isinstance(key, ConsumerKey):
            self._replay_consumer_group(key, value)
        elif isinstance(key, ShareKey):
            self._replay_share_group(key, value)
        elif isinstance(key, StreamsKey):
            self._replay_streams_group(key, value)
        elif value is None:
            self.offsets.replay_tombstone(key.group, key.topic, key.partition)
        else:
            if self.any_group(key.group) is None:
                self.groups[key.group] = ClassicGroup(key.group)
            self.offsets.replay_commit(offset, producer_id, key.group, key.topic, key.partition, value)

    def _replay_group(self, group_id: str, value: GroupMetadataValue | None) -> None:
        """Replace the group by the one of a record. An active coordinator carries the soft state over."""
        if value is None:
            self.groups.pop(group_id, None)
        elif self._is_loaded and (group := self.groups.get(group_id)) is not None:
            group.adopt(value)
        else:
            self.groups[group_id] = recorded_group(group_id, value)

    def _replay_consumer_group(self, key: ConsumerKey, value: Any) -> None:
        """Any record makes the group, as compaction may have taken the ones before it; the group's own tombstone ends it."""
        group = self.consumer_groups.get(key.group_id)
        if group is None:
            if value is None:
                return
            self.groups.pop(key.group_id, None)
            group = self.consumer_groups[key.group_id] = ConsumerGroup(key.group_id)
        if value is None and isinstance(key, ConsumerGroupMetadataKey):
            del self.consumer_groups[key.group_id]
            if self.offsets.of_group(key.group_id):
                self.groups[key.group_id] = ClassicGroup(key.group_id)
        else:
            replay_consumer_record(group, key, value)

    def _replay_share_group(self, key: ShareKey, value: Any) -> None:
        """Any record makes the group, as that of a consumer group."""
        group = self.share_groups.get(key.group_id)
        if group is None:
            if value is None:
                return
            group = self.share_groups[key.group_id] = ShareGroup(key.group_id)
        match key:
            case ShareGroupMetadataKey() if value is None:
                del self.share_groups[key.group_id]
            case ShareGroupMetadataKey():
                group.replay_group(value)
            case ShareGroupMemberMetadataKey():
                group.replay_member(key.member_id, value)
            case ShareGroupTargetAssignmentMetadataKey():
                group.replay_assignment_epoch(value)
            case ShareGroupTargetAssignmentMemberKey():
                group.replay_target(key.member_id, value)
            case ShareGroupCurrentMemberAssignmentKey():
                group.replay_current_assignment(key.member_id, value)
            case ShareGroupStatePartitionMetadataKey():
                group.replay_state_partitions(value)

    def share_group(self, group_id: str, noun: str = "Group") -> ShareGroup:
        """KafkaError GROUP_ID_NOT_FOUND if there is none, or one of another kind."""
        group = self.share_groups.get(group_id)
        if group is None:
            why = f"{noun} {group_id} not found."
            if self.any_group(group_id) is not None:
                why = f"Group {group_id} is not a share group."
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, why)
        return group

    def share_group_or_new(self, group_id: str) -> ShareGroup:
        """A new one is not the shard's before its first record is replayed."""
        if group_id in self.share_groups or self.any_group(group_id) is not None:
            return self.share_group(group_id)
        self.check_room(group_id)
        return ShareGroup(group_id, NEW_SHARE_GROUP_EPOCH)

    def check_no_share_group(self, group_id: str) -> None:
        """KafkaError for what only groups with committed offsets can do: share groups have none."""
        if group_id in self.share_groups:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")

    def _replay_streams_group(self, key: StreamsKey, value: Any) -> None:
        streams_replay.replay(self.streams_groups, key, value)
        if key.group_id in self.streams_groups:
            self.groups.pop(key.group_id, None)
        elif self.offsets.of_group(key.group_id) and self.any_group(key.group_id) is None:
            self.groups[key.group_id] = ClassicGroup(key.group_id)

    def any_group(self, group_id: str) -> ClassicGroup | ConsumerGroup | StreamsGroup | None:
        """Any group that may have committed offsets."""
        return self.groups.get(group_id) or self.consumer_groups.get(group_id) or self.streams_groups.get(group_id)

    def has_group(self, group_id: str) -> bool:
        """Whether there is one, of any kind."""
        return group_id in self.share_groups or self.any_group(group_id) is not None

    def check_room(self, group_id: str) -> None:
        """KafkaError if there are as many groups as one partition may have."""
        count = len(self.groups) + len(self.consumer_groups) + len(self.share_groups) + len(self.streams_groups)
        self.config.groups.check(count, f"group {group_id}")

    def topic_exists(self, topic_id: bytes) -> bool:
        return self.cluster.topics().by_id(topic_id) is not None

    def replay_failed(self, key: GroupKey) -> None:
        self.unreadable.setdefault(group_of(key), {})[repr(key)] = key

    def _is_readable_again(self, key: GroupKey) -> None:
        keys = self.unreadable.get(group_of(key))
        if keys is not None:
            keys.pop(repr(key), None)
            if not keys:
                del self.unreadable[group_of(key)]

    def check_readable(self, group_id: str) -> None:
        """KafkaError while a record of the group could not be replayed: members and offsets would be guesses.

        DeleteGroups is the remedy.
        """
        if group_id in self.unreadable:
            raise unreadable(f"group {group_id}")

    def replay_end_transaction_marker(self, producer_id: int, committed: bool) -> None:
        self.offsets.replay_marker(producer_id, committed)


def replay_consumer_record(group: ConsumerGroup, key: Any, value: Any) -> None:
    """Any record of the group but its own tombstone."""
    match key:
        case ConsumerGroupMetadataKey():
            group.replay_group(value)
        case ConsumerGroupMemberMetadataKey():
            group.replay_member(key.member_id, value)
        case ConsumerGroupTargetAssignmentMetadataKey():
            group.replay_assignment_epoch(value)
        case ConsumerGroupTargetAssignmentMemberKey():
            group.replay_target(key.member_id, value)
        case ConsumerGroupCurrentMemberAssignmentKey():
            group.replay_current_assignment(key.member_id, value)
        case ConsumerGroupRegularExpressionKey():
            group.replay_regex(key.regular_expression, value)
