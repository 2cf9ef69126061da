"""Which replica a consumer had better read from: one in its own rack (KIP-392, Kafka's RackAwareReplicaSelector).

Asked of the leader only, which knows how far each follower is. A follower is offered if it is in sync, alive and has the offset;
of several the one that is furthest. None: the leader itself.
"""

from __future__ import annotations

from ottla.broker.replication.partition import Partition
from ottla.controller.metadata.cluster import ClusterImage

RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def nearer_replica(partition: Partition, rack: str, offset: int, cluster: ClusterImage) -> int | None:
    own = cluster.brokers.get(partition.node_id)
    if own is None or own.rack == rack:
        return None
    nearer = [
        (follower.log_end_offset, -follower.broker_id)
        for follower in partition.followers.values()
        if follower.broker_id in partition.isr
        and follower.log_start_offset <= offset <= follower.log_end_offset
        and (broker := cluster.brokers.get(follower.broker_id)) is not None
        and broker.rack == rack
        and not broker.fenced
    ]
    return -max(nearer)[1] if nearer else None
