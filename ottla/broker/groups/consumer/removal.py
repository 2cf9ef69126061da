"""How members of a consumer group are removed, whatever the reason, and the timers that remove them."""

from __future__ import annotations

from collections.abc import Set
from typing import TypeVar

from ottla.broker.coordinator.outcome import CoordinatorRecord, Outcome, Unasked
from ottla.broker.groups import member_sessions
from ottla.broker.groups.consumer import downgrade, regexes
from ottla.broker.groups.consumer.consumer_group import ConsumerGroup
from ottla.broker.groups.consumer.consumer_member import Member
from ottla.broker.groups.group_metadata_manager import GroupMetadataManager

T = TypeVar("T")


def remove(shard: GroupMetadataManager, group: ConsumerGroup, member_ids: Set[str], response: T | None) -> Outcome[T]:
    """Removes the members: their tombstones and the group's next epoch; a classic group instead, if only its members stay."""
    if downgrade.is_due(shard, group, member_ids):
        reason = f"Downgrade group {group.group_id} from consumer to classic for member leaving."
        return downgrade.downgraded(shard, group, member_ids, reason, response)
    leaving = [group.members[member_id].metadata.subscribed_topic_regex or "" for member_id in member_ids]
    records: list[CoordinatorRecord] = []
    for expression in dict.fromkeys(leaving):
        records.extend(regexes.tombstones(group, expression, leaving.count(expression)))
    return member_sessions.removal(shard, group, member_ids, response, records)


def keep_alive(shard: GroupMetadataManager, group: ConsumerGroup, member: Member, *, has_moved: bool = False) -> None:
    member_sessions.keep_alive(shard, group, member.member_id, _remove_one, has_moved=has_moved)


def fence(shard: GroupMetadataManager, group: ConsumerGroup, member_id: str, why: str) -> Unasked:
    return member_sessions.fence(shard, group, member_id, _remove_one, why)


def _remove_one(shard: GroupMetadataManager, group: ConsumerGroup, member_id: str) -> Unasked:
    outcome: Unasked = remove(shard, group, {member_id}, None)
    return outcome
