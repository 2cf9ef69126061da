"""Timers of the members of consumer, share and streams groups (KIP-848, KIP-932, KIP-1071): a member that sends no heartbeat within its
session, or does not release within its rebalance timeout what it was asked for, is removed.

The rebalance timeout starts again with each step that asks the member to release something, as in Kafka: a member stays in its epoch when
it is asked a second time, and has its whole timeout for the second request as well.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from ottla.broker.coordinator.outcome import Outcome, Unasked
from ottla.broker.groups.shard import GroupShard
from ottla.protocol.errors import KafkaError

log = logging.getLogger(__name__)


class Members(Protocol):
    """What a group of every kind has; its members know the epoch that they are in."""

    group_id: str

    @property
    def members(self) -> Mapping[str, Any]: ...


G = TypeVar("G", bound=Members)


class Sessions(Generic[G]):
    """The timers of one kind of group: `find` looks a group up, `remove` decides a member's removal, `keep_alive` starts its session again."""

    def __init__(
        self,
        kind: str,
        find: Callable[[GroupShard, str], G | None],
        remove: Callable[[GroupShard, G, str], Unasked],
        keep_alive: Callable[[GroupShard, G, str], None],
    ) -> None:
        self.kind = kind
        self._find = find
        self._remove = remove
        self._keep_alive = keep_alive

    def restart(self, shard: GroupShard, group_id: str, member_id: str, session_ms: int) -> None:
        """A heartbeat came: the session ends `session_ms` from now."""
        key = self._key("session", group_id, member_id)
        if not shard.timers.postpone(key, session_ms):
            shard.timers.schedule(key, session_ms, partial(self._expire, shard, group_id, member_id))

    def await_release(
        self, shard: GroupShard, group_id: str, member_id: str, epoch: int, timeout_ms: int, *, has_moved: bool
    ) -> None:
        """The member has to release something in `timeout_ms`: from now on if it `has_moved` to this step, else since the step began."""
        key = self._key("rebalance", group_id, member_id)
        if has_moved or key not in shard.timers:
            time_out = partial(self._time_out, shard, group_id, member_id, epoch, timeout_ms)
            shard.timers.schedule(key, timeout_ms, time_out)

    def released(self, shard: GroupShard, group_id: str, member_id: str) -> None:
        shard.timers.cancel(self._key("rebalance", group_id, member_id))

    def forget(self, shard: GroupShard, group_id: str, member_id: str) -> None:
        """Cancel the timers of a member that is gone."""
        forget(shard, self.kind, group_id, member_id)

    def fence(self, shard: GroupShard, group: G, member_id: str, why: str) -> Unasked:
        log.info("[GroupId %s] Member %s fenced from the group because %s.", group.group_id, member_id, why)

        def rejected(error: KafkaError) -> Unasked:
            """The member stays because the append failed, so its session starts again."""
            self._keep_alive(shard, group, member_id)
            return Outcome()

        outcome = self._remove(shard, group, member_id)
        outcome.rejected = rejected
        return outcome

    def _key(self, timer: str, group_id: str, member_id: str) -> tuple[str, str, str]:
        return _key(self.kind, timer, group_id, member_id)

    def _expire(self, shard: GroupShard, group_id: str, member_id: str) -> Unasked:
        group = self._find(shard, group_id)
        if group is None or member_id not in group.members:
            return Outcome()
        return self.fence(shard, group, member_id, "the member session expired")

    def _time_out(self, shard: GroupShard, group_id: str, member_id: str, epoch: int, timeout_ms: int) -> Unasked:
        group = self._find(shard, group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None or member.current.epoch != epoch:
            return Outcome()
        return self.fence(shard, group, member_id, f"it failed to transition from epoch {epoch} within {timeout_ms}ms")


def forget(shard: GroupShard, kind: str, group_id: str, member_id: str) -> None:
    """Cancel the timers of a member that is gone, for modules that `Sessions` of this kind needs itself."""
    for timer in ("session", "rebalance"):
        shard.timers.cancel(_key(kind, timer, group_id, member_id))


def _key(kind: str, timer: str, group_id: str, member_id: str) -> tuple[str, str, str]:
    return f"{kind}-{timer}", group_id, member_id
