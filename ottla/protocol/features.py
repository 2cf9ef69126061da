"""Releases of Apache Kafka and feature levels: the levels that a node advertises, those that the whole cluster has enabled, and
the consequences.

Every node sends the levels that it supports (ApiVersions, broker registration); the controller finalizes one level per
feature. The first feature is metadata.version, which decides the versions of metadata records that may be written. (The
versions of requests between brokers are negotiated by ApiVersions on each connection.) Levels are Apache Kafka's.
Which of them a node has is one release's: `releases.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.protocol.releases import DEFAULT, METADATA_VERSION, METADATA_VERSION_MIN, Advertised

KRAFT_VERSION = "kraft.version"
TRANSACTION_VERSION = "transaction.version"
GROUP_VERSION = "group.version"
ELR_VERSION = "eligible.leader.replicas.version"
SHARE_VERSION = "share.version"
STREAMS_VERSION = "streams.version"


class MetadataVersion(NamedTuple):
    """A level of metadata.version. `changed`: it changed the records' format, so that a downgrade to a lower level loses metadata."""

    level: int
    name: str
    changed: bool = False


METADATA_VERSIONS = (
    MetadataVersion(7, "3.3-IV3", True),  # the lowest level of a KRaft cluster
    MetadataVersion(8, "3.4-IV0", True),  # migration from ZooKeeper
    MetadataVersion(9, "3.5-IV0"),  # tiered storage (KIP-405)
    MetadataVersion(10, "3.5-IV1"),  # replica epoch in Fetch (KIP-903)
    MetadataVersion(11, "3.5-IV2", True),  # SCRAM credentials in metadata (KIP-900)
    MetadataVersion(12, "3.6-IV0"),  # a shrinking ISR keeps the leader epoch
    MetadataVersion(13, "3.6-IV1", True),  # metadata transactions (KIP-868)
    MetadataVersion(14, "3.6-IV2", True),  # delegation tokens (KIP-900)
    MetadataVersion(15, "3.7-IV0", True),  # controller registration (KIP-919)
    MetadataVersion(16, "3.7-IV1"),
    MetadataVersion(17, "3.7-IV2", True),  # log directories in metadata (KIP-858)
    MetadataVersion(18, "3.7-IV3"),
    MetadataVersion(19, "3.7-IV4"),  # new leaders in Fetch (KIP-951)
    MetadataVersion(20, "3.8-IV0"),
    MetadataVersion(21, "3.9-IV0"),  # directory ids in Fetch (KIP-853)
    MetadataVersion(22, "4.0-IV0"),  # consumer groups (KIP-848)
    MetadataVersion(23, "4.0-IV1", True),  # eligible leader replicas (KIP-966)
    MetadataVersion(24, "4.0-IV2"),  # new transactions (KIP-890)
    MetadataVersion(25, "4.0-IV3"),  # waiting ListOffsets (KIP-1075)
    MetadataVersion(26, "4.1-IV0"),  # eligible leader replicas by default
    MetadataVersion(27, "4.1-IV1"),  # high watermark in Fetch (KIP-1166)
    MetadataVersion(28, "4.2-IV0"),  # share groups (KIP-932)
    MetadataVersion(29, "4.2-IV1"),  # streams groups (KIP-1071)
    MetadataVersion(30, "4.3-IV0", True),  # cordoned log directories (KIP-1066)
    MetadataVersion(31, "4.4-IV0"),  # dead-letter queues of share groups (KIP-1191)
    MetadataVersion(32, "4.4-IV1", True),  # address ranges in access rules (KIP-1276)
    MetadataVersion(33, "4.4-IV2", True),  # unregistering controllers (KIP-1312)
    MetadataVersion(34, "4.5-IV0"),  # configurations of groups are validated by the broker that forwards them
)

#: The levels of metadata.version from which on controllers register (KIP-919), and metadata has the directories of replicas
#: (KIP-858) and the directories that get no new replicas (KIP-1066).
MV_CONTROLLER_REGISTRATION = 15
MV_DIRECTORIES = 17
MV_CORDONED = 30

_BY_LEVEL = {version.level: version for version in METADATA_VERSIONS}
assert list(_BY_LEVEL) == list(range(METADATA_VERSION_MIN, METADATA_VERSIONS[-1].level + 1))


class Feature(NamedTuple):
    """A feature; `since[n]`: from this metadata.version on, level n + 1 is the default of new clusters.

    `needs[n]`: the lowest metadata.version at which level n + 1 can be set, or 0 if any will do.
    """

    name: str
    since: tuple[int, ...]
    needs: tuple[int, ...]

    def default_level(self, metadata_version: int) -> int:
        """Return the level of a new cluster."""
        return sum(1 for level in self.since if level <= metadata_version)


FEATURES = {
    feature.name: feature
    for feature in (
        Feature(KRAFT_VERSION, since=(21,), needs=(0,)),  # 1: voters can change (KIP-853)
        Feature(
            TRANSACTION_VERSION, since=(24, 24), needs=(0, 0)
        ),  # 1: flexible log; 2: epoch per transaction (KIP-890)
        Feature(GROUP_VERSION, since=(22,), needs=(0,)),  # 1: consumer groups (KIP-848)
        Feature(ELR_VERSION, since=(26,), needs=(23,)),  # 1: eligible leader replicas (KIP-966)
        Feature(SHARE_VERSION, since=(28, 31), needs=(0, 0)),  # 1: share groups (KIP-932); 2: dead letters (KIP-1191)
        Feature(STREAMS_VERSION, since=(29,), needs=(0,)),  # 1: streams groups (KIP-1071)
    )
}


def supported_levels(advertised: Advertised = DEFAULT) -> dict[str, tuple[int, int]]:
    """Lowest and highest level by feature that a node supports. Of other features than metadata.version Kafka has no unstable levels yet."""
    release = advertised.release
    latest = release.metadata_version
    ranges = {
        name: (0, max(feature.default_level(latest), release.features.get(name, (0, 0))[1]))
        for name, feature in FEATURES.items()
        if release.is_newest or release.has_zookeeper or name in release.features or name == KRAFT_VERSION
    }
    return {METADATA_VERSION: (METADATA_VERSION_MIN, advertised.metadata_version)} | ranges


def shown_levels(advertised: Advertised, supported: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """Return what a release shows to clients of the levels that a node supports: before 4.0 metadata.version has lower ones, which are not here."""
    release = advertised.release
    if release.is_newest:
        return dict(supported)
    return {
        name: (low, supported[name][1] if name == METADATA_VERSION else high)
        for name, (low, high) in release.features.items()
        if name in supported
    }


def default_levels(metadata_version: int | None = None, advertised: Advertised = DEFAULT) -> dict[str, int]:
    """Return the levels of a new cluster; kraft.version is the quorum's own and depends on how it was formatted."""
    level = advertised.metadata_version if metadata_version is None else metadata_version
    supported = min(level, advertised.release.metadata_version)
    known = supported_levels(advertised)
    levels = {name: each.default_level(supported) for name, each in FEATURES.items() if name in known}
    return {METADATA_VERSION: level} | levels


def metadata_version_name(level: int) -> str:
    """Return "4.3-IV0" for 30; the number for levels we do not know."""
    known = _BY_LEVEL.get(level)
    return known.name if known else str(level)


def metadata_version_level(name: str) -> int:
    """Return the level of a metadata.version: 30 for "4.3-IV0", "4.3" (the release's last) or "30". Raises ValueError for anything else."""
    if name.isdecimal() and int(name) in _BY_LEVEL:
        return int(name)
    release = name.partition("-")[0] if "-" in name else ".".join(name.split(".")[:2])
    matches = [version.level for version in METADATA_VERSIONS if name == version.name]
    matches = matches or [v.level for v in METADATA_VERSIONS if "-" not in name and v.name.startswith(release + "-")]
    if not matches:
        raise ValueError(f"{name!r} is not a release or metadata.version; the latest is {METADATA_VERSIONS[-1].name}")
    return matches[-1]


def is_lossy_downgrade(current: int, target: int) -> bool:
    """Return True if the downgrade drops metadata, because the records' format changed between the two levels."""
    return any(target < version.level <= current and version.changed for version in METADATA_VERSIONS)


# The rules that metadata.version decides


def register_broker_record_version(metadata_version: int) -> int:
    return _count(metadata_version, 7, 8, 17, 30)


def partition_record_version(metadata_version: int) -> int:
    """Return the version of Partition and PartitionChange records: v1 adds directories, v2 eligible leader replicas."""
    return _count(metadata_version, 17, 23)


def transaction_log_value_version(transaction_version: int) -> int:
    return 1 if transaction_version >= 1 else 0


def _count(level: int, *starts: int) -> int:
    return sum(1 for start in starts if level >= start)
