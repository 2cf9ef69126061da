"""ListGroups: the groups that a broker coordinates.

v4 adds states (KIP-518); v5 types (KIP-848).
"""

from __future__ import annotations

from ottla.protocol.schema import api_message, int16, int32, struct, v


@api_message(16)
class ListGroupsRequest:
    states_filter: list[str] = v("4+", default=[])
    types_filter: list[str] = v("5+", default=[])


@struct
class ListedGroup:
    group_id: str = ""
    protocol_type: str = ""
    group_state: str = v("4+", default="", ignorable=True)
    group_type: str = v("5+", default="", ignorable=True)


@api_message(16)
class ListGroupsResponse:
    throttle_time_ms: int32 = v("1+", default=0, ignorable=True)
    error_code: int16 = 0
    groups: list[ListedGroup] = v(default=[])
