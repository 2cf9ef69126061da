"""AlterConfigs: replace the whole configuration of resources; superseded by IncrementalAlterConfigs."""

from __future__ import annotations

from ottla.protocol.messages.shared_structs import AlterConfigsResourceResponse
from ottla.protocol.schema import api_message, int8, int32, struct, v


@struct
class AlterableConfig:
    name: str = ""
    value: str | None = ""


@struct
class AlterConfigsResource:
    resource_type: int8 = 0
    resource_name: str = ""
    configs: list[AlterableConfig] = v(default=[])


@api_message(33)
class AlterConfigsRequest:
    resources: list[AlterConfigsResource] = v(default=[])
    validate_only: bool = False


@api_message(33)
class AlterConfigsResponse:
    throttle_time_ms: int32 = 0
    responses: list[AlterConfigsResourceResponse] = v(default=[])
