"""The rows of releases beside the tables that they are taken from: nothing is said to be missing that is not there at all."""

from __future__ import annotations

import pytest

from ottla.protocol.api import APIS, ApiKey
from ottla.protocol.features import KAFKA_4_3, KAFKA_4_4, NO_VERSION, RELEASES, Advertised, Release
from ottla.server.config.broker import BROKER_CONFIGS
from ottla.server.config.resource_configs import GROUP_CONFIGS, TOPIC_CONFIGS


def test_the_newest_release_is_the_default_and_lacks_nothing() -> None:
    assert Advertised().release is KAFKA_4_4 is next(iter(RELEASES.values()))
    assert not KAFKA_4_4.highest and not KAFKA_4_4.lacks_configs


@pytest.mark.parametrize("release", RELEASES.values(), ids=RELEASES)
def test_what_a_release_lacks_is_in_the_tables(release: Release) -> None:
    assert release.lacks_configs <= BROKER_CONFIGS.keys() | GROUP_CONFIGS.keys() | TOPIC_CONFIGS.keys()
    assert all(highest < APIS[key].max_version for key, highest in release.highest.items())


def test_an_unstable_version_counts_only_where_it_is_enabled() -> None:
    init, unregister = APIS[ApiKey.INIT_PRODUCER_ID], APIS[ApiKey.UNREGISTER_CONTROLLER]
    for release in RELEASES.values():
        assert Advertised(release).highest_version(init) == 5
        assert Advertised(release, unstable_apis=True).highest_version(init) == 6
    assert Advertised(KAFKA_4_3, unstable_apis=True).highest_version(unregister) == NO_VERSION
    assert [Advertised(KAFKA_4_3, unstable_features=on).metadata_version for on in (False, True)] == [30, 31]
