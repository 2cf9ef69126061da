"""ConsumerGroupDescribe: groups of the consumer protocol and their members (KIP-848).

v1 adds the member type (KIP-1099).
"""

from __future__ import annotations

from ottla.protocol.messages.shared_structs import Assignment
from ottla.protocol.schema import api_message, int8, int16, int32, struct, v


@api_message(69)
class ConsumerGroupDescribeRequest:
    group_ids: list[str] = v(default=[])
    include_authorized_operations: bool = False


@struct
class Member:
    member_id: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    member_epoch: int32 = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = v(default=[])
    subscribed_topic_regex: str | None = None
    assignment: Assignment = v(factory=Assignment)
    target_assignment: Assignment = v(factory=Assignment)
    member_type: int8 = v("1+", default=-1, ignorable=True)


@struct
class DescribedGroup:
    error_code: int16 = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    group_epoch: int32 = 0
    assignment_epoch: int32 = 0
    assignor_name: str = ""
    members: list[Member] = v(default=[])
    authorized_operations: int32 = -0x8000_0000


@api_message(69)
class ConsumerGroupDescribeResponse:
    throttle_time_ms: int32 = 0
    groups: list[DescribedGroup] = v(default=[])
