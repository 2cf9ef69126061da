"""ListConfigResources: resources that have configuration of their own.

v0 lists client metrics only (KIP-1000); v1 takes resource types (KIP-1142).
"""

from __future__ import annotations

from ottla.protocol.schema import api_message, int8, int16, int32, struct, v


@api_message(74)
class ListConfigResourcesRequest:
    resource_types: list[int8] = v("1+", default=[])


@struct
class ConfigResource:
    resource_name: str = ""
    resource_type: int8 = v("1+", default=16, ignorable=True)


@api_message(74)
class ListConfigResourcesResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    config_resources: list[ConfigResource] = v(default=[])
