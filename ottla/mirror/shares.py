"""Workers share the partitions by lanes. A lane has one transactional id, whose use fences the worker that had the lane before.

The lane of a partition depends only on its name. So a partition moves to another worker together with its lane, and the worker
that has lost the lane can no longer end a transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from zlib import crc32

from ottla.client.partitions import TopicPartition

#: All workers must have the same number of lanes, so it is part of their group protocol's name. A lane commits one transaction
#: for all of its partitions: the number bounds the transactions of a mirror of ten thousand partitions.
LANES = 32
PROTOCOL = f"lanes-{LANES}"


def lane_of(place: TopicPartition) -> int:
    """Return the lane of a partition. Partitions of one topic are in consecutive lanes."""
    name, index = place
    return (crc32(name.encode()) + index) % LANES


def share(owned: Mapping[str, Iterable[int]], weights: Mapping[int, int]) -> dict[str, list[int]]:
    """Assign all lanes to the members, with even numbers of partitions (`weights`, by lane).

    A lane stays where it was if that is still even.

    `owned` are the lanes that each member claims to have.
    """
    lanes = sorted(range(LANES), key=lambda lane: (-weights.get(lane, 0), lane))
    total = sum(weights.get(lane, 0) for lane in lanes)
    most = max(-(-total // len(owned)), max(weights.values(), default=0))
    lanes_most = -(-LANES // len(owned))
    assigned: dict[str, list[int]] = {member: [] for member in sorted(owned)}
    loads = dict.fromkeys(assigned, 0)
    had = {lane: member for member in sorted(owned) for lane in owned[member]}
    left = []
    for lane in lanes:
        member, weight = had.get(lane), weights.get(lane, 0)
        if member is None or loads[member] + weight > most or len(assigned[member]) >= lanes_most:
            left.append(lane)
            continue
        assigned[member].append(lane)
        loads[member] += weight
    for lane in left:
        member = min(assigned, key=lambda name: (loads[name], len(assigned[name]), name))
        assigned[member].append(lane)
        loads[member] += weights.get(lane, 0)
    return {member: sorted(row) for member, row in assigned.items()}
