"""DescribeProducers (61): the producers with state in partitions that this broker has (KIP-664).

A follower answers from its own replica, as Kafka's does: `kafka-transactions.sh describe-producers --broker-id` compares
replicas that way. The client asks the leader unless it names a broker.

Errors:
    INVALID_TOPIC_EXCEPTION  no topic may have the name
"""

from __future__ import annotations

from ottla.broker.components import BrokerComponents
from ottla.controller.metadata.topic_names import is_valid_topic_name
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ottla.protocol.primitives import ZERO_UUID
from ottla.server.network.context import RequestContext


def handle(
    broker: BrokerComponents, request: DescribeProducersRequest, context: RequestContext
) -> DescribeProducersResponse:
    response = DescribeProducersResponse()
    for topic in request.topics:
        partitions = []
        for index in topic.partition_indexes:
            answer = PartitionResponse(partition_index=index)
            try:
                if not is_valid_topic_name(topic.name):
                    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
                log = broker.replicas.lookup(topic.name, ZERO_UUID, index).local_log(-1, require_leader=False)
                answer.active_producers = [
                    ProducerState(
                        producer_id=p.producer_id,
                        producer_epoch=p.epoch,
                        last_sequence=p.last_sequence,
                        last_timestamp=p.last_timestamp,
                        coordinator_epoch=p.coordinator_epoch,
                        current_txn_start_offset=p.current_txn_first_offset,
                    )
                    for p in log.producers
                ]
            except KafkaError as error:
                answer.error_code = error.code
                answer.error_message = error.own_words
            partitions.append(answer)
        response.topics.append(TopicResponse(name=topic.name, partitions=partitions))
    return response
