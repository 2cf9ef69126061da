"""DescribeConfigs: configuration of topics, brokers, groups and client metrics.

v1 adds sources and synonyms (KIP-226); v3 types and documentation (KIP-569).
"""

from __future__ import annotations

from ottla.protocol.schema import api_message, int8, int16, int32, struct, v


@struct
class DescribeConfigsResource:
    resource_type: int8 = 0
    resource_name: str = ""
    configuration_keys: list[str] | None = v(default=[])


@api_message(32)
class DescribeConfigsRequest:
    resources: list[DescribeConfigsResource] = v(default=[])
    include_synonyms: bool = v("1+", default=False)
    include_documentation: bool = v("3+", default=False)


@struct
class DescribeConfigsSynonym:
    name: str = ""
    value: str | None = ""
    source: int8 = 0


@struct
class DescribeConfigsResourceResult:
    name: str = ""
    value: str | None = ""
    read_only: bool = False
    is_default: bool = v("0", default=False, ignorable=True)
    config_source: int8 = v("1+", default=-1, ignorable=True)
    is_sensitive: bool = False
    synonyms: list[DescribeConfigsSynonym] = v("1+", default=[], ignorable=True)
    config_type: int8 = v("3+", default=0, ignorable=True)
    documentation: str | None = v("3+", default="", ignorable=True)


@struct
class DescribeConfigsResult:
    error_code: int16 = 0
    error_message: str | None = ""
    resource_type: int8 = 0
    resource_name: str = ""
    configs: list[DescribeConfigsResourceResult] = v(default=[])


@api_message(32)
class DescribeConfigsResponse:
    throttle_time_ms: int32 = 0
    results: list[DescribeConfigsResult] = v(default=[])
