"""The simple assignor of share groups (KIP-932): every partition has as many members as any other, and every member as many partitions.

    sharing   members of a partition: members / partitions, rounded up
    quota     partitions of a member: sharing * partitions / members, rounded up for some and down for others

With one subscription all topics are divided together; with several each topic is divided among its own subscribers, and members of many
topics get more. A member keeps what it has within its quota. Who gets more, and who gives up what, is as in Kafka 4.3: of a partition
with too many members the first ones give it up, and a member with too many partitions gives up the first ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence

from ottla.broker.coordinator.coordinator import java_hash_code
from ottla.broker.groups.modern.assignment import Assignment, Partition, Subscriber, subscribers_of, without_empty


def assign_simple(
    members: Mapping[str, Subscriber], assignable: Mapping[bytes, Collection[int]], *, is_one_subscription: bool
) -> dict[str, Assignment]:
    """Return the share of each member; `assignable` are the partitions whose share state is initialized.

    `is_one_subscription` says whether all members name the same topics, which need not exist.
    """
    owned: dict[str, dict[bytes, set[int]]] = {member_id: {} for member_id in members}
    subscribers = subscribers_of(members, in_order(members))
    topics = sorted(topic_id for topic_id in subscribers if assignable.get(topic_id))
    for part in [topics] if is_one_subscription and topics else [[topic_id] for topic_id in topics]:
        partitions = [(topic_id, partition) for topic_id in part for partition in sorted(assignable[topic_id])]
        current = {member_id: members[member_id].current for member_id in subscribers[part[0]]}
        for member_id, its_partitions in _divide(partitions, current).items():
            for topic_id, partition in its_partitions:
                owned[member_id].setdefault(topic_id, set()).add(partition)
    return {member_id: without_empty(its_topics) for member_id, its_topics in owned.items()}


def _divide(partitions: Sequence[Partition], current: Mapping[str, Assignment]) -> dict[str, set[Partition]]:
    sharing = -(-len(current) // len(partitions))
    quotas = _quotas(sharing * len(partitions), list(current))
    owned: dict[str, set[Partition]] = {}
    holders: dict[Partition, list[str]] = {partition: [] for partition in partitions}
    for member_id, before in current.items():
        held = sorted(
            each for topic_id in before for index in before[topic_id] if (each := (topic_id, index)) in holders
        )
        owned[member_id] = set(held[max(len(held) - quotas[member_id], 0) :])
        for partition in owned[member_id]:
            holders[partition].append(member_id)
    for partition, its_members in holders.items():
        for member_id in its_members[: max(len(its_members) - sharing, 0)]:
            owned[member_id].remove(partition)
    unfilled = deque(member_id for member_id in current if len(owned[member_id]) < quotas[member_id])
    for partition, its_members in holders.items():
        _fill(partition, sharing - len(its_members), unfilled, owned, quotas)
    return owned


def _quotas(total: int, member_ids: Sequence[str]) -> dict[str, int]:
    """Divide `total` among the members: the quotas are differences of a rounded series, so that they add up to it."""
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
    """Give the partition to members that have room, by turns. If all that have room have the partition already, it stays with fewer members, as in Kafka."""
    passed = 0
    while free > 0 and passed < len(unfilled):
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


# ---- the order of members

#: Buckets of an empty HashMap of Java. It doubles when more than three quarters of them would be in use.
BUCKETS_MIN = 16


def in_order(names: Collection[str]) -> list[str]:
    """Return the names in the order of Java's HashMap, which decides in Kafka who of several equal members comes first.

    Clients that name their members themselves, as tests do, find the same shares as with Kafka; the order is no better or worse than
    another. Names of one bucket, which the map has in the order in which they came, are in alphabetical order here.
    """
    buckets = BUCKETS_MIN
    while 4 * len(names) > 3 * buckets:
        buckets *= 2
    return sorted(names, key=lambda name: (_bucket(name, buckets), name))


def _bucket(name: str, buckets: int) -> int:
    hash_code = java_hash_code(name) & 0xFFFF_FFFF
    return (hash_code ^ hash_code >> 16) & (buckets - 1)
