"""DescribeGroups: state and members of classic groups.

v3 adds authorized operations (KIP-430); v4 instance ids (KIP-345); v6 reports unknown groups by error code (KIP-1043).
"""

from __future__ import annotations

from ottla.protocol.schema import api_message, int16, int32, struct, v


@api_message(15)
class DescribeGroupsRequest:
    groups: list[str] = v(default=[])
    include_authorized_operations: bool = v("3+", default=False)


@struct
class DescribedGroupMember:
    member_id: str = ""
    group_instance_id: str | None = v("4+", default=None, ignorable=True)
    client_id: str = ""
    client_host: str = ""
    member_metadata: bytes = b""
    member_assignment: bytes = b""


@struct
class DescribedGroup:
    error_code: int16 = 0
    error_message: str | None = v("6+", default=None)
    group_id: str = ""
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: list[DescribedGroupMember] = v(default=[])
    authorized_operations: int32 = v("3+", default=-0x8000_0000)


@api_message(15)
class DescribeGroupsResponse:
    throttle_time_ms: int32 = v("1+", default=0, ignorable=True)
    groups: list[DescribedGroup] = v(default=[])
