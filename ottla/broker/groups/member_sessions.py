"""Timers of the members of consumer, share and streams groups (KIP-848, KIP-932, KIP-1071), and how a member is removed.

A member is removed that sends no heartbeat within its session, or does not release within its rebalance timeout what it was asked for.
The rebalance timeout starts again with each step that asks the member to release something, as in Kafka: a member stays in its epoch
when it is asked a second time, and has its whole timeout for the second request as well.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import TypeAlias, TypeVar

from ottla.broker.coordinator.outcome import CoordinatorRecord, Outcome, Unasked
from ottla.broker.groups.group_metadata_manager import GroupMetadataManager
from ottla.broker.groups.state.modern_group import AnyModernGroup
from ottla.protocol.errors import KafkaError

log = logging.getLogger(__name__)

G = TypeVar("G", bound=AnyModernGroup)
T = TypeVar("T")
#: Decides that a member is removed whose time is over, in the way of its kind.
Remove: TypeAlias = Callable[[GroupMetadataManager, G, str], Unasked]

#: The timers of a member; members by the classic protocol have the last two.
SESSION, REBALANCE, JOIN, SYNC = "session", "rebalance", "join", "sync"


def timer_key(timer: str, group: AnyModernGroup, member_id: str) -> tuple[str, str, str]:
    return f"{group.type.value}-{timer}", group.group_id, member_id


def keep_alive(
    shard: GroupMetadataManager, group: G, member_id: str, remove: Remove[G], *, has_moved: bool = False
) -> None:
    """Restart the member's session, and its rebalance timeout if it `has_moved` to a step in which it has to release something."""
    timers, member = shard.timers, group.members[member_id]
    session_ms = group.session_timeout_ms(member, shard.cluster.settings_of(group).session_timeout_ms)
    key = timer_key(SESSION, group, member_id)
    if not timers.postpone(key, session_ms):
        expire = partial(_expire, shard, group.__class__, group.group_id, member_id, remove)
        timers.schedule(key, session_ms, expire)
    key, timeout_ms = timer_key(REBALANCE, group, member_id), group.release_timeout_ms(member)
    if timeout_ms is None:
        timers.cancel(key)
    elif has_moved or key not in timers:
        epoch = member.current.epoch
        time_out = partial(_time_out, shard, group.__class__, group.group_id, member_id, remove, epoch, timeout_ms)
        timers.schedule(key, timeout_ms, time_out)


def fence(shard: GroupMetadataManager, group: G, member_id: str, remove: Remove[G], why: str) -> Unasked:
    log.info("[GroupId %s] Member %s fenced from the group because %s.", group.group_id, member_id, why)

    def rejected(error: KafkaError) -> Unasked:
        """The member stays because the append failed, so its session starts again."""
        keep_alive(shard, group, member_id, remove)
        return Outcome()

    outcome = remove(shard, group, member_id)
    outcome.rejected = rejected
    return outcome


def forget(shard: GroupMetadataManager, group: AnyModernGroup, member_id: str) -> None:
    """Cancel all timers of a member that is gone."""
    for timer in (SESSION, REBALANCE, JOIN, SYNC):
        shard.timers.cancel(timer_key(timer, group, member_id))


def removal(
    shard: GroupMetadataManager,
    group: AnyModernGroup,
    member_ids: Collection[str],
    response: T | None,
    records: Iterable[CoordinatorRecord] = (),
) -> Outcome[T]:
    """Tombstones of the members, the `records` that follow from them, and the group's next epoch."""
    topics = shard.cluster.topics()
    tombstones = [row for member_id in member_ids for row in group.records.member_tombstones(group.group_id, member_id)]
    names = group.names_without(member_ids, topics)
    new_hash = group.metadata_hash if names is None else shard.cluster.hashes.of_group(topics, names, at_once=True)

    def removed() -> Outcome[T]:
        if names is not None:
            group.seen_topics = topics
        for member_id in member_ids:
            forget(shard, group, member_id)
        return Outcome()

    return Outcome([*tombstones, *records, group.next_epoch(new_hash)], response, then=removed)


def remove_one(shard: GroupMetadataManager, group: AnyModernGroup, member_id: str) -> Unasked:
    """The `Remove` of those kinds of groups in which nothing else follows when a member is removed."""
    outcome: Unasked = removal(shard, group, [member_id], None)
    return outcome


def _expire(shard: GroupMetadataManager, kind: type[G], group_id: str, member_id: str, remove: Remove[G]) -> Unasked:
    group = shard.find(kind, group_id)
    if group is None or member_id not in group.members:
        return Outcome()
    return fence(shard, group, member_id, remove, "the member session expired")


def _time_out(
    shard: GroupMetadataManager,
    kind: type[G],
    group_id: str,
    member_id: str,
    remove: Remove[G],
    epoch: int,
    timeout_ms: int,
) -> Unasked:
    group = shard.find(kind, group_id)
    if group is None or member_id not in group.members or group.members[member_id].current.epoch != epoch:
        return Outcome()
    why = f"it failed to transition from epoch {epoch} within {timeout_ms}ms"
    return fence(shard, group, member_id, remove, why)
