"""The KRaft quorum: its replicas and their endpoints, and changes of its voters (KIP-853)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ottla.client.cluster import ClusterClient
from ottla.client.cluster_error import check
from ottla.protocol.messages.add_raft_voter import AddRaftVoterRequest
from ottla.protocol.messages.describe_quorum import DescribeQuorumRequest, PartitionDataResponse, TopicDataRequest
from ottla.protocol.messages.quorum_structs import Listener
from ottla.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from ottla.protocol.messages.shared_structs import PartitionIndex

METADATA_TOPIC = "__cluster_metadata"


class Quorum(NamedTuple):
    """The state of the metadata partition, and the endpoints of its replicas (NAME://HOST:PORT) by node id."""

    partition: PartitionDataResponse
    endpoints: dict[int, list[str]]


async def describe_quorum(cluster: ClusterClient) -> PartitionDataResponse:
    return (await describe_quorum_nodes(cluster)).partition


async def describe_quorum_nodes(cluster: ClusterClient) -> Quorum:
    cluster.doing = "describing the quorum"
    topic = TopicDataRequest(topic_name=METADATA_TOPIC, partitions=[PartitionIndex(partition_index=0)])
    response = await cluster.request(DescribeQuorumRequest(topics=[topic]))
    check("quorum", response.error_code, response.error_message)
    part: PartitionDataResponse = response.topics[0].partitions[0]
    check("quorum", part.error_code, part.error_message)
    endpoints = {
        node.node_id: [f"{one.name}://{one.host}:{one.port}" for one in node.listeners] for node in response.nodes
    }
    return Quorum(part, endpoints)


async def add_voter(
    cluster: ClusterClient, node: int, directory_id: bytes, listeners: Iterable[tuple[str, str, int]]
) -> None:
    """Add a controller to the voters; its listeners are name, host and port."""
    cluster.doing = f"adding controller {node} to the voters"
    rows = [Listener(name=name, host=host, port=port) for name, host, port in listeners]
    request = AddRaftVoterRequest(
        cluster_id=None, timeout_ms=cluster.timeout_ms, voter_id=node, voter_directory_id=directory_id, listeners=rows
    )
    response = await cluster.request(request)
    check(f"controller {node}", response.error_code, response.error_message)


async def remove_voter(cluster: ClusterClient, node: int, directory_id: bytes) -> None:
    """Remove a controller from the voters."""
    cluster.doing = f"removing controller {node} from the voters"
    request = RemoveRaftVoterRequest(cluster_id=None, voter_id=node, voter_directory_id=directory_id)
    response = await cluster.request(request)
    check(f"controller {node}", response.error_code, response.error_message)
