from __future__ import annotations

import pytest

from ottla.controller.decisions.control_state import ControlSettings
from ottla.controller.decisions.features import (
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    QuorumFeatures,
    bootstrap_records,
    completed_bootstrap,
    update_features,
)
from ottla.protocol.errors import ErrorCode
from ottla.protocol.features import MV_CONTROLLER_REGISTRATION
from ottla.protocol.internal_topics.metadata_records import (
    FeatureLevelRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)
from ottla.protocol.messages.shared_structs import Feature
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.protocol.releases import KAFKA_4_4, RELEASES, Advertised, Release
from tests.controller.harness import CLUSTER_ID, DecisionHarness
from tests.controller.images import same_content

UNSTABLE = KAFKA_4_4.unstable_metadata_version


def update(
    cluster: DecisionHarness,
    feature: str,
    level: int,
    how: int = UPGRADE,
    *,
    version: int = 2,
    voters: frozenset[int] = frozenset(),
) -> tuple[str, str | None]:
    key = FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=how, allow_downgrade=how > 1)
    request = UpdateFeaturesRequest(feature_updates=[key])
    response = cluster.decide(update_features(cluster.state, request, version, QuorumFeatures(voters)))
    if version < 2:
        assert [result.error_code for result in response.results] == [response.error_code]
    return ErrorCode(response.error_code).name, response.error_message


FAILED = "The update failed for all features since the following feature had an error: "


def level(cluster: DecisionHarness, feature: str) -> int:
    return cluster.image.features.level(feature)


def test_levels_go_up_and_down() -> None:
    cluster = DecisionHarness()
    assert update(cluster, "group.version", 0, SAFE_DOWNGRADE) == ("NONE", None)
    assert level(cluster, "group.version") == 0
    assert update(cluster, "group.version", 1, version=0) == ("NONE", None)
    assert level(cluster, "group.version") == 1


def test_the_metadata_of_the_next_release_is_for_clusters_whose_nodes_all_enable_it() -> None:
    stable = DecisionHarness()
    _, why = update(stable, "metadata.version", UNSTABLE)
    assert why is not None and "only supports versions 7-33" in why
    settings = ControlSettings(node_id=1, cluster_id=CLUSTER_ID, advertised=Advertised(unstable_features=True))
    _, why = update(DecisionHarness(1, settings=settings), "metadata.version", UNSTABLE)
    assert why is not None and "Broker 1 only supports versions 7-33" in why
    unstable = DecisionHarness(0, settings=settings)
    assert update(unstable, "metadata.version", UNSTABLE) == ("NONE", None)
    assert level(unstable, "metadata.version") == UNSTABLE
    earlier = ControlSettings(node_id=1, cluster_id=CLUSTER_ID, advertised=Advertised(RELEASES["4.3.1"]))
    _, why = update(DecisionHarness(0, settings=earlier), "share.version", 2)
    assert why is not None and "only supports versions 0-1" in why
    assert update(stable, "share.version", 2) == ("NONE", None)


def test_kraft_version_goes_up_with_the_quorum_s_own_records_and_never_down() -> None:
    cluster, voters = DecisionHarness(), frozenset({1})
    for quorum, level, how, records in (
        (QuorumFeatures(voters, 0), 1, UPGRADE, ["NoOpRecord"]),
        (QuorumFeatures(voters, 1), 1, UPGRADE, []),
        (QuorumFeatures(voters, 0), 0, UPGRADE, []),
    ):
        key = FeatureUpdateKey(feature="kraft.version", max_version_level=level, upgrade_type=how)
        outcome = update_features(cluster.state, UpdateFeaturesRequest(feature_updates=[key]), 2, quorum)
        assert outcome.response.error_code == 0, outcome.response
        assert [type(record).__name__ for record in outcome.records] == records
    down = FeatureUpdateKey(feature="kraft.version", max_version_level=0, upgrade_type=SAFE_DOWNGRADE)
    refused = update_features(
        cluster.state, UpdateFeaturesRequest(feature_updates=[down]), 2, QuorumFeatures(voters, 1)
    )
    assert refused.response.error_message == FAILED + (
        "Invalid update version 0 for feature kraft.version. Can't downgrade the version of this feature."
    )


def test_metadata_version_never_goes_back_past_a_change_of_format() -> None:
    cluster = DecisionHarness(metadata_version=29)
    assert update(cluster, "metadata.version", 24, SAFE_DOWNGRADE) == ("NONE", None)
    assert update(cluster, "metadata.version", 22, SAFE_DOWNGRADE) == (
        "INVALID_UPDATE_VERSION",
        FAILED
        + "Unsupported metadata.version downgrade from 24 to 22. Refusing to perform the requested downgrade because it might delete metadata"
        " information.",
    )
    assert update(cluster, "metadata.version", 22, UNSAFE_DOWNGRADE)[1] == (
        FAILED
        + "Unsupported metadata.version downgrade from 24 to 22. Unsafe metadata downgrade is not supported in this version."
    )
    assert update(cluster, "metadata.version", 30) == ("NONE", None)


def test_switching_elr_on_writes_the_minimum_down() -> None:
    cluster = DecisionHarness(elr=False)
    assert update(cluster, "eligible.leader.replicas.version", 1) == ("NONE", None)
    assert cluster.image.configs.for_broker("").get("min.insync.replicas") == "1"
    assert update(cluster, "eligible.leader.replicas.version", 0, SAFE_DOWNGRADE) == ("NONE", None)


@pytest.mark.parametrize(
    ("feature", "wanted", "how", "message"),
    [
        (
            "no.such",
            1,
            UPGRADE,
            "Invalid update version 1 for feature no.such. Local controller 1 does not support this feature.",
        ),
        (
            "no.such",
            0,
            UPGRADE,
            "Invalid update version 0 for feature no.such. Feature no.such not found.",
        ),
        (
            "group.version",
            9,
            UPGRADE,
            "Invalid update version 9 for feature group.version. Local controller 1 only supports versions 0-1",
        ),
        (
            "group.version",
            0,
            UPGRADE,
            "Invalid update version 0 for feature group.version. Can't downgrade the version of this feature without"
            " setting the upgrade type to either safe or unsafe downgrade.",
        ),
        (
            "group.version",
            1,
            0,
            "Invalid update version 1 for feature group.version. The controller does not support the given upgrade type.",
        ),
        (
            "metadata.version",
            6,
            SAFE_DOWNGRADE,
            "Invalid update version 6 for feature metadata.version. Local controller 1 only supports versions 7-33",
        ),
        (
            "share.version",
            2,
            SAFE_DOWNGRADE,
            "Invalid update version 2 for feature share.version. Can't downgrade to a newer version.",
        ),
        (
            "group.version",
            -1,
            UPGRADE,
            "Invalid update version -1 for feature group.version. A feature version cannot be less than 0.",
        ),
    ],
)
def test_a_level_that_cannot_be_is_refused(feature: str, wanted: int, how: int, message: str) -> None:
    cluster = DecisionHarness()
    before = cluster.image
    assert update(cluster, feature, wanted, how) == ("INVALID_UPDATE_VERSION", FAILED + message)
    assert same_content(cluster.image, before)


def test_a_level_that_a_registered_controller_does_not_support_is_refused() -> None:
    cluster = DecisionHarness()
    cluster.replay([RegisterControllerRecord(controller_id=2, features=[Feature("group.version", 0, 0)])])
    assert update(cluster, "group.version", 0, SAFE_DOWNGRADE) == ("NONE", None)
    assert update(cluster, "group.version", 1)[1] == (
        FAILED + "Invalid update version 1 for feature group.version. Controller 2 does not support this feature."
    )


def test_before_controllers_register_nothing_is_known_of_their_features() -> None:
    cluster = DecisionHarness(metadata_version=MV_CONTROLLER_REGISTRATION - 1)
    assert update(cluster, "group.version", 1, voters=frozenset({1, 2})) == ("NONE", None)


def test_eligible_leader_replicas_need_a_metadata_version_that_has_them() -> None:
    cluster = DecisionHarness(elr=False, metadata_version=22)
    assert update(cluster, "eligible.leader.replicas.version", 1)[1] == FAILED + (
        "Invalid update version 1 for feature eligible.leader.replicas.version. eligible.leader.replicas.version could"
        " not be set to 1 because it depends on metadata.version level 23"
    )


def test_a_level_needs_every_broker_and_every_voter() -> None:
    cluster = DecisionHarness(metadata_version=29)
    message = update(cluster, "metadata.version", 30, voters=frozenset({1, 8}))[1]
    assert message is not None and message.endswith("controller 8 has not registered, and may not support this feature")
    features = [Feature(name="metadata.version", min_supported_version=7, max_supported_version=29)]
    cluster.replay([RegisterBrokerRecord(broker_id=4, features=features)])
    message = update(cluster, "metadata.version", 30)[1]
    assert message is not None and message.endswith("Broker 4 only supports versions 7-29")


@pytest.mark.parametrize(("release", "level", "share"), [(RELEASES["4.3.1"], 30, 1), (KAFKA_4_4, 33, 2)])
def test_a_new_cluster_begins_as_one_of_the_release_begins(release: Release, level: int, share: int) -> None:
    lines = [
        f"{record.name}={record.feature_level if isinstance(record, FeatureLevelRecord) else record.value}"
        for record in bootstrap_records(1, Advertised(release))
    ]
    assert lines == [
        f"metadata.version={level}",
        "eligible.leader.replicas.version=1",
        "group.version=1",
        f"share.version={share}",
        "streams.version=1",
        "transaction.version=2",
        "min.insync.replicas=1",
    ]


def test_a_directory_formatted_by_hand_gets_what_follows_from_its_features() -> None:
    elr = FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1)
    old = FeatureLevelRecord(name="metadata.version", feature_level=20)
    assert [record.name for record in completed_bootstrap([old, elr], 2)][-1] == "min.insync.replicas"
    assert completed_bootstrap([old], 2) == [old]
