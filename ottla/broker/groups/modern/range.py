"""The range assignor: each topic is divided into one range per subscriber, in the order of the members.

Topics with the same subscribers and the same number of partitions are divided alike, so that a member has the same
partitions of each (co-partitioning). The order of members is that of their instance ids, or member ids where they have none:
a static member keeps its ranges across restarts.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.broker.groups.modern.assignment import Assignment, Subscriber


def assign(members: Mapping[str, Subscriber], partition_counts: Mapping[bytes, int]) -> dict[str, Assignment]:
    assigned: dict[str, dict[bytes, frozenset[int]]] = {member_id: {} for member_id in members}
    subscribers: dict[bytes, list[str]] = {}
    for member_id in sorted(members, key=lambda member_id: _order(member_id, members[member_id])):
        for topic_id in members[member_id].topics:
            subscribers.setdefault(topic_id, []).append(member_id)
    for topic_id, member_ids in subscribers.items():
        each, extra = divmod(partition_counts[topic_id], len(member_ids))
        start = 0
        for index, member_id in enumerate(member_ids):
            end = start + each + (index < extra)
            if end > start:
                assigned[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return dict(assigned)


def _order(member_id: str, member: Subscriber) -> tuple[bool, str, str]:
    """Returns the sort key of a member. Static members come before dynamic ones."""
    return member.instance_id is None, member.instance_id or "", member_id
