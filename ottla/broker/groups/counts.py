"""What the group coordinator of a broker has counted since the broker started, all its shards together."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from ottla.broker.groups.group import GroupType


@dataclass(slots=True)
class GroupCounts:
    """Offsets are counted one by one, rebalances when they begin (groups of Kafka 4) or have ended (classic ones)."""

    offset_commits: int = 0
    offset_expirations: int = 0
    offset_deletions: int = 0
    rebalances: Counter[GroupType] = field(default_factory=Counter)
