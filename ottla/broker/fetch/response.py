"""Builds Fetch responses: the partitions by topic, the errors, and the endpoints of new leaders (KIP-951)."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.broker.fetch.session import FetchPartition
from ottla.broker.metadata_cache import LEADER_MOVED, MetadataCache
from ottla.protocol.messages.fetch import FetchableTopicResponse, PartitionData
from ottla.protocol.messages.shared_structs import NodeEndpoint
from ottla.server.network.context import RequestContext


def is_sent_at_once(data: PartitionData) -> bool:
    """An answer that has no records and yet cannot wait for some."""
    return data.error_code != 0 or data.diverging_epoch.epoch >= 0 or data.preferred_read_replica >= 0


def by_topic(results: Mapping[FetchPartition, PartitionData], *, by_id: bool) -> list[FetchableTopicResponse]:
    """Partitions of one topic that follow each other are one element."""
    topics: list[FetchableTopicResponse] = []
    last: str | bytes | None = None
    for wanted, data in results.items():
        topic_key: str | bytes = wanted.topic_id if by_id else wanted.topic
        if topic_key != last:
            last = topic_key
            topics.append(FetchableTopicResponse(topic=wanted.topic, topic_id=wanted.topic_id, partitions=[data]))
        else:
            topics[-1].partitions.append(data)
    return topics


def endpoints_of_leaders(
    results: Mapping[FetchPartition, PartitionData], metadata: MetadataCache, context: RequestContext
) -> list[NodeEndpoint]:
    """Returns the addresses of the leaders that the response's errors name."""
    leaders = {data.current_leader.leader_id for data in results.values() if data.error_code in LEADER_MOVED} - {-1}
    found = ((node_id, metadata.endpoint(node_id, context)) for node_id in sorted(leaders))
    return [
        NodeEndpoint(node_id=node_id, host=address.host, port=address.port, rack=address.rack)
        for node_id, address in found
        if address is not None
    ]
