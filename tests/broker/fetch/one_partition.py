"""One partition, read as by a Fetch of one reader: without a node, a session, or a connection."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ottla.broker.fetch.handler import response_of, settle
from ottla.broker.fetch.reader import SessionReader
from ottla.broker.fetch.session import FetchPartition, FetchSession
from ottla.broker.replication.partition import Partition
from ottla.protocol.messages.fetch import FetchRequest, PartitionData, ReplicaState
from tests.manual_clock import ManualClock

VERSION = 17


def fetched(
    partition: Partition, asked: FetchPartition, replica_id: int, broker_epoch: int, now_ms: int = 0
) -> PartitionData:
    """Return the response to a follower, whose position has been recorded first."""
    broker: Any = SimpleNamespace(
        world=SimpleNamespace(clock=ManualClock()),
        replicas=SimpleNamespace(
            by_id={partition.topic_id: {partition.index: partition}}, by_name={}, wakeups=partition._wakeups
        ),
        metadata=SimpleNamespace(leader_and_epoch=lambda topic, index: (-1, -1), node_endpoints=lambda *_: []),
        fetch_sessions=SimpleNamespace(follower_delays=None, consumer_delays=None),
        fetch_max_bytes=1 << 20,
        wheel=None,
    )
    request = FetchRequest(
        max_bytes=1 << 20, replica_state=ReplicaState(replica_id=replica_id, replica_epoch=broker_epoch)
    )
    context: Any = SimpleNamespace(api_version=VERSION)
    session = FetchSession({(asked.topic_id, asked.index): asked}, replica_id=replica_id, uses_topic_ids=True)
    reader = SessionReader(broker, request, context, session)
    rows, _, _ = reader.begin(now_ms)
    return response_of(reader, settle(reader, rows, is_incremental=False)).responses[0].partitions[0]
