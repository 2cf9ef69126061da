"""The check whether a node may stop: what would become unavailable, and what is unavailable in any case."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from ottla.client.cluster import ClusterClient
from ottla.client.cluster_state import VOTER_SILENT_MS_MAX, effects_of_stop, of_partitions, of_quorum
from ottla.client.errors import ClusterError
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ottla.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionDataResponse,
    ReplicaState,
    TopicDataResponse,
)
from ottla.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsResponse
from ottla.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic


def topic(replicas: list[int], isr: list[int]) -> MetadataResponseTopic:
    part = MetadataResponsePartition(partition_index=0, leader_id=isr[0], replica_nodes=replicas, isr_nodes=isr)
    return MetadataResponseTopic(name="orders", partitions=[part])


@pytest.mark.parametrize(
    ("replicas", "isr", "min_isr", "now", "always"),
    [
        ([1, 2, 3], [1, 2, 3], 2, False, False),
        ([1, 2, 3], [1, 3], 2, True, False),  # 2 still has to catch up
        ([1, 2, 3], [1], 2, True, False),  # 3 itself still has to catch up
        ([1, 2, 3], [1, 2], 2, False, False),  # the stop makes nothing worse
        ([1, 2, 3], [1, 2], 1, False, False),
        ([1, 3], [1, 3], 2, False, True),
        ([3], [3], 1, False, True),
        ([3], [3], 0, False, True),
        ([1, 2], [1], 2, False, False),  # its partition is not affected
    ],
)
def test_a_stop_of_node_3(replicas: list[int], isr: list[int], min_isr: int, now: bool, always: bool) -> None:
    found = of_partitions([topic(replicas, isr)], {"orders": min_isr}, 3, {})
    assert (bool(found.now), bool(found.always)) == (now, always)
    assert all(each.place == "orders-0" for each in found.now + found.always)


@pytest.mark.parametrize(
    ("replicas", "isr", "adding", "always"),
    [
        ([3, 1], [3], [1], True),  # it is the only replica until the move is over, as without a move
        ([1, 3], [1], [3], False),  # it is only being copied to node 3
        ([1, 2, 3], [1], [3], False),  # node 2 is missing, and the copy at node 3 is no reason to wait for it
    ],
)
def test_a_planned_move_is_no_reason_to_wait_before_node_3_stops(
    replicas: list[int], isr: list[int], adding: list[int], always: bool
) -> None:
    found = of_partitions(
        [topic(replicas, isr)], {"orders": 2 if len(replicas) == 3 else 1}, 3, {("orders", 0): adding}
    )
    assert (found.now, bool(found.always)) == ([], always)


@pytest.mark.parametrize(
    ("ages_ms", "now", "always"),
    [
        ([0, 0, 0], False, False),
        ([0, VOTER_SILENT_MS_MAX + 1, 0], True, False),  # 2 is down already
        ([0, 0, VOTER_SILENT_MS_MAX + 1], False, False),  # 3 itself is down
        ([0, 0], False, False),  # a broker without a vote
    ],
)
def test_a_stop_of_voter_3(ages_ms: list[int], now: bool, always: bool) -> None:
    voters = [
        ReplicaState(replica_id=voter, last_fetch_timestamp=100_000 - age_ms) for voter, age_ms in enumerate(ages_ms, 1)
    ]
    found = of_quorum(PartitionDataResponse(current_voters=voters), 3)
    assert (bool(found.now), bool(found.always)) == (now, always)


def test_the_only_voter_is_missed_in_any_case() -> None:
    quorum = PartitionDataResponse(current_voters=[ReplicaState(replica_id=1, last_fetch_timestamp=5)])
    assert [each.place for each in of_quorum(quorum, 1).always] == ["quorum"]


@pytest.mark.parametrize(("node_id", "is_known"), [(1, True), (2, True), (3, True), (4, True), (77, False)])
def test_a_node_is_known_by_a_replica_a_vote_or_its_registration(node_id: int, is_known: bool) -> None:
    async def metadata(names: None) -> MetadataResponse:
        return MetadataResponse(topics=[topic([4], [4])])

    async def request(request: object) -> object:
        if isinstance(request, DescribeConfigsRequest):
            setting = DescribeConfigsResourceResult(name="min.insync.replicas", value="1")
            return DescribeConfigsResponse(results=[DescribeConfigsResult(resource_name="orders", configs=[setting])])
        if isinstance(request, DescribeClusterRequest):
            return DescribeClusterResponse(brokers=[DescribeClusterBroker(broker_id=3)])
        if isinstance(request, DescribeQuorumRequest):
            voters, observers = [ReplicaState(replica_id=1, last_fetch_timestamp=5)], [ReplicaState(replica_id=2)]
            part = PartitionDataResponse(current_voters=voters, observers=observers)
            return DescribeQuorumResponse(topics=[TopicDataResponse(partitions=[part])])
        return ListPartitionReassignmentsResponse()

    cluster = cast(ClusterClient, SimpleNamespace(metadata=metadata, request=request, timeout_ms=1_000))
    if is_known:
        asyncio.run(effects_of_stop(cluster, node_id))
        return
    with pytest.raises(ClusterError, match="there is no node 77"):
        asyncio.run(effects_of_stop(cluster, node_id))


def test_a_topic_that_is_too_new_for_the_broker_that_is_asked_lets_no_node_stop() -> None:
    async def metadata(names: None) -> MetadataResponse:
        return MetadataResponse(topics=[topic([1, 2, 3], [1, 2, 3])])

    async def request(request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        result = DescribeConfigsResult(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, resource_name="orders")
        return DescribeConfigsResponse(results=[result])

    cluster = cast(ClusterClient, SimpleNamespace(metadata=metadata, request=request))
    with pytest.raises(ClusterError) as refused:
        asyncio.run(effects_of_stop(cluster, 3))
    assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
