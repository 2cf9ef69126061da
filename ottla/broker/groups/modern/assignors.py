"""The assignors of consumer groups: functions of the members, their subscriptions and targets, and of the partitions."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush, heapreplace

from ottla.broker.groups.modern.assignment import Assignment, Partition, Subscriber, subscribers_of, without_empty

Owned = dict[str, dict[bytes, set[int]]]


# ---- range


def assign_range(members: Mapping[str, Subscriber], partition_counts: Mapping[bytes, int]) -> dict[str, Assignment]:
    """Assign by `range`: each topic is divided into one range per subscriber, in the order of the members.

    Topics with the same subscribers and the same number of partitions are divided alike, so that a member has the same
    partitions of each (co-partitioning). The order of members is that of their instance ids, or member ids where they have none:
    a static member keeps its ranges across restarts.
    """
    assigned: dict[str, dict[bytes, frozenset[int]]] = {member_id: {} for member_id in members}
    # Static members come before dynamic ones.
    in_order = sorted(members, key=lambda m: (members[m].instance_id is None, members[m].instance_id or "", m))
    for topic_id, member_ids in subscribers_of(members, in_order).items():
        each, extra = divmod(partition_counts[topic_id], len(member_ids))
        start = 0
        for index, member_id in enumerate(member_ids):
            end = start + each + (index < extra)
            if end > start:
                assigned[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return dict(assigned)


# ---- uniform


def assign_uniform(members: Mapping[str, Subscriber], partition_counts: Mapping[bytes, int]) -> dict[str, Assignment]:
    """Balance the partitions among the members and move as few of them as possible.

    Members of one subscription each get the number of partitions per member, rounded down. Some get one more: first those that
    have one more already. With different subscriptions no subscriber of a partition has two partitions less than the member
    that has it.
    """
    if not members:
        return {}
    owned, free = _kept(members, partition_counts)
    if len({member.topics for member in members.values()}) == 1:
        _divide_equally(owned, free)
    else:
        _give_to_the_least_loaded(members, owned, free)
        _balance(members, owned)
    return {member_id: without_empty(topics) for member_id, topics in owned.items()}


def _kept(members: Mapping[str, Subscriber], partition_counts: Mapping[bytes, int]) -> tuple[Owned, list[Partition]]:
    """Return the partitions that each member keeps, and those without an owner."""
    subscribed = frozenset[bytes]().union(*{member.topics for member in members.values()})
    free = {topic_id: set(range(partition_counts[topic_id])) for topic_id in subscribed}
    owned: Owned = {}
    for member_id, member in members.items():
        owned[member_id] = kept = {}
        for topic_id, partitions in member.current.items():
            if topic_id in member.topics and topic_id in free:
                kept[topic_id] = free[topic_id] & partitions
                free[topic_id] -= partitions
    return owned, [(topic_id, partition) for topic_id in sorted(free) for partition in sorted(free[topic_id])]


# ---- uniform: one subscription


def _divide_equally(owned: Owned, free: list[Partition]) -> None:
    loads = {member_id: _load(topics) for member_id, topics in owned.items()}
    each, extra = divmod(sum(loads.values()) + len(free), len(owned))
    quotas = {}
    # Members that own most come first and keep their extra partition, so that it does not move.
    for index, member_id in enumerate(sorted(owned, key=lambda member_id: (-loads[member_id], member_id))):
        quotas[member_id] = each + (index < extra)
        _take_surplus(owned[member_id], loads[member_id] - quotas[member_id], free)
    unassigned = iter(free)
    for member_id, quota in quotas.items():
        for _ in range(quota - loads[member_id]):
            topic_id, partition = next(unassigned)
            owned[member_id].setdefault(topic_id, set()).add(partition)


def _take_surplus(topics: dict[bytes, set[int]], surplus: int, free: list[Partition]) -> None:
    """Take partitions from a member above its quota; the last ones first, as in Kafka."""
    for topic_id in reversed(topics):
        if surplus <= 0:
            return
        gone = sorted(topics[topic_id])[-surplus:]
        topics[topic_id].difference_update(gone)
        free.extend((topic_id, partition) for partition in gone)
        surplus -= len(gone)


def _load(topics: Mapping[bytes, set[int]]) -> int:
    return sum(map(len, topics.values()))


# ---- uniform: different subscriptions


def _give_to_the_least_loaded(members: Mapping[str, Subscriber], owned: Owned, free: list[Partition]) -> None:
    """Assign the partitions without an owner. Topics with few subscribers come first, because they have fewer candidates."""
    subscribers = subscribers_of(members, members)
    loads = {member_id: _load(topics) for member_id, topics in owned.items()}
    unowned: dict[bytes, list[int]] = {}
    for topic_id, partition in free:
        unowned.setdefault(topic_id, []).append(partition)
    for topic_id in sorted(unowned, key=lambda topic_id: (len(subscribers[topic_id]), topic_id)):
        heap = [(loads[member_id], member_id) for member_id in subscribers[topic_id]]
        heapify(heap)
        for partition in unowned[topic_id]:
            load, member_id = heap[0]
            owned[member_id].setdefault(topic_id, set()).add(partition)
            loads[member_id] = load + 1
            heapreplace(heap, (load + 1, member_id))


def _balance(members: Mapping[str, Subscriber], owned: Owned) -> None:
    """Move partitions of each topic from the most to the least loaded of its subscribers while that helps.

    Each move lowers the sum of the squares of the loads, so it comes to an end.
    """
    subscribers = subscribers_of(members, members)
    loads = {member_id: _load(topics) for member_id, topics in owned.items()}
    moved = True
    while moved:
        moved = False
        for topic_id in sorted(subscribers):
            moved = _balance_topic(topic_id, subscribers[topic_id], owned, loads) or moved


def _balance_topic(topic_id: bytes, subscribers: list[str], owned: Owned, loads: dict[str, int]) -> bool:
    givers = [(-loads[member_id], member_id) for member_id in subscribers if owned[member_id].get(topic_id)]
    takers = [(loads[member_id], member_id) for member_id in subscribers]
    heapify(givers)
    heapify(takers)
    moved = False
    while givers:
        giver = heappop(givers)[1]
        while takers[0][0] != loads[takers[0][1]]:
            # The member's load has changed, so its position in the heap changes.
            heapreplace(takers, (loads[takers[0][1]], takers[0][1]))
        taker = takers[0][1]
        partitions = owned[giver].get(topic_id)
        if loads[giver] - loads[taker] < 2:
            break
        assert partitions
        owned[taker].setdefault(topic_id, set()).add(partitions.pop())
        loads[giver] -= 1
        loads[taker] += 1
        moved = True
        heapreplace(takers, (loads[taker], taker))
        if partitions:
            heappush(givers, (-loads[giver], giver))
    return moved
