"""Members of consumer, share and streams groups (KIP-848, KIP-932, KIP-1071): what their heartbeats are checked for, their timers, and
how they are removed.

A heartbeat is up to four decisions, each appended and replayed before the next: the member's metadata and the group's epoch; the target
of that epoch; the member's next step; what a kind has besides. Each leaves a state that the next heartbeat can go on from. Most
heartbeats decide nothing and only begin the session again.

A member is removed that sends no heartbeat within its session, or does not release within its rebalance timeout what it was asked for.
The rebalance timeout starts again with each step that asks the member to release something, as in Kafka: a member stays in its epoch
when it is asked a second time, and has its whole timeout for the second request as well.
"""

from __future__ import annotations

import logging
from collections.abc import Set
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from ottla.broker.coordinator.outcome import CoordinatorRecord, Outcome, Unasked
from ottla.broker.groups.group import GroupType
from ottla.broker.groups.group_metadata_manager import Client, GroupMetadataManager
from ottla.broker.groups.modern.modern_group import AnyModernGroup, ModernMember
from ottla.protocol.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

T = TypeVar("T")
RequestT = TypeVar("RequestT")

#: The timers of a member; members by the classic protocol have the last two.
SESSION, REBALANCE, JOIN, SYNC = "session", "rebalance", "join", "sync"


# ---- heartbeats


class Beat(NamedTuple, Generic[RequestT]):
    """A heartbeat at the shard of its group."""

    shard: GroupMetadataManager
    now_ms: int
    request: RequestT
    client: Client


def check(is_right: object, message: str) -> None:
    if not is_right:
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def check_ids(request: Any, *, has_member_id: bool = True) -> None:
    """The ids that a request gives are not blank."""
    if has_member_id:
        check(request.member_id.strip(), "MemberId can't be empty.")
    check(request.group_id.strip(), "GroupId can't be empty.")
    instance_id = getattr(request, "instance_id", None)
    check(instance_id is None or instance_id.strip(), "InstanceId can't be empty.")
    check(request.rack_id is None or request.rack_id.strip(), "RackId can't be empty.")


def check_size(group: AnyModernGroup, member_id: str, size_max: int) -> None:
    if member_id not in group.members and len(group.members) >= size_max:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The {group.type.value} group has reached its maximum capacity of {size_max} members.",
        )


def fenced(kind: GroupType, epoch: int, current_epoch: int, also: str = "") -> KafkaError:
    """The error for a member in another epoch than the one that the coordinator knows."""
    word = "greater" if epoch > current_epoch else "smaller"
    return KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The {kind.value} group member has a {word} member epoch ({epoch}) than the one known by the group coordinator"
        f" ({current_epoch}){also}. The member must abandon all its partitions and rejoin.",
    )


def bump_epoch(shard: GroupMetadataManager, group: AnyModernGroup, record: CoordinatorRecord) -> CoordinatorRecord:
    """Count and log the group's next epoch, whose record this is."""
    shard.counts.rebalances[group.type] += 1
    log.info("[GroupId %s] Bumped group epoch to %d.", group.group_id, group.epoch + 1)
    return record


# ---- timers


def timer_key(timer: str, group: AnyModernGroup, member_id: str) -> tuple[str, str, str]:
    return f"{group.type.value}-{timer}", group.group_id, member_id


def keep_alive(
    shard: GroupMetadataManager, group: AnyModernGroup, member: ModernMember, *, has_moved: bool = False
) -> None:
    """Restart the member's session, and its rebalance timeout if it `has_moved` to a step in which it has to release something."""
    timers, member_id = shard.timers, member.member_id
    session_ms = group.session_timeout_ms(member, shard.cluster.settings_of(group).session_timeout_ms)
    key = timer_key(SESSION, group, member_id)
    if not timers.postpone(key, session_ms):
        timers.schedule(key, session_ms, partial(_end, shard, group, member_id, None, "the member session expired"))
    key, timeout_ms = timer_key(REBALANCE, group, member_id), group.release_timeout_ms(member)
    if timeout_ms is None:
        timers.cancel(key)
    elif has_moved or key not in timers:
        epoch = member.current.epoch
        why = f"it failed to transition from epoch {epoch} within {timeout_ms}ms"
        timers.schedule(key, timeout_ms, partial(_end, shard, group, member_id, epoch, why))


def _end(shard: GroupMetadataManager, group: AnyModernGroup, member_id: str, epoch: int | None, why: str) -> Unasked:
    """A member's time is over: that of its session, or that to release something in an `epoch`."""
    member = group.members.get(member_id)
    if shard.groups.get(group.group_id) is not group or member is None or epoch not in (None, member.current.epoch):
        return Outcome()
    return fence(shard, group, member, why)


def fence(shard: GroupMetadataManager, group: AnyModernGroup, member: ModernMember, why: str) -> Unasked:
    log.info("[GroupId %s] Member %s fenced from the group because %s.", group.group_id, member.member_id, why)

    def rejected(error: KafkaError) -> Unasked:
        """The member stays because the append failed, so its session starts again."""
        keep_alive(shard, group, member)
        return Outcome()

    outcome: Unasked = remove(shard, group, {member.member_id}, None)
    outcome.rejected = rejected
    return outcome


def forget(shard: GroupMetadataManager, group: AnyModernGroup, member_id: str) -> None:
    """Cancel all timers of a member that is gone."""
    for timer in (SESSION, REBALANCE, JOIN, SYNC):
        shard.timers.cancel(timer_key(timer, group, member_id))


# ---- removal


def remove(shard: GroupMetadataManager, group: AnyModernGroup, member_ids: Set[str], response: T | None) -> Outcome[T]:
    """Remove the members: their tombstones, the records that follow from them, and the group's next epoch.

    It is a classic group instead, if only classic members of a consumer group stay.
    """
    instead = shard.kinds.instead_of_removal(shard, group, member_ids, response)
    if instead is not None:
        return instead
    topics = shard.cluster.topics()
    records = [row for member_id in member_ids for row in group.records.member_tombstones(group.group_id, member_id)]
    records += group.tombstones_without(member_ids)
    names = group.names_without(member_ids, topics)
    new_hash = group.metadata_hash if names is None else shard.cluster.hashes.of_group(topics, names, at_once=True)

    def removed() -> Outcome[T]:
        if names is not None:
            group.seen_topics = topics
        for member_id in member_ids:
            forget(shard, group, member_id)
        return Outcome()

    return Outcome([*records, group.next_epoch(new_hash)], response, then=removed)
