"""OffsetForLeaderEpoch (23): where a leader epoch ended, for clients and followers that look for their divergence (KIP-320).

v3 replica_id · v4 flexible. Only the leader responds, also to a debugging consumer (replica_id -2).
"""

from __future__ import annotations

from ottla.broker.components import BrokerComponents
from ottla.protocol.errors import KafkaError
from ottla.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from ottla.protocol.primitives import ZERO_UUID
from ottla.server.network.context import RequestContext


def handle(
    broker: BrokerComponents, request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    response = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        answers = []
        for asked in topic.partitions:
            answer = EpochEndOffset(partition=asked.partition)
            try:
                partition = broker.replicas.lookup(topic.topic, ZERO_UUID, asked.partition)
                log = partition.local_log(asked.current_leader_epoch, require_leader=True)
                answer.leader_epoch, answer.end_offset = log.end_offset_for_epoch(asked.leader_epoch)
            except KafkaError as error:
                answer.error_code = error.code
            answers.append(answer)
        response.topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers))
    return response
