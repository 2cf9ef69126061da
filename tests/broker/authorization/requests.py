"""Requests that name one topic, group or transaction, in the shape that each version wants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from ottla.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from ottla.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.share_fetch import ShareFetchRequest
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.messages.shared_structs import AcknowledgePartition as SharePartition
from ottla.protocol.messages.shared_structs import AcknowledgeTopic as ShareTopic
from ottla.protocol.messages.shared_structs import TopicPartitionIndexes
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.protocol.schema import ZERO_UUID
from tests.broker.records import batch

Build = Callable[[str, dict[str, bytes], int], Any]


def offset_fetch(topic: str, group: str, version: int, topic_id: bytes) -> OffsetFetchRequest:
    if version < 8:
        return OffsetFetchRequest(group_id=group, topics=[TopicPartitionIndexes(name=topic, partition_indexes=[0])])
    topics = [OffsetFetchRequestTopics(name=topic, topic_id=topic_id, partition_indexes=[0])]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, member_id=None, topics=topics)])


def fetch(topic: str, ids: dict[str, bytes], version: int, replica_id: int = -1) -> FetchRequest:
    partitions = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)]
    request = FetchRequest(
        max_wait_ms=5_000,
        min_bytes=0,
        max_bytes=1000,
        session_epoch=-1 if version >= 7 else 0,
        topics=[FetchTopic(topic=topic, topic_id=ids[topic], partitions=partitions)],
    )
    if replica_id >= 0:
        request.replica_state = ReplicaState(replica_id=replica_id, replica_epoch=1)
    return request


def share_fetch(topic: str, ids: dict[str, bytes], version: int) -> ShareFetchRequest:
    return ShareFetchRequest(
        group_id="g", member_id="m", max_bytes=1000, max_records=1, topics=[ShareTopic(ids[topic], [SharePartition(0)])]
    )


def metadata(topic: str, ids: dict[str, bytes], version: int) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=topic)])


def find_coordinator(key: str, key_type: int, version: int) -> FindCoordinatorRequest:
    if version < 4:
        return FindCoordinatorRequest(key=key, **({"key_type": key_type} if version else {}))
    return FindCoordinatorRequest(coordinator_keys=[key], key_type=key_type)


def produce(topic: str, ids: dict[str, bytes], version: int) -> ProduceRequest:
    by_id = version >= 13
    data = [PartitionProduceData(index=0, records=batch([b"x"]))]
    named = TopicProduceData(name="" if by_id else topic, topic_id=ids[topic] if by_id else ZERO_UUID)
    named.partition_data = data
    return ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[named])


def commit(group: str, *topics: str) -> OffsetCommitRequest:
    partitions = [OffsetCommitRequestPartition(0, committed_metadata="")]
    return OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions) for topic in topics]
    )


def offsets_in_transaction(transactional_id: str, group: str, topic: str = "open") -> TxnOffsetCommitRequest:
    partitions = [TxnOffsetCommitRequestPartition(0, committed_metadata="")]
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group,
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=partitions)],
    )


def partitions_in_transaction(transactional_id: str, *topics: str) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0]) for topic in topics],
    )


# ---- share groups


def share_heartbeat(group: str, topic: str) -> ShareGroupHeartbeatRequest:
    return ShareGroupHeartbeatRequest(group_id=group, member_id="m", member_epoch=0, subscribed_topic_names=[topic])


def describe_share_offsets(group: str, topic: str) -> DescribeShareGroupOffsetsRequest:
    topics = [DescribeShareGroupOffsetsRequestTopic(topic, [0])]
    return DescribeShareGroupOffsetsRequest([DescribeShareGroupOffsetsRequestGroup(group, topics)])


def alter_share_offsets(group: str, topic: str) -> AlterShareGroupOffsetsRequest:
    rows = [AlterShareGroupOffsetsRequestPartition(0, 0)]
    return AlterShareGroupOffsetsRequest(group, [AlterShareGroupOffsetsRequestTopic(topic, rows)])


def delete_share_offsets(group: str, topic: str) -> DeleteShareGroupOffsetsRequest:
    return DeleteShareGroupOffsetsRequest(group, [DeleteShareGroupOffsetsRequestTopic(topic)])
