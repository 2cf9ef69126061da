"""A group's or a transaction's coordinator moves between two running brokers: commands look for it again.

The test plays the brokers.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from ottla.client.cluster import ClusterClient, Leaders
from ottla.client.group_offsets import commit_offsets
from ottla.client.groups import delete_groups, describe_group, share_positions
from ottla.mirror.transaction import LaneProducer
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from ottla.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from ottla.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsResponse
from ottla.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
)
from ottla.protocol.messages.end_txn import EndTxnResponse
from ottla.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ottla.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse, OffsetCommitResponseTopic
from ottla.protocol.messages.shared_structs import PartitionErrorCode
from tests.manual_clock import ManualClock

OLD, NEW = 1, 2


def response_to(request: object, error: ErrorCode) -> object:
    match type(request).__name__:
        case "ListGroupsRequest":
            return ListGroupsResponse(groups=[ListedGroup(group_id="g", group_type="classic")])
        case "DescribeGroupsRequest":
            return DescribeGroupsResponse(groups=[DescribedGroup(error_code=error, group_id="g", group_state="Empty")])
        case "DeleteGroupsRequest":
            return DeleteGroupsResponse(results=[DeletableGroupResult(group_id="g", error_code=error)])
        case "DescribeShareGroupOffsetsRequest":
            group = DescribeShareGroupOffsetsResponseGroup(group_id="g", error_code=error)
            return DescribeShareGroupOffsetsResponse(groups=[group])
        case "OffsetCommitRequest":
            rows = [PartitionErrorCode(partition_index=0, error_code=error)]
            asked = cast(OffsetCommitRequest, request).topics
            return OffsetCommitResponse(
                topics=[OffsetCommitResponseTopic(topic.name, partitions=rows) for topic in asked]
            )
        case "InitProducerIdRequest":
            return InitProducerIdResponse(producer_id=7, producer_epoch=0)
        case "AddPartitionsToTxnRequest":
            row = AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=error)
            topic = AddPartitionsToTxnTopicResult(name="t", results_by_partition=[row])
            return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[topic])
        case "EndTxnRequest":
            return EndTxnResponse(error_code=error)
    raise AssertionError(f"{request} was not expected")


class Brokers(ClusterClient):
    """FindCoordinator names OLD until a request there was rejected with `error`."""

    def __init__(self, error: ErrorCode = ErrorCode.NOT_COORDINATOR) -> None:
        super().__init__(cast(Any, SimpleNamespace(clock=ManualClock())), [], 5_000)
        self.named, self.error = OLD, error
        self.asked: list[int | None] = []

    async def request(
        self, request: object, node: int | None = None, *, version: int | None = None, timeout_ms: int | None = None
    ) -> Any:
        if isinstance(request, FindCoordinatorRequest):
            return FindCoordinatorResponse(coordinators=[Coordinator(key="g", node_id=self.named, host="h", port=1)])
        if not isinstance(request, ListGroupsRequest):
            self.asked.append(node)
        response = response_to(request, ErrorCode.NONE if node == NEW else self.error)
        if type(request) not in (ListGroupsRequest, InitProducerIdRequest):
            self.named = NEW
        return response


def test_a_group_is_described_by_the_coordinator_that_it_has_moved_to() -> None:
    brokers = Brokers()
    assert asyncio.run(describe_group(brokers, "g")).state == "Empty"
    assert brokers.asked == [OLD, NEW]


def test_offsets_are_committed_while_the_new_coordinator_still_loads_its_log() -> None:
    brokers = Brokers(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    asyncio.run(commit_offsets(brokers, "g", {("t", 0): 5}))
    assert brokers.asked == [OLD, NEW]


def test_a_commit_of_no_offsets_is_no_failure() -> None:
    asyncio.run(commit_offsets(Brokers(), "g", {}))


def test_a_group_is_deleted_and_a_share_groups_positions_are_read_wherever_their_coordinator_is() -> None:
    deleting, reading = Brokers(), Brokers()
    asyncio.run(delete_groups(deleting, ["g"]))
    asyncio.run(share_positions(reading, "g"))
    assert deleting.asked == reading.asked == [OLD, NEW]


def test_a_mirrors_transaction_goes_on_at_the_coordinator_that_its_id_has_moved_to() -> None:
    """The command asked the former coordinator again and again, until the time limit of the transaction."""
    brokers = Brokers()

    async def run() -> None:
        producer = LaneProducer(brokers, Leaders(brokers, []), "lane")
        await producer.start()
        brokers.asked.clear()
        await producer.begin([("t", 0)])
        await producer.end(commit=True)

    asyncio.run(asyncio.wait_for(run(), 30))
    assert brokers.asked == [OLD, NEW, NEW]
