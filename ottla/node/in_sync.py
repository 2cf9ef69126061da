"""Whether a restarted broker has its replicas back in sync: before that, stopping the next node may take partitions below min.insync.replicas.

An orchestrator that updates node by node (a StatefulSet) goes on as soon as the node before is ready. A broker is unfenced, and
so can be used, seconds before its followers have fetched what was written while it was down. With replication factor 3 and
min.insync.replicas 2 producers were then answered NOT_ENOUGH_REPLICAS until the fetchers had caught up.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.broker.replication.partition import Partition
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.metadata.partitions import NO_LEADER

#: The longest time for which replicas that are not in sync keep a node from being ready. One that never catches up, because its leader's
#: disk fails, must not stop an update for good.
IN_SYNC_WAIT_MS_MAX = 600_000


class InSyncOnce:
    """Remembers when a broker's replicas have all been in sync once since its start: afterwards a follower that lags is no matter of readiness."""

    def __init__(self) -> None:
        self._is_done = False
        self._since_ms = -1

    def missing(self, node_id: int, partitions: Iterable[Partition], image: MetadataImage, now_ms: int) -> int:
        """Returns the number of replicas that are not in sync with a leader; 0 for good once it was 0, or the time is over.

        Partitions without a leader do not count: there is nothing to catch up with. Replicas that a reassignment is adding are not missed either,
        and those of a failed log directory come back by another way.
        """
        if self._is_done:
            return 0
        if self._since_ms < 0:
            self._since_ms = now_ms
        count = sum(_is_behind(node_id, each, image) for each in partitions)
        self._is_done = not count or now_ms - self._since_ms >= IN_SYNC_WAIT_MS_MAX
        return 0 if self._is_done else count


def _is_behind(node_id: int, local: Partition, image: MetadataImage) -> bool:
    topic = image.topics.by_id(local.topic_id)
    partition = None if topic is None else topic.partitions.get(local.index)
    return (
        partition is not None
        and local.log is not None
        and partition.leader != NO_LEADER
        and node_id in partition.replicas
        and node_id not in partition.isr
        and node_id not in partition.adding_replicas
    )
