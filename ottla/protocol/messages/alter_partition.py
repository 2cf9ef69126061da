"""AlterPartition: a leader asks the controller for another ISR (KIP-497).

v2 is by topic id (KIP-841); v3 adds the broker epochs of the ISR (KIP-903).
"""

from __future__ import annotations

from ottla.protocol.schema import ZERO_UUID, api_message, int8, int16, int32, int64, struct, uuid, v


@struct
class BrokerState:
    broker_id: int32 = 0
    broker_epoch: int64 = -1


@struct
class PartitionDataRequest:
    partition_index: int32 = 0
    leader_epoch: int32 = 0
    new_isr: list[int32] = v("0-2", default=[])
    new_isr_with_epochs: list[BrokerState] = v("3+", default=[])
    leader_recovery_state: int8 = 0
    partition_epoch: int32 = 0


@struct
class TopicDataRequest:
    topic_id: uuid = ZERO_UUID
    partitions: list[PartitionDataRequest] = v(default=[])


@api_message(56)
class AlterPartitionRequest:
    broker_id: int32 = 0
    broker_epoch: int64 = -1
    topics: list[TopicDataRequest] = v(default=[])


@struct
class PartitionDataResponse:
    partition_index: int32 = 0
    error_code: int16 = 0
    leader_id: int32 = 0
    leader_epoch: int32 = 0
    isr: list[int32] = v(default=[])
    leader_recovery_state: int8 = 0
    partition_epoch: int32 = 0


@struct
class TopicDataResponse:
    topic_id: uuid = ZERO_UUID
    partitions: list[PartitionDataResponse] = v(default=[])


@api_message(56)
class AlterPartitionResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    topics: list[TopicDataResponse] = v(default=[])
