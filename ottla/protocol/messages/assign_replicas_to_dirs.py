"""AssignReplicasToDirs: a broker reports to the controller which log directories its replicas are in (KIP-858)."""

from __future__ import annotations

from ottla.protocol.messages.shared_structs import PartitionErrorCode, PartitionIndex
from ottla.protocol.schema import ZERO_UUID, api_message, int16, int32, int64, struct, uuid, v


@struct
class TopicDataRequest:
    topic_id: uuid = ZERO_UUID
    partitions: list[PartitionIndex] = v(default=[])


@struct
class DirectoryDataRequest:
    id: uuid = ZERO_UUID
    topics: list[TopicDataRequest] = v(default=[])


@api_message(73)
class AssignReplicasToDirsRequest:
    broker_id: int32 = 0
    broker_epoch: int64 = -1
    directories: list[DirectoryDataRequest] = v(default=[])


@struct
class TopicDataResponse:
    topic_id: uuid = ZERO_UUID
    partitions: list[PartitionErrorCode] = v(default=[])


@struct
class DirectoryDataResponse:
    id: uuid = ZERO_UUID
    topics: list[TopicDataResponse] = v(default=[])


@api_message(73)
class AssignReplicasToDirsResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    directories: list[DirectoryDataResponse] = v(default=[])
