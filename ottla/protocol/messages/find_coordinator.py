"""FindCoordinator: which broker coordinates a group, transactional id or share partition.

v1 adds the key type; v4 many keys at once (KIP-699); v6 share groups, key group:topic id:partition (KIP-932).
"""

from __future__ import annotations

from ottla.protocol.schema import api_message, int8, int16, int32, struct, v


@api_message(10)
class FindCoordinatorRequest:
    key: str = v("0-3", default="")
    key_type: int8 = v("1+", default=0)
    coordinator_keys: list[str] = v("4+", default=[])


@struct
class Coordinator:
    key: str = ""
    node_id: int32 = 0
    host: str = ""
    port: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""


@api_message(10)
class FindCoordinatorResponse:
    throttle_time_ms: int32 = v("1+", default=0, ignorable=True)
    error_code: int16 = v("0-3", default=0)
    error_message: str | None = v("1-3", default="", ignorable=True)
    node_id: int32 = v("0-3", default=0)
    host: str = v("0-3", default="")
    port: int32 = v("0-3", default=0)
    coordinators: list[Coordinator] = v("4+", default=[])
