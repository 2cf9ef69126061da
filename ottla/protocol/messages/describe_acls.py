"""DescribeAcls: access rules that match a filter.

v1 adds the pattern type (KIP-290); v3 the user resource type (KIP-373).
"""

from __future__ import annotations

from ottla.protocol.schema import api_message, int8, int16, int32, struct, v


@api_message(29)
class DescribeAclsRequest:
    resource_type_filter: int8 = 0
    resource_name_filter: str | None = ""
    pattern_type_filter: int8 = v("1+", default=3)
    principal_filter: str | None = ""
    host_filter: str | None = ""
    operation: int8 = 0
    permission_type: int8 = 0


@struct
class AclDescription:
    principal: str = ""
    host: str = ""
    operation: int8 = 0
    permission_type: int8 = 0


@struct
class DescribeAclsResource:
    resource_type: int8 = 0
    resource_name: str = ""
    pattern_type: int8 = v("1+", default=3, ignorable=True)
    acls: list[AclDescription] = v(default=[])


@api_message(29)
class DescribeAclsResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
    resources: list[DescribeAclsResource] = v(default=[])
