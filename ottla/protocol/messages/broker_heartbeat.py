"""BrokerHeartbeat: a broker is alive, wants to be fenced, unfenced or shut down (KIP-631).

v1 adds offline log directories (KIP-858); v2 cordoned ones (KIP-1066).
"""

from __future__ import annotations

from ottla.protocol.schema import api_message, int16, int32, int64, uuid, v


@api_message(63)
class BrokerHeartbeatRequest:
    broker_id: int32 = 0
    broker_epoch: int64 = -1
    current_metadata_offset: int64 = 0
    want_fence: bool = False
    want_shut_down: bool = False
    offline_log_dirs: list[uuid] = v("1+", tag=0, default=[])
    cordoned_log_dirs: list[uuid] | None = v("2+", tag=1, default=None)


@api_message(63)
class BrokerHeartbeatResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool = False
