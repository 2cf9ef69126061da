"""One partition of `__consumer_offsets` as state: its groups and their committed offsets.

`replay` is where hard state changes. The verbs are in modules of their own (`classic/`, `offsets`, `describe`,
`expiry`): functions that take the shard, and give an Outcome.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ottla.broker.coordinator.outcome import Outcome
from ottla.broker.coordinator.timers import Timers
from ottla.broker.groups import expiry, offsets
from ottla.broker.groups.classic import rebalance
from ottla.broker.groups.classic.group import ClassicGroup, recorded_group
from ottla.broker.groups.classic.member import Member
from ottla.broker.groups.classic.state import DEAD
from ottla.broker.groups.committed import CommittedOffsets
from ottla.broker.groups.config import GroupCoordinatorConfig
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.group_records import GroupMetadataKey
from ottla.protocol.messages.join_group import JoinGroupResponse
from ottla.protocol.messages.sync_group import SyncGroupResponse

EXPIRY_KEY = "expire-group-metadata"


class Client(NamedTuple):
    """Who sent a request, as far as groups care."""

    api_version: int
    client_id: str
    # As Java prints an address without a name, "/127.0.0.1": tools show it.
    host: str


class GroupShard:
    """`wall_ms` is for what timers set off; requests bring their own time."""

    def __init__(
        self,
        timers: Timers,
        config: GroupCoordinatorConfig,
        wall_ms: Callable[[], int],
        new_uuid: Callable[[], str],
        topic_exists: Callable[[bytes], bool],
    ) -> None:
        self.timers = timers
        self.config = config
        self.wall_ms = wall_ms
        self.new_uuid = new_uuid
        self.topic_exists = topic_exists
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets = CommittedOffsets()
        # Where the newest replayed record is in the log.
        self.newest_offset = -1
        # Groups that are refused, with the keys of their records that could not be replayed.
        self.unreadable: dict[str, dict[str, Any]] = {}
        self._is_loaded = False

    # ---- hard state

    def replay(self, offset: int, producer_id: int, key: Any, value: Any) -> None:
        self.newest_offset = offset
        if self.unreadable:
            self._is_readable_again(key)
        if type(key) is GroupMetadataKey:
            self._replay_group(key.group, value)
        elif value is None:
            self.offsets.replay_tombstone(key.group, key.topic, key.partition)
        else:
            if key.group not in self.groups:
                self.groups[key.group] = ClassicGroup(key.group)
            self.offsets.replay_commit(offset, producer_id, key.group, key.topic, key.partition, value)

    def _replay_group(self, group_id: str, value: Any) -> None:
        """A record replaces the group; only a coordinator that is at work has something to carry over to it."""
        if value is None:
            self.groups.pop(group_id, None)
        elif self._is_loaded and (group := self.groups.get(group_id)) is not None:
            group.adopt(value)
        else:
            self.groups[group_id] = recorded_group(group_id, value)

    def replay_failed(self, key: Any) -> None:
        self.unreadable.setdefault(key.group, {})[repr(key)] = key

    def _is_readable_again(self, key: Any) -> None:
        keys = self.unreadable.get(key.group)
        if keys is not None:
            keys.pop(repr(key), None)
            if not keys:
                del self.unreadable[key.group]

    def check_readable(self, group_id: str) -> None:
        """KafkaError while a record of the group could not be replayed: members and offsets would be guesses.

        NOT_COORDINATOR is what a partition that cannot be loaded answers. DeleteGroups is the remedy.
        """
        if group_id in self.unreadable:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)

    def replay_end_transaction_marker(self, producer_id: int, committed: bool) -> None:
        self.offsets.replay_marker(producer_id, committed)

    # ---- soft state

    def on_loaded(self, now_ms: int) -> Outcome:
        """Members get a full session to be heard of again; a group over a lowered group.max.size rebalances."""
        self._is_loaded = True
        self._schedule_expiry()
        for group in self.groups.values():
            if group.group_id in self.unreadable:
                continue
            for member in group.members.values():
                self.restart_session(group, member)
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

    def restart_session(self, group: ClassicGroup, member: Member) -> None:
        """The member is alive: its session ends a session timeout from now. The hot path of heartbeats and commits."""
        group_id, member_id = group.group_id, member.member_id
        key = rebalance.session_key(group_id, member_id)
        if not self.timers.postpone(key, member.session_timeout_ms):
            self.timers.schedule(
                key, member.session_timeout_ms, lambda: rebalance.expire_session(self, group, member_id)
            )

    def _schedule_expiry(self) -> None:
        self.timers.schedule(EXPIRY_KEY, self.config.offsets_retention_check_interval_ms, self._expire)

    def _expire(self) -> Outcome:
        self._schedule_expiry()
        return expiry.expire(self, self.wall_ms())
