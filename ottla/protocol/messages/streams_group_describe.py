"""StreamsGroupDescribe: streams groups, their topology and members (KIP-1071).

v1 adds descriptions of the topology (KIP-1331) and the assignor (KIP-1357).
"""

from __future__ import annotations

from ottla.protocol.messages.shared_structs import (
    Endpoint,
    KeyValue,
    TaskIds,
    TaskOffset,
    TopicInfo,
    TopologyDescription,
)
from ottla.protocol.schema import api_message, int8, int16, int32, struct, v


@api_message(89)
class StreamsGroupDescribeRequest:
    group_ids: list[str] = v(default=[])
    include_authorized_operations: bool = False
    include_topology_description: bool = v("1+", default=False)


@struct
class Subtopology:
    subtopology_id: str = ""
    source_topics: list[str] = v(default=[])
    repartition_sink_topics: list[str] = v(default=[])
    state_changelog_topics: list[TopicInfo] = v(default=[])
    repartition_source_topics: list[TopicInfo] = v(default=[])


@struct
class Topology:
    epoch: int32 = 0
    subtopologies: list[Subtopology] | None = None


@struct
class Assignment:
    active_tasks: list[TaskIds] = v(default=[])
    standby_tasks: list[TaskIds] = v(default=[])
    warmup_tasks: list[TaskIds] = v(default=[])


@struct
class Member:
    member_id: str = ""
    member_epoch: int32 = 0
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topology_epoch: int32 = 0
    process_id: str = ""
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue] = v(default=[])
    task_offsets: list[TaskOffset] = v(default=[])
    task_end_offsets: list[TaskOffset] = v(default=[])
    assignment: Assignment = v(factory=Assignment)
    target_assignment: Assignment = v(factory=Assignment)
    is_classic: bool = False


@struct
class DescribedGroup:
    error_code: int16 = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    group_epoch: int32 = 0
    assignment_epoch: int32 = 0
    topology: Topology | None = None
    members: list[Member] = v(default=[])
    authorized_operations: int32 = -0x8000_0000
    topology_description: TopologyDescription | None = v("1+", default=None)
    topology_description_status: int8 = v("1+", default=0)
    assignor_name: str | None = v("1+", default=None, ignorable=True)


@api_message(89)
class StreamsGroupDescribeResponse:
    throttle_time_ms: int32 = 0
    groups: list[DescribedGroup] = v(default=[])
