"""UnregisterController: forget a controller that will not come back (KIP-1312)."""

from __future__ import annotations

from ottla.protocol.schema import api_message, int16, int32


@api_message(94)
class UnregisterControllerRequest:
    controller_id: int32 = 0


@api_message(94)
class UnregisterControllerResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
