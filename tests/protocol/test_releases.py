"""The tables of releases, compared with those of the project: names exist here, and a node serves no more than it has."""

from __future__ import annotations

from itertools import pairwise

import pytest

from ottla.protocol.api import APIS, ApiKey
from ottla.protocol.features import METADATA_VERSIONS, default_levels, shown_levels, supported_levels
from ottla.protocol.releases import (
    BROKER,
    CONTROLLER,
    KAFKA_4_4,
    RELEASES,
    Advertised,
    UnknownRelease,
    release_name,
)
from ottla.server.config.broker import BROKER_CONFIGS
from ottla.server.config.key import Type
from ottla.server.config.resource_configs import GROUP_CONFIGS, TOPIC_CONFIGS

EARLIER = [name for name in RELEASES if name != KAFKA_4_4.name]
CONFIGS = {"broker": BROKER_CONFIGS, "topic": TOPIC_CONFIGS, "group": GROUP_CONFIGS}
#: The requests of a controller to brokers in clusters with ZooKeeper, which Kafka 4.0 removed: listed, and not served.
OF_ZOOKEEPER = {4, 5, 6, 7}


def test_the_newest_release_is_the_default_and_has_no_limits() -> None:
    assert Advertised().release is KAFKA_4_4 is next(iter(RELEASES.values()))
    assert Advertised().limits(BROKER) is None
    assert not KAFKA_4_4.lacks and not KAFKA_4_4.configs


@pytest.mark.parametrize("name", EARLIER)
def test_what_a_release_lacks_is_here_and_what_differs_has_a_type(name: str) -> None:
    release = RELEASES[name]
    for kind, known in CONFIGS.items():
        assert release.lacks_configs(kind) <= known.keys(), kind
        assert not release.lacks_configs(kind) & release.own_configs(kind).keys(), kind
        assert all(row.type in Type.__members__ for row in release.own_configs(kind).values()), kind


@pytest.mark.parametrize("name", EARLIER)
def test_every_api_of_a_release_is_known_and_has_no_version_that_is_not_here(name: str) -> None:
    for listener, apis in RELEASES[name].apis.items():
        assert apis or RELEASES[name].has_zookeeper, listener
        for key, (low, high) in apis.items():
            assert low <= high, key
            assert key in OF_ZOOKEEPER or high <= APIS[ApiKey(key)].max_version, key


def test_later_releases_drop_no_version_before_4_0() -> None:
    """KIP-896 was the first to remove versions, so a newer release before it serves every client of an older one."""
    names = [name for name in reversed(EARLIER) if name < "4"]
    for older, newer in pairwise(names):
        before, after = RELEASES[older].apis[BROKER], RELEASES[newer].apis[BROKER]
        for key in (before.keys() & after.keys()) - OF_ZOOKEEPER:
            assert after[key][0] <= before[key][0] and before[key][1] <= after[key][1], (older, newer, key)


def test_clusters_with_zookeeper_show_no_levels_and_have_those_of_the_newest_among_themselves() -> None:
    old = [name for name in RELEASES if RELEASES[name].has_zookeeper]
    assert old == ["3.0.2", "2.8.2", "2.4.1", "2.1.1"]
    for name in old:
        advertised = Advertised(RELEASES[name])
        assert supported_levels(advertised) == supported_levels()
        assert shown_levels(advertised, supported_levels(advertised)) == {}


@pytest.mark.parametrize("name", [name for name in EARLIER if not RELEASES[name].has_zookeeper])
def test_a_new_cluster_has_the_releases_own_metadata_version(name: str) -> None:
    advertised = Advertised(RELEASES[name])
    level, supported = advertised.metadata_version, supported_levels(advertised)
    last = [each.level for each in METADATA_VERSIONS if each.name.startswith(f"{name.rpartition('.')[0]}-")][-1]
    assert level == last, "the last level that is named as the release is the one for production"
    for feature, finalized in default_levels(advertised=advertised).items():
        low, high = supported[feature]
        assert finalized == 0 or low <= finalized <= high, feature
    assert shown_levels(advertised, supported)["metadata.version"][1] == level


def test_an_unstable_version_counts_only_where_it_is_enabled() -> None:
    init, unregister = int(ApiKey.INIT_PRODUCER_ID), int(ApiKey.UNREGISTER_CONTROLLER)
    for name in ("4.1.1", "4.2.0", "4.3.1"):
        release = RELEASES[name]
        stable, unstable = (Advertised(release, unstable_apis=on).limits(BROKER) for on in (False, True))
        assert stable is not None and unstable is not None
        assert (stable[init], unstable[init]) == ((0, 5), (0, 6))
        assert unregister not in unstable
    assert [Advertised(KAFKA_4_4, unstable_apis=on).served(APIS[ApiKey.INIT_PRODUCER_ID])[1] for on in (0, 1)] == [5, 6]
    assert [Advertised(RELEASES["4.3.1"], unstable_features=on).metadata_version for on in (False, True)] == [30, 31]


def test_an_early_version_that_is_not_here_is_not_offered() -> None:
    """Share groups had other messages while they were unstable (KIP-932)."""
    limits = Advertised(RELEASES["4.0.2"], unstable_apis=True).limits(BROKER)
    assert limits is not None
    assert not {76, 77, 78, 79} & limits.keys()


def test_controllers_of_the_release_before_have_their_own_apis() -> None:
    limits = Advertised(RELEASES["4.2.0"]).limits(CONTROLLER)
    assert limits is not None
    assert limits[int(ApiKey.VOTE)] == (0, 2) and int(ApiKey.PRODUCE) not in limits


@pytest.mark.parametrize(("text", "name"), [("2.8", "2.8.2"), ("2.8.2", "2.8.2"), (" 4.4 ", "4.4.0")])
def test_a_release_is_named_with_or_without_its_last_number(text: str, name: str) -> None:
    assert release_name(text) == name


@pytest.mark.parametrize("text", ["", "2", "2.8.", "2.8.1", "3.6", "5.0", "0.10", "../v2_8", "four"])
def test_another_release_is_refused_with_those_that_are_known(text: str) -> None:
    with pytest.raises(
        UnknownRelease, match=r"2\.1, 2\.4, 2\.8, 3\.0, 3\.3, 3\.5, 3\.7, 3\.9, 4\.0, 4\.1, 4\.2, 4\.3, 4\.4"
    ):
        release_name(text)
