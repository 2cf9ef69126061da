"""ApiVersions: which APIs and versions a node serves, and the feature levels.

v3 adds client software and features (KIP-511, KIP-584); v4 shows features whose minimum is 0 (KAFKA-17011); v5
checks cluster and node id (KIP-1242). The response header is never flexible; an unknown version is answered in v0.
"""

from __future__ import annotations

from ottla.protocol.schema import api_message, int16, int32, int64, struct, v


@api_message(18)
class ApiVersionsRequest:
    client_software_name: str = v("3+", default="", ignorable=True)
    client_software_version: str = v("3+", default="", ignorable=True)
    cluster_id: str | None = v("5+", default=None, ignorable=True)
    node_id: int32 = v("5+", default=-1, ignorable=True)


@struct
class ApiVersion:
    api_key: int16 = 0
    min_version: int16 = 0
    max_version: int16 = 0


@struct
class SupportedFeatureKey:
    name: str = ""
    min_version: int16 = 0
    max_version: int16 = 0


@struct
class FinalizedFeatureKey:
    name: str = ""
    max_version_level: int16 = 0
    min_version_level: int16 = 0


@api_message(18)
class ApiVersionsResponse:
    error_code: int16 = 0
    api_keys: list[ApiVersion] = v(default=[])
    throttle_time_ms: int32 = v("1+", default=0, ignorable=True)
    supported_features: list[SupportedFeatureKey] = v("3+", tag=0, default=[], ignorable=True)
    finalized_features_epoch: int64 = v("3+", tag=1, default=-1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = v("3+", tag=2, default=[], ignorable=True)
    zk_migration_ready: bool = v("3+", tag=3, default=False, ignorable=True)
