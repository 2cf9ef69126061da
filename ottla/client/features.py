"""The features of a cluster and their levels (KIP-584)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.client.cluster import ClusterClient
from ottla.client.cluster_error import check
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
SOFTWARE = ("ottla", "1")


class FeatureLevels(NamedTuple):
    """The levels that a broker supports, and the finalized one: 0 if it is not set."""

    lowest: int
    highest: int
    finalized: int


class ClusterFeatures(NamedTuple):
    """The features by name, and the epoch of the finalized levels (-1: there are none)."""

    epoch: int
    levels: dict[str, FeatureLevels]


async def describe_features(cluster: ClusterClient, broker: int | None = None) -> ClusterFeatures:
    """Return the features that a broker, or any, supports, and their finalized levels in the cluster."""
    cluster.doing = "reading the features"
    response: ApiVersionsResponse = await cluster.request(ApiVersionsRequest(*SOFTWARE), broker)
    check("features", response.error_code)
    finalized = {row.name: row.max_version_level for row in response.finalized_features}
    levels = {
        row.name: FeatureLevels(row.min_version, row.max_version, finalized.get(row.name, 0))
        for row in response.supported_features
    }
    return ClusterFeatures(response.finalized_features_epoch, dict(sorted(levels.items())))


async def update_features(
    cluster: ClusterClient, levels: Mapping[str, int], upgrade_type: int, *, dry_run: bool = False
) -> None:
    """Set levels, all or none.

    Raises:
        CommandFailed: a level is refused. Brokers before 4.0 say so of each feature.
    """
    updates = [FeatureUpdateKey(name, level, upgrade_type=upgrade_type) for name, level in levels.items()]
    request = UpdateFeaturesRequest(cluster.timeout_ms, updates, validate_only=dry_run)
    cluster.doing = "changing the features"
    response: UpdateFeaturesResponse = await cluster.request(request)
    check("features", response.error_code, response.error_message)
    for row in response.results:
        check(f"feature {row.feature}", row.error_code, row.error_message)
