"""DeleteAcls: delete access rules that match filters.

v1 adds the pattern type (KIP-290); v3 the user resource type (KIP-373).
"""

from __future__ import annotations

from ottla.protocol.schema import api_message, int8, int16, int32, struct, v


@struct
class DeleteAclsFilter:
    resource_type_filter: int8 = 0
    resource_name_filter: str | None = ""
    pattern_type_filter: int8 = v("1+", default=3)
    principal_filter: str | None = ""
    host_filter: str | None = ""
    operation: int8 = 0
    permission_type: int8 = 0


@api_message(31)
class DeleteAclsRequest:
    filters: list[DeleteAclsFilter] = v(default=[])


@struct
class DeleteAclsMatchingAcl:
    error_code: int16 = 0
    error_message: str | None = ""
    resource_type: int8 = 0
    resource_name: str = ""
    pattern_type: int8 = v("1+", default=3, ignorable=True)
    principal: str = ""
    host: str = ""
    operation: int8 = 0
    permission_type: int8 = 0


@struct
class DeleteAclsFilterResult:
    error_code: int16 = 0
    error_message: str | None = ""
    matching_acls: list[DeleteAclsMatchingAcl] = v(default=[])


@api_message(31)
class DeleteAclsResponse:
    throttle_time_ms: int32 = 0
    filter_results: list[DeleteAclsFilterResult] = v(default=[])
