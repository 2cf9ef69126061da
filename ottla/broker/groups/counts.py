"""What the group coordinator of a broker has counted since the broker started, all its shards together."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class GroupCounts:
    """Offsets are counted one by one, rebalances when they begin (groups of Kafka 4) or have ended (classic ones)."""

    offset_commits: int = 0
    offset_expirations: int = 0
    offset_deletions: int = 0
    classic_rebalances: int = 0
    consumer_rebalances: int = 0
    share_rebalances: int = 0
    streams_rebalances: int = 0
