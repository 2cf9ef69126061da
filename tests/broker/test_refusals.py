"""Errors of single rows, over the wire: a partition, group or directory of a request is rejected with its own error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.list_transactions import ListTransactionsRequest
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestTopic
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.protocol.messages.shared_structs import PartitionIndex
from ottla.protocol.messages.sync_group import SyncGroupRequest
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.broker.conftest import Node, eventually
from tests.broker.wire import Wire

TOPIC, NOWHERE, UNKNOWN_ID = "refusing", "nowhere", b"?" * 16
GROUP_KEY, TRANSACTION_KEY, NO_KEY = 0, 1, 9


@pytest.fixture(scope="module")
def refusing(node: Node) -> Node:
    node.create(TOPIC)
    node.create("compacted", cleanup_policy="compact")
    with node.wire() as wire:
        for key_type in (GROUP_KEY, TRANSACTION_KEY):
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["g"])
            eventually(lambda request=request: not wire.request(request).coordinators[0].error_code, "coordinators")
        for listing in (ListGroupsRequest(), ListTransactionsRequest()):
            eventually(lambda listing=listing: not wire.request(listing).error_code, "all of them to be loaded")
    return node


@pytest.fixture
def wire(refusing: Node) -> Iterator[Wire]:
    with refusing.wire() as opened:
        yield opened


def move(wire: Wire, path: str, topic: str) -> int:
    rows = [AlterReplicaLogDirTopic(name=topic, partitions=[0])]
    answer = wire.request(AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=rows)]))
    return int(answer.results[0].partitions[0].error_code)


def test_a_replica_is_not_moved_to_a_directory_that_is_not_configured_nor_is_one_that_is_not_here(wire: Wire) -> None:
    (directory,) = wire.request(DescribeLogDirsRequest(topics=None)).results
    assert move(wire, "/nowhere", TOPIC) == ErrorCode.LOG_DIR_NOT_FOUND
    assert move(wire, directory.log_dir, NOWHERE) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert move(wire, directory.log_dir, TOPIC) == ErrorCode.NONE


def test_records_of_a_compacted_topic_are_not_deleted(wire: Wire) -> None:
    rows = DeleteRecordsTopic(name="compacted", partitions=[DeleteRecordsPartition(partition_index=0, offset=0)])
    answer = wire.request(DeleteRecordsRequest(topics=[rows], timeout_ms=5_000))
    assert answer.topics[0].partitions[0].error_code == ErrorCode.POLICY_VIOLATION


def test_a_coordinator_of_a_kind_that_does_not_exist(wire: Wire) -> None:
    answer = wire.request(FindCoordinatorRequest(key_type=NO_KEY, coordinator_keys=["k"]))
    assert answer.coordinators[0].error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("version", "expected"), [(9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (10, ErrorCode.UNKNOWN_TOPIC_ID)]
)
def test_an_offset_of_a_topic_that_is_not_there_is_not_committed(wire: Wire, version: int, expected: ErrorCode) -> None:
    rows = [OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
    topics = [OffsetCommitRequestTopic(name=NOWHERE, topic_id=UNKNOWN_ID, partitions=rows)]
    answer = wire.request(OffsetCommitRequest(group_id="g", topics=topics), version)
    assert [p.error_code for p in answer.topics[0].partitions] == [expected]


def test_an_offset_of_a_topic_id_that_is_not_there_is_not_fetched(wire: Wire) -> None:
    topics = [OffsetFetchRequestTopics(topic_id=UNKNOWN_ID, partition_indexes=[0])]
    answer = wire.request(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)]), 10)
    assert answer.groups[0].topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_an_offset_of_a_partition_that_is_not_there_is_not_deleted(wire: Wire) -> None:
    kept = [OffsetCommitRequestTopic(name=TOPIC, partitions=[OffsetCommitRequestPartition(partition_index=0)])]
    committed = wire.request(OffsetCommitRequest(group_id="deleting", topics=kept), 9)
    assert committed.topics[0].partitions[0].error_code == ErrorCode.NONE
    rows = [PartitionIndex(partition_index=index) for index in (0, 7)]
    request = OffsetDeleteRequest(group_id="deleting", topics=[OffsetDeleteRequestTopic(name=TOPIC, partitions=rows)])
    answer = wire.request(request)
    codes = {p.partition_index: p.error_code for topic in answer.topics for p in topic.partitions}
    assert codes == {0: ErrorCode.NONE, 7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_a_member_that_does_not_say_its_protocol_is_not_synced(wire: Wire) -> None:
    request = SyncGroupRequest(group_id="g", member_id="m", protocol_type=None, protocol_name=None)
    assert wire.request(request, 5).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def producer(wire: Wire, transactional_id: str) -> Any:
    answer = wire.request(InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000), 4)
    assert answer.error_code == ErrorCode.NONE
    return answer


def test_one_partition_that_is_not_there_keeps_all_of_its_request_out_of_the_transaction(wire: Wire) -> None:
    made = producer(wire, "adds")
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="adds",
        v3_and_below_producer_id=made.producer_id,
        v3_and_below_producer_epoch=made.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[0, 5])],
    )
    (topic,) = wire.request(request, 3).results_by_topic_v3_and_below
    codes = {row.partition_index: row.partition_error_code for row in topic.results_by_partition}
    assert codes == {0: ErrorCode.OPERATION_NOT_ATTEMPTED, 5: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize(
    ("version", "expected"), [(3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (6, ErrorCode.UNKNOWN_TOPIC_ID)]
)
def test_an_offset_of_a_topic_that_is_not_there_is_in_no_transaction(
    wire: Wire, version: int, expected: ErrorCode
) -> None:
    made = producer(wire, "commits")
    rows = [TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
    request = TxnOffsetCommitRequest(
        transactional_id="commits",
        group_id="g",
        producer_id=made.producer_id,
        producer_epoch=made.producer_epoch,
        topics=[TxnOffsetCommitRequestTopic(name=NOWHERE, topic_id=UNKNOWN_ID, partitions=rows)],
    )
    assert wire.request(request, version).topics[0].partitions[0].error_code == expected
