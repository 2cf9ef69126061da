"""The invariants of replication at every moment, looked at from outside of all nodes, beside invariants.py.

6, 5    the moment a producer is answered, every member of the ISR that the controller has committed holds the records, and with
        flush.messages=1 on its disk: an awaited flush is rarely cut off by a power loss, and so histories alone do not show it
32      the last stable offset is a function of the log and the high watermark: neither above the first open transaction, nor
        below, where all of the log is on the disk; of markers at or above the high watermark those that a log begins with may count as replicated
        (see `stable_offsets`)
"""

from __future__ import annotations

from collections.abc import Hashable

from ottla.storage.log.log import Log
from tests.histories import Violation
from tests.sim.cluster import SimCluster, SimNode
from tests.sim.history import TopicPartition

#: The number of checks after which the logs are read again from their beginning.
LOGS_EVERY = 10


class ReplicationChecks:
    """The checks of one run: `check` is called after every step, `acknowledged` with each response to acks=all."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._checks = 0
        #: The end of the log when its producers may have been loaded from a snapshot, and its end at the last check.
        self._loaded: dict[Hashable, tuple[int, int]] = {}

    def check(self) -> None:
        self._checks += 1
        for node in self._cluster.nodes:
            if node.is_up:
                self._stable_offsets(node, reads=self._checks % LOGS_EVERY == 0)

    def _stable_offsets(self, node: SimNode, *, reads: bool) -> None:
        for partition in node.partitions():
            log = partition.log
            if log is None or partition.offline or log.failure is not None or log.local_start_offset > 0:
                continue
            # The snapshot is loaded at a start, and at a truncation, as the follower of another leader or of the same one.
            life, end = (node.number, node.life, partition.topic_id, partition.index), log.log_end_offset
            place = (*life, partition.leader_epoch)
            loaded, last = self._loaded.get(place, (end, end))
            self._loaded[place] = loaded, _ = (loaded if end >= last else end, end)
            if not reads:
                continue
            lowest, highest = stable_offsets(log, loaded)
            if not lowest <= log.last_stable_offset <= highest:
                raise Violation(
                    "32", f"{node} {partition}: stable up to {log.last_stable_offset}, by its log {lowest} to {highest}"
                )

    def acknowledged(self, where: TopicPartition, last_offset: int) -> None:
        """Any member of the ISR may become the leader in a clean election.

        A member that is down, or whose new life is not registered, may have the records.
        """
        image = self._cluster.decided_image
        if image is None:
            return
        topic = image.topics.by_name(where[0])
        registration = None if topic is None else topic.partitions.get(where[1])
        for number in () if registration is None else registration.isr:
            node = self._cluster.by_number[number]
            broker = image.cluster.brokers.get(number)
            if not node.is_up or node.server is None or node.server.broker is None or broker is None:
                continue
            lifecycle, replica = node.server._lifecycle, node.server.broker.replicas.get(*where)
            if lifecycle is None or broker.epoch != lifecycle.broker_epoch or replica is None or replica.log is None:
                continue
            if replica.offline or replica.log.failure is not None:
                continue
            log = replica.log
            if log.log_end_offset <= last_offset:
                raise Violation(
                    "6",
                    f"{where} is acknowledged up to {last_offset}; {node} is in the ISR {registration} "
                    f"and ends at {log.log_end_offset}",
                )
            if log.config.flush_messages == 1 and log.recovery_point <= last_offset:
                raise Violation(
                    "6",
                    f"{where} is acknowledged up to {last_offset}; {node} is in the ISR {registration} "
                    f"and has flushed up to {log.recovery_point}",
                )


def stable_offsets(log: Log, loaded: int) -> tuple[int, int]:
    """Compute the last stable offset from the batches alone: in one case unreplicated ends of transactions hold it back, in the
    other those below `loaded` do not.

    Kafka's producer snapshots have no ended transactions, so a replica that loads one does not know that a marker is at or
    above the high watermark. The outcome is decided nevertheless: the coordinator had stored it before it sent the marker.
    """
    high_watermark = log.high_watermark
    open_since: dict[int, int] = {}
    strict = lenient = high_watermark
    for batch in log.batches(log.log_start_offset, log.log_end_offset):
        if not batch.is_transactional:
            continue
        if not batch.is_control:
            open_since.setdefault(batch.producer_id, batch.base_offset)
        elif (first := open_since.pop(batch.producer_id, None)) is not None and batch.base_offset >= high_watermark:
            strict = min(strict, first)
            if batch.base_offset >= loaded:
                lenient = min(lenient, first)
    return min([strict, *open_since.values()]), min([lenient, *open_since.values()])
