"""Key and value of the records in `__transaction_state`; v1 of the value came with transaction.version 1 (KIP-890)."""

from __future__ import annotations

from ottla.protocol.internal_topics.coordinator_records import RecordTypes
from ottla.protocol.schema import int8, int16, int32, int64, message, struct, v


@message(key=0, versions="0", flexible="none")
class TransactionLogKey:
    transactional_id: str = ""


@struct
class PartitionsSchema:
    topic: str = ""
    partition_ids: list[int32] = v(default=[])


@message(key=0, versions="0-1", flexible="1+")
class TransactionLogValue:
    producer_id: int64 = 0
    previous_producer_id: int64 = v("1+", tag=0, default=-1)
    next_producer_id: int64 = v("1+", tag=1, default=-1)
    producer_epoch: int16 = 0
    next_producer_epoch: int16 = v("1+", tag=3, default=-1)
    transaction_timeout_ms: int32 = 0
    transaction_status: int8 = 0
    transaction_partitions: list[PartitionsSchema] | None = v(default=[])
    transaction_last_update_timestamp_ms: int64 = 0
    transaction_start_timestamp_ms: int64 = 0
    client_transaction_version: int16 = v("1+", tag=2, default=0)


TRANSACTION_RECORDS: RecordTypes = {
    0: (TransactionLogKey, TransactionLogValue),
}
