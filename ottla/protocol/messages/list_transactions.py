"""ListTransactions: the transactional ids that a broker coordinates (KIP-664).

v1 can filter by duration (KIP-994); v2 by pattern (KIP-1152).
"""

from __future__ import annotations

from ottla.protocol.schema import api_message, int16, int32, int64, struct, v


@api_message(66)
class ListTransactionsRequest:
    state_filters: list[str] = v(default=[])
    producer_id_filters: list[int64] = v(default=[])
    duration_filter: int64 = v("1+", default=-1)
    transactional_id_pattern: str | None = v("2+", default=None)


@struct
class TransactionState:
    transactional_id: str = ""
    producer_id: int64 = 0
    transaction_state: str = ""


@api_message(66)
class ListTransactionsResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    unknown_state_filters: list[str] = v(default=[])
    transaction_states: list[TransactionState] = v(default=[])
