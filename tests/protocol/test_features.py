"""Feature levels, and what follows from them, against Kafka's own."""

from __future__ import annotations

import pytest

from ottla.protocol import features
from ottla.protocol.features import FEATURES, METADATA_VERSIONS, default_levels, supported_levels
from ottla.protocol.releases import METADATA_VERSION, RELEASES, Advertised
from tests.protocol.catalog import DATA

FACTS = [line.split() for line in (DATA / "protocol_facts.txt").read_text().splitlines()]
METADATA = {int(words[1]): words[2:] for words in FACTS if words[0] == "metadata"}


@pytest.mark.parametrize("level", METADATA)
def test_metadata_version(level: int) -> None:
    name, changed, register, partition, change, _fetch, _list_offsets, defaults = METADATA[level]
    own = next(version for version in METADATA_VERSIONS if version.level == level)
    assert (own.name, str(own.changed).lower()) == (name, changed)
    assert features.register_broker_record_version(level) == int(register)
    assert features.partition_record_version(level) == int(partition) == int(change)
    levels = default_levels(level, Advertised(RELEASES["4.3.1"]))
    ours = ",".join(f"{feature}={levels[feature]}" for feature in sorted(FEATURES))
    assert f"{{{ours}}}" == defaults


def test_latest_is_that_of_4_3() -> None:
    assert [["latest", str(RELEASES["4.3.1"].metadata_version)]] == [words for words in FACTS if words[0] == "latest"]
    assert features.metadata_version_name(RELEASES["4.3.1"].metadata_version) == "4.3-IV0"


@pytest.mark.parametrize("words", [words for words in FACTS if words[0] == "feature"], ids=lambda words: words[1])
def test_feature(words: list[str]) -> None:
    _, name, latest, *dependencies = words
    feature = FEATURES[name]
    assert supported_levels(Advertised(RELEASES["4.3.1"]))[name] == (0, int(latest))
    for level, text in enumerate(dependencies[1:]):
        assert text == (f"{{metadata.version={feature.needs[level]}}}" if feature.needs[level] else "{}")


def test_new_cluster() -> None:
    assert default_levels() == {
        "metadata.version": 33,
        "kraft.version": 1,
        "transaction.version": 2,
        "group.version": 1,
        "eligible.leader.replicas.version": 1,
        "share.version": 2,
        "streams.version": 1,
    }
    assert supported_levels()[METADATA_VERSION] == (7, 33)
    assert supported_levels().keys() == default_levels().keys()


@pytest.mark.parametrize(
    ("text", "level"),
    [("4.3-IV0", 30), ("4.3", 30), ("4.3.1", 30), ("30", 30), ("4.0", 25), ("3.7-IV2", 17), ("4.4", 33)],
)
def test_level_by_name(text: str, level: int) -> None:
    assert features.metadata_version_level(text) == level


@pytest.mark.parametrize("text", ["", "5.0", "4.3-IV9", "6", "99", "x", "4"])
def test_unknown_name(text: str) -> None:
    with pytest.raises(ValueError, match="is not a release"):
        features.metadata_version_level(text)


def test_unknown_level_is_named_by_its_number() -> None:
    assert features.metadata_version_name(99) == "99"


def test_lossy_downgrades() -> None:
    assert features.is_lossy_downgrade(30, 29)
    assert not features.is_lossy_downgrade(29, 24)
    assert features.is_lossy_downgrade(24, 22)
    assert not features.is_lossy_downgrade(20, 30)


def test_transaction_log() -> None:
    assert [features.transaction_log_value_version(level) for level in (0, 1, 2)] == [0, 1, 1]
