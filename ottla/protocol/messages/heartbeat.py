"""Heartbeat: a member of a classic group is alive.

v3 adds group instance id (KIP-345).
"""

from __future__ import annotations

from ottla.protocol.schema import api_message, int16, int32, v


@api_message(12)
class HeartbeatRequest:
    group_id: str = ""
    generation_id: int32 = 0
    member_id: str = ""
    group_instance_id: str | None = v("3+", default=None)


@api_message(12)
class HeartbeatResponse:
    throttle_time_ms: int32 = v("1+", default=0, ignorable=True)
    error_code: int16 = 0
