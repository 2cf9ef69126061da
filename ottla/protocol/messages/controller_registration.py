"""ControllerRegistration: a controller registers with the active controller (KIP-919)."""

from __future__ import annotations

from ottla.protocol.messages.shared_structs import Feature, Listener
from ottla.protocol.schema import ZERO_UUID, api_message, int16, int32, uuid, v


@api_message(70)
class ControllerRegistrationRequest:
    controller_id: int32 = 0
    incarnation_id: uuid = ZERO_UUID
    zk_migration_ready: bool = False
    listeners: list[Listener] = v(default=[])
    features: list[Feature] = v(default=[])


@api_message(70)
class ControllerRegistrationResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
