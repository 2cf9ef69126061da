"""AlterClientQuotas: set or remove client quotas (KIP-546)."""

from __future__ import annotations

from ottla.protocol.messages.shared_structs import EntityData
from ottla.protocol.schema import api_message, float64, int16, int32, struct, v


@struct
class OpData:
    key: str = ""
    value: float64 = 0.0
    remove: bool = False


@struct
class EntryDataRequest:
    entity: list[EntityData] = v(default=[])
    ops: list[OpData] = v(default=[])


@api_message(49)
class AlterClientQuotasRequest:
    entries: list[EntryDataRequest] = v(default=[])
    validate_only: bool = False


@struct
class EntryDataResponse:
    error_code: int16 = 0
    error_message: str | None = ""
    entity: list[EntityData] = v(default=[])


@api_message(49)
class AlterClientQuotasResponse:
    throttle_time_ms: int32 = 0
    entries: list[EntryDataResponse] = v(default=[])
