"""How members are removed, whatever the reason."""

from __future__ import annotations

from collections.abc import Set
from typing import TypeVar

from ottla.broker.coordinator.outcome import CoordinatorRecord, Outcome
from ottla.broker.groups.consumer import downgrade, regexes
from ottla.broker.groups.consumer.group import ConsumerGroup
from ottla.broker.groups.consumer.records import RECORDS
from ottla.broker.groups.consumer.session_keys import forget
from ottla.broker.groups.shard import GroupShard

T = TypeVar("T")


def remove(shard: GroupShard, group: ConsumerGroup, member_ids: Set[str], response: T | None) -> Outcome[T]:
    """Tombstones of the members, and the group's next epoch; or a classic group, if only its members stay."""
    if downgrade.is_due(shard, group, member_ids):
        reason = f"Downgrade group {group.group_id} from consumer to classic for member leaving."
        return downgrade.downgraded(shard, group, member_ids, reason, response)
    records: list[CoordinatorRecord] = []
    for member_id in member_ids:
        records.extend(RECORDS.member_tombstones(group.group_id, member_id))
    leaving = [group.members[member_id].metadata.subscribed_topic_regex or "" for member_id in member_ids]
    for expression in dict.fromkeys(leaving):
        records.extend(regexes.tombstones(group, expression, leaving.count(expression)))
    topics = shard.cluster.topics()
    new_hash = group.metadata_hash
    if group.seen_topics is not topics or group.is_narrowed_without(member_ids):
        names = group.subscribed_topics(dict.fromkeys(member_ids, ()))
        new_hash = shard.cluster.hashes.of_group(topics, names, at_once=True)
    records.append(group.next_epoch(new_hash))

    def removed() -> Outcome[T]:
        group.seen_topics = topics
        for member_id in member_ids:
            forget(shard, group.group_id, member_id)
        return Outcome()

    return Outcome(records, response, then=removed)
