"""IncrementalAlterConfigs: set, delete, append to and subtract from single configuration values (KIP-339)."""

from __future__ import annotations

from ottla.protocol.messages.shared_structs import AlterConfigsResourceResponse
from ottla.protocol.schema import api_message, int8, int32, struct, v


@struct
class AlterableConfig:
    name: str = ""
    config_operation: int8 = 0
    value: str | None = ""


@struct
class AlterConfigsResource:
    resource_type: int8 = 0
    resource_name: str = ""
    configs: list[AlterableConfig] = v(default=[])


@api_message(44)
class IncrementalAlterConfigsRequest:
    resources: list[AlterConfigsResource] = v(default=[])
    validate_only: bool = False


@api_message(44)
class IncrementalAlterConfigsResponse:
    throttle_time_ms: int32 = 0
    responses: list[AlterConfigsResourceResponse] = v(default=[])
