"""A shard at work, as the coordinator runtime uses it: what follows from loading and unloading, and the timer of expiry."""

from __future__ import annotations

from typing import Any

from ottla.broker.coordinator.outcome import Outcome
from ottla.broker.groups import expiry, offsets
from ottla.broker.groups.classic import rebalance
from ottla.broker.groups.classic.state import DEAD
from ottla.broker.groups.shard import GroupShard
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.join_group import JoinGroupResponse
from ottla.protocol.messages.sync_group import SyncGroupResponse

EXPIRY_KEY = "expire-group-metadata"


class GroupCoordinatorShard(GroupShard):
    """See the module."""

    def on_loaded(self, now_ms: int) -> Outcome:
        """Members get a full session to be heard of again; a group over a lowered group.max.size rebalances."""
        self._is_loaded = True
        self._schedule_expiry()
        for group in self.groups.values():
            if group.group_id in self.unreadable:
                continue
            for member in group.members.values():
                rebalance.restart_session(self, group, member)
            if len(group.members) > self.config.group_max_size:
                reason = f"loaded with {len(group.members)} members, over group.max.size {self.config.group_max_size}"
                outcome = rebalance.prepare(self, group, now_ms, reason)
                assert outcome == Outcome(), "nobody waits for a group that was just loaded"
        return offsets.delete_of_unknown_topics(self)

    def on_unloaded(self) -> Outcome:
        replies: list[tuple[Any, Any]] = []
        error = ErrorCode.NOT_COORDINATOR
        for group in self.groups.values():
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

    def _expire(self) -> Outcome:
        self._schedule_expiry()
        return expiry.expire(self, self.wall_ms())
