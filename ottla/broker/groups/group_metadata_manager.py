"""One partition of `__consumer_offsets` as state: its groups and their committed offsets.

`replay` is where hard state changes. Decisions are functions on the shard in modules of their own (`classic/`, `consumer/`,
`offsets`, `group_descriptions`, `expiry`), which import this one; what the runtime calls is group_coordinator_shard.py.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeVar

from ottla.broker.coordinator.outcome import Outcome, unreadable
from ottla.broker.coordinator.stories import CoordinatorStories
from ottla.broker.coordinator.timers import Timers
from ottla.broker.groups.committed import CommittedOffsets
from ottla.broker.groups.group import Group, GroupKey, GroupType, group_of
from ottla.broker.groups.group_config import GroupCoordinatorConfig, GroupSettings
from ottla.broker.groups.modern.modern_group import AnyModernGroup
from ottla.broker.groups.modern.offload import MayDescribe, RegexResolver, TargetWorker
from ottla.broker.groups.modern.topics import TopicHashes
from ottla.controller.metadata.topics import TopicsImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.group_records import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey
from ottla.protocol.slotted import mutable
from ottla.server.story import StoryLogger


@mutable
class GroupCounts:
    """Offsets are counted one by one, rebalances when they begin (groups of Kafka 4) or have ended (classic ones)."""

    offset_commits: int = 0
    offset_expirations: int = 0
    offset_deletions: int = 0
    rebalances: Counter[GroupType] = field(default_factory=Counter)


G = TypeVar("G", bound=Group)


class GroupKinds(NamedTuple):
    """The kinds of groups. They use this module, and the shard knows them."""

    classic: type[Any]
    #: Makes the classic group of a record.
    recorded: Callable[[str, GroupMetadataValue], Group]
    #: The kind that a record is of, by the class of the record's key.
    modern: Mapping[type, type[Any]]
    #: What happens in place of a removal of members: a consumer group becomes a classic one. None: they are removed.
    instead_of_removal: Callable[[Any, AnyModernGroup, Set[str], Any], Outcome[Any] | None]


class Client(NamedTuple):
    """The client fields of a request that groups use."""

    api_version: int
    client_id: str
    # The address as Java prints one without a name, "/127.0.0.1": tools show it.
    host: str
    may_describe: MayDescribe = lambda topic: True


class ClusterView(NamedTuple):
    """The newest metadata as far as groups need it.

    `version()` is its offset, and `topics_created()` that of the newest one with a new topic.
    """

    topics: Callable[[], TopicsImage]
    settings: Callable[[GroupType, str], GroupSettings]
    version: Callable[[], int]
    topics_created: Callable[[], int]
    resolve: RegexResolver
    compute: TargetWorker
    hashes: TopicHashes

    def settings_of(self, group: AnyModernGroup) -> GroupSettings:
        """Return the timeouts and intervals that each group may override."""
        return self.settings(group.type, group.group_id)


@dataclass(eq=False)
class GroupMetadataManager:
    """The groups and offsets of one partition. `wall_ms` is for what timers set off; requests bring their own time. Offsets expire by
    `expiry_ms`, which does not follow a wall clock that jumps (broker/scheduled_tasks.py)."""

    timers: Timers
    config: GroupCoordinatorConfig
    wall_ms: Callable[[], int]
    new_uuid: Callable[[], str]
    cluster: ClusterView
    counts: GroupCounts
    expiry_ms: Callable[[], int]
    stories: CoordinatorStories
    #: Groups of every kind: an id is that of one group.
    groups: dict[str, Group] = field(default_factory=dict)
    offsets: CommittedOffsets = field(default_factory=CommittedOffsets)
    #: The offset of the newest replayed record.
    newest_offset: int = -1
    #: Groups that are rejected, with the keys of their records that could not be replayed.
    unreadable: dict[str, dict[str, GroupKey]] = field(default_factory=dict)
    _is_loaded: bool = False
    kinds: ClassVar[GroupKinds]

    def story(self, group_id: str, log: logging.Logger) -> StoryLogger[str]:
        """Return a logger for decisions about the group."""
        return self.stories.logger_of(group_id, log)

    # ---- hard state

    def replay(self, offset: int, producer_id: int, key: GroupKey, value: Any) -> None:
        self.newest_offset = offset
        if self.unreadable:
            self._is_readable_again(key)
        if isinstance(key, OffsetCommitKey):
            if value is None:
                self.offsets.replay_tombstone(key.group, key.topic, key.partition)
                return
            if key.group not in self.groups:
                self.groups[key.group] = self.kinds.classic(key.group)
            self.offsets.replay_commit(offset, producer_id, key.group, key.topic, key.partition, value)
        elif isinstance(key, GroupMetadataKey):
            self._replay_group(key.group, value)
        else:
            self._replay_modern_group(key, value)

    def _replay_group(self, group_id: str, value: GroupMetadataValue | None) -> None:
        """Replace the group by the one of a record. An active coordinator carries the soft state over."""
        group = self.find(self.kinds.classic, group_id)
        if value is None:
            if group is not None:
                del self.groups[group_id]
        elif self._is_loaded and group is not None:
            group.adopt(value)
        else:
            self.groups[group_id] = self.kinds.recorded(group_id, value)

    def _replay_modern_group(self, key: Any, value: Any) -> None:
        """Replay a record of a group. Any record creates the group, because compaction may have removed the earlier ones; the
        group's own tombstone ends it.

        It replaces a group of another kind, whose tombstones came before. Committed offsets survive this.
        """
        group_id, kind = key.group_id, self.kinds.modern[key.__class__]
        group = self.find(kind, group_id)
        if group is None:
            if value is None:
                return
            group = self.groups[group_id] = kind(group_id)
        if value is not None or key.__class__ is not kind.records.group:
            group.replay(key, value)
            return
        del self.groups[group_id]
        if self.offsets.of_group(group_id):
            self.groups[group_id] = self.kinds.classic(group_id)

    # ---- groups

    def find(self, kind: type[G], group_id: str) -> G | None:
        """Return the group if it is one of this kind."""
        group = self.groups.get(group_id)
        return group if isinstance(group, kind) else None

    def groups_of(self, kind: type[G]) -> list[G]:
        return [group for group in self.groups.values() if isinstance(group, kind)]

    def group(self, kind: type[G], group_id: str, noun: str = "Group") -> G:
        """Return the group; KafkaError GROUP_ID_NOT_FOUND if there is none, or one of another kind."""
        group = self.find(kind, group_id)
        if group is None:
            why = f"Group {group_id} is not a {kind.type.value} group."
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND, why if group_id in self.groups else f"{noun} {group_id} not found."
            )
        return group

    def check_place_for(self, kind: type[Group], group_id: str) -> None:
        """Raise KafkaError if a new group of this kind cannot be made, as the id is another group's or there are too many groups."""
        if group_id in self.groups:
            self.group(kind, group_id)
        self.check_room(group_id)

    def check_room(self, group_id: str) -> None:
        """Raise KafkaError if there are as many groups as one partition may have."""
        self.config.groups.check(len(self.groups), f"group {group_id}")

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
        """Raise KafkaError while a record of the group could not be replayed: members and offsets would be guesses.

        DeleteGroups is the remedy.
        """
        if group_id in self.unreadable:
            raise unreadable(f"group {group_id}")

    def replay_end_transaction_marker(self, producer_id: int, committed: bool) -> None:
        self.offsets.replay_marker(producer_id, committed)
