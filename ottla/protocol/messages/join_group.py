"""JoinGroup: enter a classic group, or rejoin for a new generation.

v1 adds rebalance timeout; v4 makes members come back with the id they were given (KIP-394); v5 group instance id
(KIP-345); v7 protocol type (KIP-559); v8 reason (KIP-800); v9 lets the leader skip assigning (KIP-814).
"""

from __future__ import annotations

from ottla.protocol.messages.shared_structs import ClassicProtocol
from ottla.protocol.schema import api_message, int16, int32, struct, v


@api_message(11)
class JoinGroupRequest:
    group_id: str = ""
    session_timeout_ms: int32 = 0
    rebalance_timeout_ms: int32 = v("1+", default=-1, ignorable=True)
    member_id: str = ""
    group_instance_id: str | None = v("5+", default=None)
    protocol_type: str = ""
    protocols: list[ClassicProtocol] = v(default=[])
    reason: str | None = v("8+", default=None, ignorable=True)


@struct
class JoinGroupResponseMember:
    member_id: str = ""
    group_instance_id: str | None = v("5+", default=None, ignorable=True)
    metadata: bytes = b""


@api_message(11)
class JoinGroupResponse:
    throttle_time_ms: int32 = v("2+", default=0, ignorable=True)
    error_code: int16 = 0
    generation_id: int32 = -1
    protocol_type: str | None = v("7+", default=None, ignorable=True)
    protocol_name: str | None = v(default="", nullable="7+")
    leader: str = ""
    skip_assignment: bool = v("9+", default=False)
    member_id: str = ""
    members: list[JoinGroupResponseMember] = v(default=[])
