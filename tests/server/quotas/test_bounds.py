"""A bound rejects what is above it, and counts that; existing state is still served."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.join_group import JoinGroupRequest
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.shared_structs import ClassicProtocol
from ottla.server.client_bounds import GROUPS, Bound, bound_metrics
from tests.broker.conftest import eventually, start_node, stop_node
from tests.broker.records import batch


def test_a_bound_refuses_and_says_so_ever_more_rarely(caplog: pytest.LogCaptureFixture) -> None:
    bound = Bound(GROUPS, 2)
    bound.check(1, "group a")
    for _ in range(100):
        with pytest.raises(KafkaError) as refused:
            bound.check(2, "group b")
        assert refused.value.code == ErrorCode.POLICY_VIOLATION
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 7 and "group b the last" in warnings[0].getMessage()
    (family,) = bound_metrics([bound])
    assert [(sample.labels, sample.value) for sample in family.samples] == [({"property": GROUPS}, 100)]


def test_groups_and_ids_above_the_bounds_of_a_node_are_refused(tmp_path: Path) -> None:
    node = start_node(
        tmp_path,
        ottla_groups_per_partition_max="1",
        ottla_transactional_ids_per_partition_max="1",
        ottla_producer_ids_per_partition_max="2",
        offsets_topic_num_partitions="1",
        transaction_state_log_num_partitions="1",
    )
    try:
        node.create("t")
        with node.wire() as wire:

            def commit(group: str) -> ErrorCode:
                partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
                topics = [OffsetCommitRequestTopic(name="t", partitions=[partition])]
                answer = wire.request(OffsetCommitRequest(group_id=group, topics=topics), 7)
                return ErrorCode(answer.topics[0].partitions[0].error_code)

            def join(group: str) -> ErrorCode:
                request = JoinGroupRequest(
                    group_id=group,
                    session_timeout_ms=30_000,
                    rebalance_timeout_ms=30_000,
                    protocol_type="consumer",
                    protocols=[ClassicProtocol("range", b"")],
                )
                return ErrorCode(wire.request(request, 7).error_code)

            def begin(transactional_id: str) -> ErrorCode:
                request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=10_000)
                return ErrorCode(wire.request(request, 4).error_code)

            def produce(producer_id: int, sequence: int = 0) -> ErrorCode:
                records = batch([b"v"], producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
                data = [PartitionProduceData(index=0, records=records)]
                request = ProduceRequest(
                    acks=1, timeout_ms=5_000, topic_data=[TopicProduceData(name="t", partition_data=data)]
                )
                return ErrorCode(wire.request(request, 9).responses[0].partition_responses[0].error_code)

            assert [produce(each) for each in (1, 2, 3)] == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.POLICY_VIOLATION]
            assert produce(1, 1) == ErrorCode.NONE
            assert produce(-1, -1) == ErrorCode.NONE  # a producer without idempotence is not remembered
            for kind, key in enumerate(("first", "first")):
                wire.request(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), 4)
            eventually(lambda: commit("first") == ErrorCode.NONE, "the group's coordinator")
            assert commit("second") == ErrorCode.POLICY_VIOLATION
            assert join("second") == ErrorCode.POLICY_VIOLATION
            assert commit("first") == ErrorCode.NONE
            assert join("first") == ErrorCode.MEMBER_ID_REQUIRED
            eventually(lambda: begin("first") == ErrorCode.NONE, "the transaction's coordinator")
            assert begin("second") == ErrorCode.POLICY_VIOLATION
            assert begin("first") == ErrorCode.NONE
    finally:
        stop_node(node)
