"""UpdateFeatures: change finalized feature levels (KIP-584).

v1 adds downgrade type and validation only (KIP-778); v2 drops the result per feature.
"""

from __future__ import annotations

from ottla.protocol.schema import api_message, int8, int16, int32, struct, v


@struct
class FeatureUpdateKey:
    feature: str = ""
    max_version_level: int16 = 0
    allow_downgrade: bool = v("0", default=False)
    upgrade_type: int8 = v("1+", default=1)


@api_message(57)
class UpdateFeaturesRequest:
    timeout_ms: int32 = 60000
    feature_updates: list[FeatureUpdateKey] = v(default=[])
    validate_only: bool = v("1+", default=False)


@struct
class UpdatableFeatureResult:
    feature: str = ""
    error_code: int16 = 0
    error_message: str | None = ""


@api_message(57)
class UpdateFeaturesResponse:
    throttle_time_ms: int32 = 0
    error_code: int16 = 0
    error_message: str | None = ""
    results: list[UpdatableFeatureResult] = v("0-1", default=[], ignorable=True)
