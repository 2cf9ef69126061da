"""DescribeTransactions: state of transactional ids (KIP-664)."""

from __future__ import annotations

from ottla.protocol.messages.shared_structs import TopicNamePartitions
from ottla.protocol.schema import api_message, int16, int32, int64, struct, v


@api_message(65)
class DescribeTransactionsRequest:
    transactional_ids: list[str] = v(default=[])


@struct
class TransactionState:
    error_code: int16 = 0
    transactional_id: str = ""
    transaction_state: str = ""
    transaction_timeout_ms: int32 = 0
    transaction_start_time_ms: int64 = 0
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    topics: list[TopicNamePartitions] = v(default=[])


@api_message(65)
class DescribeTransactionsResponse:
    throttle_time_ms: int32 = 0
    transaction_states: list[TransactionState] = v(default=[])
