"""StreamsGroupHeartbeat: membership, topology and tasks in a streams group (KIP-1071).

v1 can ask for a description of the topology (KIP-1331).
"""

from __future__ import annotations

from ottla.protocol.messages.shared_structs import (
    Endpoint,
    KeyValue,
    Subtopology,
    TaskIds,
    TaskOffset,
    TopicNamePartitions,
)
from ottla.protocol.schema import api_message, int8, int16, int32, int64, struct, v


@struct
class Topology:
    epoch: int32 = 0
    subtopologies: list[Subtopology] = v(default=[])


@api_message(88)
class StreamsGroupHeartbeatRequest:
    group_id: str = ""
    member_id: str = ""
    member_epoch: int32 = 0
    endpoint_information_epoch: int32 = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int32 = -1
    topology: Topology | None = None
    active_tasks: list[TaskIds] | None = None
    standby_tasks: list[TaskIds] | None = None
    warmup_tasks: list[TaskIds] | None = None
    process_id: str | None = None
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue] | None = None
    task_offsets: list[TaskOffset] | None = None
    task_end_offsets: list[TaskOffset] | None = None
    shutdown_application: bool = False


@struct
class Status:
    status_code: int8 = 0
    status_detail: str = ""


@struct
class EndpointToPartitions:
    user_endpoint: Endpoint = v(factory=Endpoint)
    active_partitions: list[TopicNamePartitions] = v(default=[])
    standby_partitions: list[TopicNamePartitions] = v(default=[])


@api_message(88)
class StreamsGroupHeartbeatResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = None
    member_id: str = ""
    member_epoch: int32 = 0
    heartbeat_interval_ms: int32 = 0
    acceptable_recovery_lag_legacy: int32 = v("0", default=0)
    task_offset_interval_ms: int32 = 0
    acceptable_recovery_lag: int64 = v("1+", default=-1, ignorable=True)
    status: list[Status] | None = v(default=[])
    active_tasks: list[TaskIds] | None = None
    standby_tasks: list[TaskIds] | None = None
    warmup_tasks: list[TaskIds] | None = None
    topology_description_required: bool = v("1+", default=False)
    endpoint_information_epoch: int32 = 0
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = None
