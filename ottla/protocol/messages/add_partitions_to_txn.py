"""AddPartitionsToTxn: add partitions to a transaction, or verify that they are in it.

Clients use v0-3; v4 batches transactions and can verify only, for brokers (KIP-890).
"""

from __future__ import annotations

from ottla.protocol.schema import api_message, int16, int32, int64, struct, v


@struct
class AddPartitionsToTxnTopic:
    name: str = ""
    partitions: list[int32] = v(default=[])


@struct
class AddPartitionsToTxnTransaction:
    transactional_id: str = ""
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    verify_only: bool = False
    topics: list[AddPartitionsToTxnTopic] = v(default=[])


@api_message(24)
class AddPartitionsToTxnRequest:
    transactions: list[AddPartitionsToTxnTransaction] = v("4+", default=[])
    v3_and_below_transactional_id: str = v("0-3", default="")
    v3_and_below_producer_id: int64 = v("0-3", default=0)
    v3_and_below_producer_epoch: int16 = v("0-3", default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = v("0-3", default=[])


@struct
class AddPartitionsToTxnPartitionResult:
    partition_index: int32 = 0
    partition_error_code: int16 = 0


@struct
class AddPartitionsToTxnTopicResult:
    name: str = ""
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = v(default=[])


@struct
class AddPartitionsToTxnResult:
    transactional_id: str = ""
    topic_results: list[AddPartitionsToTxnTopicResult] = v(default=[])


@api_message(24)
class AddPartitionsToTxnResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = v("4+", default=0, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = v("4+", default=[])
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = v("0-3", default=[])
