"""A shard at work, as the coordinator runtime uses it: what follows from loading and unloading, and the timer of expiry."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from ottla.broker.coordinator.outcome import CoordinatorRecord, Outcome, Response, Unasked
from ottla.broker.coordinator.timers import sweep
from ottla.broker.groups import expiry, member_sessions, offsets
from ottla.broker.groups.classic import rebalance
from ottla.broker.groups.consumer.removal import keep_alive as keep_consumer_alive
from ottla.broker.groups.group_metadata_manager import GroupMetadataManager
from ottla.broker.groups.state.classic_group import ClassicGroup
from ottla.broker.groups.state.classic_states import CAN_REBALANCE, DEAD
from ottla.broker.groups.state.group import Group, GroupType
from ottla.broker.groups.state.modern_group import AnyModernGroup, ModernMember
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.join_group import JoinGroupResponse
from ottla.protocol.messages.sync_group import SyncGroupResponse

EXPIRY_KEY = "expire-group-metadata"
SESSIONS_KEY = "sessions-after-load"
#: A sweep looks at its items until its time is over; beginning a session schedules a timer, and counts as this many looks.
SESSION_LOOKS = 4


def _keep_alive(shard: GroupMetadataManager, group: AnyModernGroup, member: ModernMember) -> None:
    member_sessions.keep_alive(shard, group, member.member_id, member_sessions.remove_one)


#: How a member of a group of each type gets its session.
KEEP_ALIVE: Mapping[GroupType, Callable[[GroupMetadataManager, Any, Any], None]] = {
    GroupType.CLASSIC: rebalance.restart_session,
    GroupType.CONSUMER: keep_consumer_alive,
    GroupType.SHARE: _keep_alive,
    GroupType.STREAMS: _keep_alive,
}


class GroupCoordinatorShard(GroupMetadataManager):
    """A shard of group coordination with its timers."""

    def on_loaded(self, now_ms: int) -> Unasked:
        """Each member gets a full session, some in each turn; a group over a lowered group.max.size rebalances."""
        self._is_loaded = True
        self._schedule_expiry()
        sweep(self.timers, SESSIONS_KEY, self._members(), self._begin_session)
        return offsets.delete_of_unknown_topics(self)

    def _members(self) -> Iterator[tuple[Group, Any]]:
        for group in list(self.groups.values()):
            if group.group_id in self.unreadable:
                continue
            if group.type is GroupType.CLASSIC and len(group.members) > self.config.group_max_size:
                self.timers.schedule(("size", group.group_id), 0, partial(self._rebalance_too_large, group.group_id))
            for member in list(group.members.values()):
                yield group, member

    def _begin_session(self, of: tuple[Group, Any], records: list[CoordinatorRecord]) -> int:
        """Other requests are served between the turns: a member that has left meanwhile gets no session."""
        group, member = of
        if self.groups.get(group.group_id) is group and group.members.get(member.member_id) is member:
            KEEP_ALIVE[group.type](self, group, member)
        return SESSION_LOOKS

    def _rebalance_too_large(self, group_id: str) -> Unasked:
        group = self.find(ClassicGroup, group_id)
        if group is None or group.state not in CAN_REBALANCE:
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
        return expiry.expire(self, self.expiry_ms())
