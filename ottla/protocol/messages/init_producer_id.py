"""InitProducerId: get a producer id and epoch, fencing older producers of a transactional id.

v3 can resume with id and epoch (KIP-360); v6 is for two-phase commit and unstable (KIP-939).
"""

from __future__ import annotations

from ottla.protocol.schema import api_message, int16, int32, int64, v


@api_message(22)
class InitProducerIdRequest:
    transactional_id: str | None = ""
    transaction_timeout_ms: int32 = 0
    producer_id: int64 = v("3+", default=-1)
    producer_epoch: int16 = v("3+", default=-1)
    enable_2pc: bool = v("6+", default=False)
    keep_prepared_txn: bool = v("6+", default=False)


@api_message(22)
class InitProducerIdResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    producer_id: int64 = -1
    producer_epoch: int16 = 0
    ongoing_txn_producer_id: int64 = v("6+", default=-1)
    ongoing_txn_producer_epoch: int16 = v("6+", default=-1)
