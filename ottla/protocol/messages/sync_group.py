"""SyncGroup: the leader of a classic group hands in the assignment, every member gets its part.

v3 adds group instance id (KIP-345); v5 protocol type and name (KIP-559).
"""

from __future__ import annotations

from ottla.protocol.schema import api_message, int16, int32, struct, v


@struct
class SyncGroupRequestAssignment:
    member_id: str = ""
    assignment: bytes = b""


@api_message(14)
class SyncGroupRequest:
    group_id: str = ""
    generation_id: int32 = 0
    member_id: str = ""
    group_instance_id: str | None = v("3+", default=None)
    protocol_type: str | None = v("5+", default=None, ignorable=True)
    protocol_name: str | None = v("5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = v(default=[])


@api_message(14)
class SyncGroupResponse:
    throttle_time_ms: int32 = v("1+", default=0, ignorable=True)
    error_code: int16 = 0
    protocol_type: str | None = v("5+", default=None, ignorable=True)
    protocol_name: str | None = v("5+", default=None, ignorable=True)
    assignment: bytes = b""
