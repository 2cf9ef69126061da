"""A shard at work, as the coordinator runtime uses it: what follows from loading and unloading, and the timer of expiry."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ottla.broker.coordinator.outcome import CoordinatorRecord, Outcome, Response, Unasked
from ottla.broker.coordinator.sweep import sweep
from ottla.broker.groups import expiry, offsets
from ottla.broker.groups.classic import rebalance
from ottla.broker.groups.classic.group import ClassicGroup
from ottla.broker.groups.classic.member import Member
from ottla.broker.groups.classic.state import CAN_REBALANCE, DEAD
from ottla.broker.groups.consumer.group import ConsumerGroup
from ottla.broker.groups.consumer.sessions import keep_alive
from ottla.broker.groups.shard import GroupShard
from ottla.broker.groups.share.group import ShareGroup
from ottla.broker.groups.share.sessions import keep_alive as keep_share_member_alive
from ottla.broker.groups.streams import loaded as streams_loaded
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.join_group import JoinGroupResponse
from ottla.protocol.messages.sync_group import SyncGroupResponse

EXPIRY_KEY = "expire-group-metadata"
SESSIONS_KEY = "sessions-after-load"
CONSUMER_SESSIONS_KEY = "consumer-sessions-after-load"
SHARE_SESSIONS_KEY = "share-sessions-after-load"
#: To begin a session schedules a timer, which takes as long as this many looks of a sweep.
SESSION_LOOKS = 4


class GroupCoordinatorShard(GroupShard):
    """A shard of group coordination with its timers."""

    def on_loaded(self, now_ms: int) -> Unasked:
        """Each member gets a full session, some in each turn; a group over a lowered group.max.size rebalances."""
        self._is_loaded = True
        self._schedule_expiry()
        sweep(self.timers, SESSIONS_KEY, self._members(), self._begin_session)
        sweep(self.timers, CONSUMER_SESSIONS_KEY, self._consumers(), self._begin_consumer_session)
        sweep(self.timers, SHARE_SESSIONS_KEY, self._share_members(), self._begin_share_session)
        streams_loaded.begin_sessions(self)
        return offsets.delete_of_unknown_topics(self)

    def _members(self) -> Iterator[tuple[ClassicGroup, Member]]:
        for group in self.groups_of(ClassicGroup):
            if group.group_id not in self.unreadable:
                if len(group.members) > self.config.group_max_size:
                    self.timers.schedule(("size", group.group_id), 0, partial(self._rebalance_too_large, group))
                for member in list(group.members.values()):
                    yield group, member

    def _consumers(self) -> Iterator[tuple[ConsumerGroup, str]]:
        for group in self.groups_of(ConsumerGroup):
            if group.group_id not in self.unreadable:
                for member_id in list(group.members):
                    yield group, member_id

    def _begin_consumer_session(self, of: tuple[ConsumerGroup, str], records: list[CoordinatorRecord]) -> int:
        group, member_id = of
        if self.groups.get(group.group_id) is group and member_id in group.members:
            keep_alive(self, group, group.members[member_id])
        return SESSION_LOOKS

    def _share_members(self) -> Iterator[tuple[ShareGroup, str]]:
        for group in self.groups_of(ShareGroup):
            if group.group_id not in self.unreadable:
                for member_id in list(group.members):
                    yield group, member_id

    def _begin_share_session(self, of: tuple[ShareGroup, str], records: list[CoordinatorRecord]) -> int:
        group, member_id = of
        if self.groups.get(group.group_id) is group and member_id in group.members:
            keep_share_member_alive(self, group.group_id, member_id)
        return SESSION_LOOKS

    def _begin_session(self, of: tuple[ClassicGroup, Member], records: list[CoordinatorRecord]) -> int:
        """Other requests are served between the turns: a member that has left meanwhile gets no session."""
        group, member = of
        if self.groups.get(group.group_id) is group and group.members.get(member.member_id) is member:
            rebalance.restart_session(self, group, member)
        return SESSION_LOOKS

    def _rebalance_too_large(self, group: ClassicGroup) -> Unasked:
        if self.groups.get(group.group_id) is not group or group.state not in CAN_REBALANCE:
            return Outcome()
        reason = f"loaded with {len(group.members)} members, over group.max.size {self.config.group_max_size}"
        return rebalance.prepare(self, group, self.wall_ms(), reason)

    def on_unloaded(self) -> Unasked:
        replies: list[Response] = []
        error = ErrorCode.NOT_COORDINATOR
        for group in self.groups_of(ClassicGroup):
            for member in group.members.values():
                if member.awaiting_join is not None:
                    response = JoinGroupResponse(error_code=error, member_id=member.member_id)
                    replies.append((member.awaiting_join, response))
                if member.awaiting_sync is not None:
                    replies.append((member.awaiting_sync, SyncGroupResponse(error_code=error)))
                member.awaiting_join = member.awaiting_sync = None
            group.transition(DEAD, self.wall_ms())
        return Outcome(replies=replies)

    def _schedule_expiry(self) -> None:
        self.timers.schedule(EXPIRY_KEY, self.config.offsets_retention_check_interval_ms, self._expire)

    def _expire(self) -> Unasked:
        self._schedule_expiry()
        return expiry.expire(self, self.wall_ms())
