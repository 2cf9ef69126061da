"""CreateAcls: add access rules.

v1 adds the pattern type (KIP-290); v3 the user resource type (KIP-373).
"""

from __future__ import annotations

from ottla.protocol.schema import api_message, int8, int16, int32, struct, v


@struct
class AclCreation:
    resource_type: int8 = 0
    resource_name: str = ""
    resource_pattern_type: int8 = v("1+", default=3)
    principal: str = ""
    host: str = ""
    operation: int8 = 0
    permission_type: int8 = 0


@api_message(30)
class CreateAclsRequest:
    creations: list[AclCreation] = v(default=[])


@struct
class AclCreationResult:
    error_code: int16 = 0
    error_message: str | None = ""


@api_message(30)
class CreateAclsResponse:
    throttle_time_ms: int32 = 0
    results: list[AclCreationResult] = v(default=[])
