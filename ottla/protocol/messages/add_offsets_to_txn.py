"""AddOffsetsToTxn: add a group's offsets to a transaction (KIP-98)."""

from __future__ import annotations

from ottla.protocol.schema import api_message, int16, int32, int64


@api_message(25)
class AddOffsetsToTxnRequest:
    transactional_id: str = ""
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    group_id: str = ""


@api_message(25)
class AddOffsetsToTxnResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
