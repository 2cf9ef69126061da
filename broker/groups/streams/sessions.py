"""Members that fall silent, or do not close tasks in time, are removed; and how a member is removed at all."""

from __future__ import annotations

import logging
from functools import partial

from ottla.broker.coordinator.outcome import CoordinatorRecord, Outcome, Unasked
from ottla.broker.groups.shard import GroupShard
from ottla.broker.groups.streams.group import StreamsGroup
from ottla.broker.groups.streams.member import Member
from ottla.broker.groups.streams.records import member_tombstones, next_epoch_record
from ottla.broker.groups.streams.state import UNREVOKED_TASKS
from ottla.protocol.errors import KafkaError

log = logging.getLogger(__name__)


def keep_alive(shard: GroupShard, group: StreamsGroup, member: Member, *, has_moved: bool = False) -> None:
    """Begin the member's session again, and watch over what it has to close: from now on, if it `has_moved` to another step."""
    group_id, member_id = group.group_id, member.member_id
    session_ms = shard.cluster.streams_settings(group_id).session_timeout_ms
    key = _session_key(group_id, member_id)
    if not shard.timers.postpone(key, session_ms):
        shard.timers.schedule(key, session_ms, partial(_expire, shard, group_id, member_id))
    key = _rebalance_key(group_id, member_id)
    if member.current.state is not UNREVOKED_TASKS:
        shard.timers.cancel(key)
    elif has_moved or key not in shard.timers:
        timeout_ms, epoch = member.metadata.rebalance_timeout_ms, member.current.epoch
        shard.timers.schedule(key, timeout_ms, partial(_time_out, shard, group_id, member_id, epoch))


def removal(group: StreamsGroup, member_id: str) -> list[CoordinatorRecord]:
    """Tombstones of the member, and the group's next epoch."""
    return [*member_tombstones(group.group_id, member_id), next_epoch_record(group)]


def forget(shard: GroupShard, group_id: str, member_id: str) -> None:
    """Cancel the timers of a member that is gone."""
    shard.timers.cancel(_session_key(group_id, member_id))
    shard.timers.cancel(_rebalance_key(group_id, member_id))


def _session_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    return "streams-session", group_id, member_id


def _rebalance_key(group_id: str, member_id: str) -> tuple[str, str, str]:
    return "streams-rebalance", group_id, member_id


def _expire(shard: GroupShard, group_id: str, member_id: str) -> Unasked:
    group = shard.streams_groups.get(group_id)
    if group is None or member_id not in group.members:
        return Outcome()
    log.info(
        "[GroupId %s] Streams member %s fenced from the group because the member session expired.", group_id, member_id
    )
    return _fenced(shard, group, member_id)


def _time_out(shard: GroupShard, group_id: str, member_id: str, epoch: int) -> Unasked:
    group = shard.streams_groups.get(group_id)
    member = None if group is None else group.members.get(member_id)
    if group is None or member is None or member.current.epoch != epoch:
        return Outcome()
    log.info(
        "[GroupId %s] Streams member %s fenced from the group because it failed to transition from epoch %d within %dms.",
        group_id,
        member_id,
        epoch,
        member.metadata.rebalance_timeout_ms,
    )
    return _fenced(shard, group, member_id)


def _fenced(shard: GroupShard, group: StreamsGroup, member_id: str) -> Unasked:
    def removed() -> Unasked:
        forget(shard, group.group_id, member_id)
        return Outcome()

    def rejected(error: KafkaError) -> Unasked:
        """The member stays, so it needs a session that ends."""
        keep_alive(shard, group, group.members[member_id])
        return Outcome()

    return Outcome(removal(group, member_id), then=removed, rejected=rejected)
