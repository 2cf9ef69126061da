"""The Produce response of partitions that reject the records: error, failed records, and the current leader (KIP-951)."""

from __future__ import annotations

from ottla.broker.components import BrokerComponents
from ottla.broker.metadata_cache import LEADER_MOVED
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.protocol.messages.shared_structs import LeaderIdAndEpoch, NodeEndpoint
from ottla.protocol.primitives import ZERO_UUID
from ottla.server.network.context import RequestContext
from ottla.storage.errors import StorageFailure

#: Errors that are explained to producers, who show it in their logs: failed validations and transactions that cannot be verified, as
#: in Kafka, and our own bounds. Of all others Kafka sends the code alone.
EXPLAINED = (
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.POLICY_VIOLATION,
)


def reject_all(request: ProduceRequest, error: ErrorCode) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(index=data.index, error_code=error, base_offset=-1)
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def rejected(
    broker: BrokerComponents,
    topic_data: TopicProduceData,
    index: int,
    failure: KafkaError | StorageFailure,
    api_version: int,
) -> PartitionProduceResponse:
    """Returns the response of a partition that rejects the records, and counts the failure."""
    _count_failure(broker, topic_data, index)
    error = failure if isinstance(failure, KafkaError) else KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
    response = PartitionProduceResponse(
        index=index,
        error_code=error.code,
        base_offset=-1,
        error_message=error.message if error.code in EXPLAINED else None,
    )
    record_errors = getattr(error, "record_errors", None)
    if record_errors:
        response.record_errors = [
            BatchIndexAndErrorMessage(batch_index=i, batch_index_error_message=text) for i, text in record_errors
        ]
    if api_version >= 10 and error.code in LEADER_MOVED:
        topic_id = topic_data.topic_id
        name = topic_data.name if topic_id == ZERO_UUID else broker.metadata.topic_name(topic_id) or ""
        leader_id, leader_epoch = broker.metadata.leader_and_epoch(name, index)
        response.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
    return response


def _count_failure(broker: BrokerComponents, topic_data: TopicProduceData, index: int) -> None:
    topic = topic_data.name if topic_data.topic_id == ZERO_UUID else broker.metadata.topic_name(topic_data.topic_id)
    partition = broker.replicas.get(topic or "", index)
    if partition is not None:
        partition.failed_appends += 1


def add_endpoints(broker: BrokerComponents, answer: ProduceResponse, context: RequestContext) -> None:
    """Adds the addresses of the leaders that the partitions name (KIP-951)."""
    leaders = {
        partition.current_leader.leader_id
        for topic in answer.responses
        for partition in topic.partition_responses
        if partition.error_code in LEADER_MOVED
    }
    for node_id in sorted(leaders - {-1}):
        endpoint = broker.metadata.endpoint(node_id, context)
        if endpoint is not None:
            answer.node_endpoints.append(
                NodeEndpoint(node_id=node_id, host=endpoint.host, port=endpoint.port, rack=endpoint.rack)
            )
