"""DeleteGroups: delete empty groups (KIP-229).

v3 adds error messages.
"""

from __future__ import annotations

from ottla.protocol.schema import api_message, int16, int32, struct, v


@api_message(42)
class DeleteGroupsRequest:
    groups_names: list[str] = v(default=[])


@struct
class DeletableGroupResult:
    group_id: str = ""
    error_code: int16 = 0
    error_message: str | None = v("3+", default=None, ignorable=True)


@api_message(42)
class DeleteGroupsResponse:
    throttle_time_ms: int32 = 0
    results: list[DeletableGroupResult] = v(default=[])
