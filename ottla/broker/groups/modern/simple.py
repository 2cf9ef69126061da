"""The simple assignor of share groups: every partition has as many members as any other, and every member as many partitions.

    sharing   members of a partition: members / partitions, rounded up
    quota     partitions of a member: sharing * partitions / members, rounded up for some and down for others

A member keeps what it has within its quota. With one subscription all topics are divided together; with several each topic is
divided among its own subscribers, and members of many topics get more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

from ottla.broker.groups.modern.assignment import Assignment, Subscriber, without_empty

Partition: TypeAlias = tuple[bytes, int]


def assign(members: Mapping[str, Subscriber], assignable: Mapping[bytes, Collection[int]]) -> dict[str, Assignment]:
    """The simple assignor of share groups; `assignable` are the partitions whose share state is initialized."""
    owned: dict[str, dict[bytes, set[int]]] = {member_id: {} for member_id in members}
    subscriptions = {member.topics for member in members.values()}
    topics = sorted(topic_id for topic_id in frozenset[bytes]().union(*subscriptions) if assignable.get(topic_id))
    parts = [topics] if len(subscriptions) == 1 else [[topic_id] for topic_id in topics]
    subscribers_of: dict[bytes, list[str]] = {}
    for member_id in sorted(members):
        for topic_id in members[member_id].topics:
            subscribers_of.setdefault(topic_id, []).append(member_id)
    for part in parts:
        subscribers = subscribers_of[part[0]] if part else []
        partitions = [(topic_id, partition) for topic_id in part for partition in sorted(assignable[topic_id])]
        current = {member_id: members[member_id].current for member_id in subscribers}
        for member_id, its_partitions in _divide(partitions, subscribers, current).items():
            for topic_id, partition in its_partitions:
                owned[member_id].setdefault(topic_id, set()).add(partition)
    return {member_id: without_empty(its_topics) for member_id, its_topics in owned.items()}


def _divide(
    partitions: Sequence[Partition], member_ids: Sequence[str], current: Mapping[str, Assignment]
) -> dict[str, set[Partition]]:
    if not partitions:
        return {}
    sharing = -(-len(member_ids) // len(partitions))
    quotas = _quotas(sharing * len(partitions), member_ids)
    places = dict.fromkeys(partitions, sharing)
    owned: dict[str, set[Partition]] = {}
    for member_id in member_ids:
        owned[member_id] = kept = set[Partition]()
        for topic_id, indexes in current[member_id].items():
            for index in sorted(indexes):
                if places.get((topic_id, index), 0) > 0 and len(kept) < quotas[member_id]:
                    kept.add((topic_id, index))
                    places[(topic_id, index)] -= 1
    unfilled = deque(member_id for member_id in member_ids if len(owned[member_id]) < quotas[member_id])
    for partition, free in places.items():
        _fill(partition, free, unfilled, owned, quotas)
    return owned


def _quotas(total: int, member_ids: Sequence[str]) -> dict[str, int]:
    """The differences of a rounded series, so that they add up to `total`."""
    count = len(member_ids)
    return {
        member_id: -(-total * (index + 1) // count) + (-total * index // count)
        for index, member_id in enumerate(member_ids)
    }


def _fill(
    partition: Partition,
    free: int,
    unfilled: deque[str],
    owned: Mapping[str, set[Partition]],
    quotas: Mapping[str, int],
) -> None:
    """Members take turns. If all that have room have the partition already, it stays with fewer members, as in Kafka."""
    passed = 0
    while free and passed < len(unfilled):
        member_id = unfilled.popleft()
        if partition in owned[member_id]:
            passed += 1
            unfilled.append(member_id)
            continue
        owned[member_id].add(partition)
        free -= 1
        passed = 0
        if len(owned[member_id]) < quotas[member_id]:
            unfilled.append(member_id)
