"""AllocateProducerIds: a broker gets a block of producer ids (KIP-730)."""

from __future__ import annotations

from ottla.protocol.schema import api_message, int16, int32, int64


@api_message(67)
class AllocateProducerIdsRequest:
    broker_id: int32 = 0
    broker_epoch: int64 = -1


@api_message(67)
class AllocateProducerIdsResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    producer_id_start: int64 = 0
    producer_id_len: int32 = 0
