"""UpdateFeatures (KIP-584, KIP-778): raise or lower finalized feature levels of the cluster.

Every registered broker and controller must support a level, because otherwise it could not read the records.
metadata.version is never lowered past a change of the record format, which would drop metadata.

A new cluster's metadata log begins with the features of the release that Ottla advertises. Kafka requires a formatted directory;
here the first active controller finds an empty log and writes these records.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.controller.decisions.control_state import MIN_INSYNC_REPLICAS, ControlState
from ottla.controller.decisions.outcome import Outcome
from ottla.controller.metadata.cluster import FeatureRange
from ottla.controller.metadata.configs import ResourceType
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.features import (
    ELR_VERSION,
    FEATURES,
    KRAFT_VERSION,
    MV_CONTROLLER_REGISTRATION,
    default_levels,
    is_lossy_downgrade,
    supported_levels,
)
from ottla.protocol.internal_topics.metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    NoOpRecord,
)
from ottla.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from ottla.protocol.releases import DEFAULT, METADATA_VERSION, Advertised

# FeatureUpdate.UpgradeType
UPGRADE = 1
SAFE_DOWNGRADE = 2
UNSAFE_DOWNGRADE = 3


class QuorumFeatures(NamedTuple):
    """The features of the quorum: kraft.version is not in the metadata image."""

    voters: frozenset[int] = frozenset()
    kraft_version: int = 0


def raised_kraft_version(request: UpdateFeaturesRequest, quorum: QuorumFeatures) -> int | None:
    """Return the requested kraft.version if it differs from the current one."""
    wanted = {update.feature: update.max_version_level for update in request.feature_updates}.get(KRAFT_VERSION)
    return wanted if wanted != quorum.kraft_version else None


def update_features(
    state: ControlState, request: UpdateFeaturesRequest, version: int, quorum: QuorumFeatures
) -> Outcome[UpdateFeaturesResponse]:
    """Make all updates or none. An error applies to all of them (v2 returns it once, older versions for each feature)."""
    levels = {**state.image.features.levels, KRAFT_VERSION: quorum.kraft_version}
    current = dict(levels)
    records: list[MetadataRecord] = []
    try:
        for update in request.feature_updates:
            levels[update.feature] = update.max_version_level
        for update in request.feature_updates:
            name, wanted = update.feature, update.max_version_level
            reason = _reason_not_supported(state, name, wanted, quorum.voters)
            _check(update, _upgrade_type(update, version), reason, current.get(name, 0), levels)
            records += _records(state, update, quorum)
    except KafkaError as error:
        return Outcome([], response_to(request, version, error))
    return Outcome([] if request.validate_only else records, response_to(request, version, None))


def response_to(request: UpdateFeaturesRequest, version: int, error: KafkaError | None) -> UpdateFeaturesResponse:
    code = ErrorCode.NONE if error is None else error.code
    message = (
        None
        if error is None
        else f"The update failed for all features since the following feature had an error: {error.message}"
    )
    response = UpdateFeaturesResponse(error_code=code, error_message=message)
    if version < 2 and error is None:
        response.results = [UpdatableFeatureResult(feature=update.feature) for update in request.feature_updates]
    return response


def _upgrade_type(update: FeatureUpdateKey, version: int) -> int:
    if version >= 1:
        return update.upgrade_type
    return SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE


def _check(
    update: FeatureUpdateKey, upgrade_type: int, not_supported: str | None, current: int, levels: Mapping[str, int]
) -> None:
    name, wanted = update.feature, update.max_version_level
    if upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise _invalid(name, wanted, "The controller does not support the given upgrade type.")
    if wanted < 0:
        raise _invalid(name, wanted, "A feature version cannot be less than 0.")
    if not_supported is not None:
        raise _invalid(name, wanted, not_supported)
    if wanted < current and upgrade_type == UPGRADE:
        raise _invalid(
            name,
            wanted,
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe"
            " downgrade.",
        )
    if wanted > current and upgrade_type != UPGRADE:
        raise _invalid(name, wanted, "Can't downgrade to a newer version.")
    if name == METADATA_VERSION:
        _check_metadata_version(current, wanted, upgrade_type)
    elif name == KRAFT_VERSION:
        if wanted < current:
            raise _invalid(name, wanted, "Can't downgrade the version of this feature.")
    else:
        needed = max(FEATURES[name].needs[:wanted], default=0)
        if levels[METADATA_VERSION] < needed:
            raise _invalid(
                name,
                wanted,
                f"{name} could not be set to {wanted} because it depends on {METADATA_VERSION} level {needed}",
            )


def _check_metadata_version(current: int, wanted: int, upgrade_type: int) -> None:
    if is_lossy_downgrade(current, wanted):
        if upgrade_type == UNSAFE_DOWNGRADE:
            why = "Unsafe metadata downgrade is not supported in this version."
        else:
            why = "Refusing to perform the requested downgrade because it might delete metadata information."
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"Unsupported metadata.version downgrade from {current} to {wanted}. {why}",
        )


def _records(state: ControlState, update: FeatureUpdateKey, quorum: QuorumFeatures) -> list[MetadataRecord]:
    if update.feature == KRAFT_VERSION:
        # The quorum appends its own records just before this one, so they are committed before it.
        return [NoOpRecord()] if update.max_version_level > quorum.kraft_version else []
    records: list[MetadataRecord] = [FeatureLevelRecord(name=update.feature, feature_level=update.max_version_level)]
    if update.feature == ELR_VERSION and update.max_version_level and not state.image.features.elr_enabled:
        records += min_isr_records(state.image.configs.for_broker(""), state.settings.min_insync_replicas)
    return records


def min_isr_records(cluster_configs: Mapping[str, str], min_insync_replicas: int) -> list[MetadataRecord]:
    """Return the record of the cluster-wide min.insync.replicas. With ELR enabled it must be set, because every ELR depends on it (KIP-966)."""
    if MIN_INSYNC_REPLICAS in cluster_configs:
        return []
    return [
        ConfigRecord(
            resource_type=ResourceType.BROKER,
            resource_name="",
            name=MIN_INSYNC_REPLICAS,
            value=str(min_insync_replicas),
        )
    ]


def _reason_not_supported(state: ControlState, name: str, level: int, voters: frozenset[int]) -> str | None:
    ranges = supported_levels(state.settings.advertised)
    own = state.settings.node_id
    if name not in ranges:
        return f"Feature {name} not found." if level == 0 else f"Local controller {own} does not support this feature."
    reason = _outside(f"Local controller {own}", FeatureRange(*ranges[name]), level)
    if reason is not None:
        return reason
    cluster = state.image.cluster
    for broker_id, broker in sorted(cluster.brokers.items()):
        reason = _outside(f"Broker {broker_id}", broker.features.get(name), level)
        if reason is not None:
            return reason
    if state.image.features.metadata_version < MV_CONTROLLER_REGISTRATION:
        return None
    for controller_id, controller in sorted(cluster.controllers.items()):
        if controller_id != own:
            reason = _outside(f"Controller {controller_id}", controller.features.get(name), level)
            if reason is not None:
                return reason
    for voter in sorted(voters):
        if voter != own and voter not in cluster.controllers:
            return f"controller {voter} has not registered, and may not support this feature"
    return None


def _outside(node: str, supported: FeatureRange | None, level: int) -> str | None:
    if supported is None or supported == (0, 0):
        return None if level == 0 else f"{node} does not support this feature."
    if supported.min_version <= level <= supported.max_version or (level == 0 and supported.min_version == 0):
        return None
    return f"{node} only supports versions {supported.min_version}-{supported.max_version}"


def _invalid(name: str, level: int, message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"Invalid update version {level} for feature {name}. {message}")


def completed_bootstrap(records: list[MetadataRecord], min_insync_replicas: int) -> list[MetadataRecord]:
    """Return the records of a formatted directory, and those that its features require."""
    elr = any(
        isinstance(each, FeatureLevelRecord) and each.name == ELR_VERSION and each.feature_level for each in records
    )
    return records + (min_isr_records({}, min_insync_replicas) if elr else [])


def bootstrap_records(min_insync_replicas: int, advertised: Advertised = DEFAULT) -> list[MetadataRecord]:
    """Return the bootstrap records. metadata.version comes first: it decides how the others are read. kraft.version is the quorum's own."""
    levels = default_levels(advertised=advertised)
    records: list[MetadataRecord] = [
        FeatureLevelRecord(name=METADATA_VERSION, feature_level=levels.pop(METADATA_VERSION))
    ]
    levels.pop(KRAFT_VERSION, None)
    records += [FeatureLevelRecord(name=name, feature_level=level) for name, level in sorted(levels.items()) if level]
    if levels.get(ELR_VERSION):
        records += min_isr_records({}, min_insync_replicas)
    return records
