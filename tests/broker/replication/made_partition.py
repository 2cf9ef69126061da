"""A replica with a story of its own, where no broker has those of all partitions."""

from __future__ import annotations

from ottla.broker.replication.disk_work import GroupFlush
from ottla.broker.replication.isr import IsrProposals
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.wakeups import Wakeups
from ottla.server.story import Stories


def made_partition(
    node_id: int,
    topic: str,
    index: int,
    topic_id: bytes,
    wakeups: Wakeups,
    group_flush: GroupFlush,
    lag_time_ms_max: int,
    isr_proposals: IsrProposals | None = None,
) -> Partition:
    stories = Stories[tuple[str, int]]("partition", wakeups.clock.wall_ms)
    return Partition(node_id, topic, index, topic_id, wakeups, group_flush, lag_time_ms_max, stories, isr_proposals)
