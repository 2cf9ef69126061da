"""UnregisterController: forget a controller that will not come back (KIP-1312)."""

from __future__ import annotations

from ottla.protocol.schema import int16, int32, message


@message(key=94, versions="0", flexible="0+")
class UnregisterControllerRequest:
    controller_id: int32 = 0


@message(key=94, versions="0", flexible="0+")
class UnregisterControllerResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
