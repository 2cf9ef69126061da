"""EndTxn: commit or abort a transaction.

v5 bumps the epoch with every transaction and returns it (KIP-890).
"""

from __future__ import annotations

from ottla.protocol.schema import api_message, int16, int32, int64, v


@api_message(26)
class EndTxnRequest:
    transactional_id: str = ""
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    committed: bool = False


@api_message(26)
class EndTxnResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    producer_id: int64 = v("5+", default=-1, ignorable=True)
    producer_epoch: int16 = v("5+", default=-1, ignorable=True)
