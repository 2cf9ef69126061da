"""ShareGroupDescribe: share groups and their members (KIP-932)."""

from __future__ import annotations

from ottla.protocol.messages.shared_structs import Assignment
from ottla.protocol.schema import api_message, int16, int32, struct, v


@api_message(77)
class ShareGroupDescribeRequest:
    group_ids: list[str] = v(default=[])
    include_authorized_operations: bool = False


@struct
class Member:
    member_id: str = ""
    rack_id: str | None = None
    member_epoch: int32 = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = v(default=[])
    assignment: Assignment = v(factory=Assignment)


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


@api_message(77)
class ShareGroupDescribeResponse:
    throttle_time_ms: int32 = 0
    groups: list[DescribedGroup] = v(default=[])
