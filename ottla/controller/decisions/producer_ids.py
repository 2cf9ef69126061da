"""AllocateProducerIds: brokers get producer ids in blocks (KIP-730), so that no id is used twice, also across controllers."""

from __future__ import annotations

from ottla.controller.decisions.control_state import ControlState
from ottla.controller.decisions.outcome import Outcome
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.metadata_records import ProducerIdsRecord
from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

PRODUCER_ID_BLOCK_SIZE = 1_000
_PRODUCER_ID_MAX = (1 << 63) - 1


def allocate_producer_ids(
    state: ControlState, request: AllocateProducerIdsRequest
) -> Outcome[AllocateProducerIdsResponse]:
    state.check_broker_epoch(request.broker_id, request.broker_epoch)
    start = max(state.image.producer_ids.next_producer_id, 0)
    if start > _PRODUCER_ID_MAX - PRODUCER_ID_BLOCK_SIZE:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids of 63 bits have been handed out.")
    record = ProducerIdsRecord(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        next_producer_id=start + PRODUCER_ID_BLOCK_SIZE,
    )
    response = AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=PRODUCER_ID_BLOCK_SIZE)
    return Outcome([record], response)
