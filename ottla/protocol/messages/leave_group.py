"""LeaveGroup: leave a classic group.

v3 takes many members at once, also by instance id (KIP-345); v5 adds a reason (KIP-800).
"""

from __future__ import annotations

from ottla.protocol.schema import api_message, int16, int32, struct, v


@struct
class MemberIdentity:
    member_id: str = ""
    group_instance_id: str | None = None
    reason: str | None = v("5+", default=None, ignorable=True)


@api_message(13)
class LeaveGroupRequest:
    group_id: str = ""
    member_id: str = v("0-2", default="")
    members: list[MemberIdentity] = v("3+", default=[])


@struct
class MemberResponse:
    member_id: str = ""
    group_instance_id: str | None = ""
    error_code: int16 = 0


@api_message(13)
class LeaveGroupResponse:
    throttle_time_ms: int32 = v("1+", default=0, ignorable=True)
    error_code: int16 = 0
    members: list[MemberResponse] = v("3+", default=[])
