"""DescribeClientQuotas: client quotas that match a filter (KIP-546)."""

from __future__ import annotations

from ottla.protocol.messages.shared_structs import EntityData
from ottla.protocol.schema import api_message, float64, int8, int16, int32, struct, v


@struct
class ComponentData:
    entity_type: str = ""
    match_type: int8 = 0
    match: str | None = ""


@api_message(48)
class DescribeClientQuotasRequest:
    components: list[ComponentData] = v(default=[])
    strict: bool = False


@struct
class ValueData:
    key: str = ""
    value: float64 = 0.0


@struct
class EntryData:
    entity: list[EntityData] = v(default=[])
    values: list[ValueData] = v(default=[])


@api_message(48)
class DescribeClientQuotasResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
    entries: list[EntryData] | None = v(default=[])
