"""Releases of Apache Kafka: what a node advertises is exactly one release's, so that clients and tools know what to expect.

The tables of the project (`api.py`, `features.py`, `server/config`) are those of the newest release here; a row of an earlier release
says what it does not have of them. Which one a node advertises is `ottla.advertised.release`, and Kafka's own properties
`unstable.api.versions.enable` and `unstable.feature.versions.enable` add what that release has and calls unstable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.protocol.api import Api, ApiKey


class Release(NamedTuple):
    """A release of Apache Kafka. `metadata_version`: the level of new clusters, and the highest; `unstable_metadata_version` with unstable features."""

    name: str
    metadata_version: int
    unstable_metadata_version: int
    #: The highest version of each API that ends earlier than in `api.py`; `NO_VERSION` if the release does not have the API.
    highest: Mapping[ApiKey, int] = {}
    #: Configurations of brokers, topics and groups that came later.
    lacks_configs: frozenset[str] = frozenset()


NO_VERSION = -1

KAFKA_4_4 = Release("4.4.0", metadata_version=33, unstable_metadata_version=34)
KAFKA_4_3 = Release(
    "4.3.1",
    metadata_version=30,
    unstable_metadata_version=31,
    highest={
        ApiKey.API_VERSIONS: 4,
        ApiKey.TXN_OFFSET_COMMIT: 5,
        ApiKey.DELETE_GROUPS: 2,
        ApiKey.STREAMS_GROUP_HEARTBEAT: 0,
        ApiKey.STREAMS_GROUP_DESCRIBE: 0,
        ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: NO_VERSION,
        ApiKey.UNREGISTER_CONTROLLER: NO_VERSION,
    },
    lacks_configs=frozenset(
        {
            "consumer.assignor.offload.enable",
            "errors.deadletterqueue.auto.create.topics.enable",
            "errors.deadletterqueue.copy.record.enable",
            "errors.deadletterqueue.group.enable",
            "errors.deadletterqueue.topic.name",
            "errors.deadletterqueue.topic.name.prefix",
            "group.consumer.assignor.offload.enable",
            "group.share.assignor.offload.enable",
            "group.share.dlq.manager.class.name",
            "group.streams.acceptable.recovery.lag",
            "group.streams.assignor.offload.enable",
            "group.streams.assignors",
            "group.streams.max.warmup.replicas",
            "group.streams.min.task.offset.interval.ms",
            "group.streams.num.warmup.replicas",
            "group.streams.rack.aware.assignment.tags",
            "group.streams.task.offset.interval.ms",
            "group.streams.topology.description.plugin.class",
            "log.remote.copy.lag.bytes",
            "log.remote.copy.lag.ms",
            "max.decompressed.message.bytes",
            "remote.copy.lag.bytes",
            "remote.copy.lag.ms",
            "sasl.oauthbearer.allow.unverified.audience",
            "sasl.oauthbearer.allow.unverified.issuer",
            "share.assignor.offload.enable",
            "streams.acceptable.recovery.lag",
            "streams.assignor.name",
            "streams.assignor.offload.enable",
            "streams.num.warmup.replicas",
            "streams.rack.aware.assignment.tags",
            "streams.task.offset.interval.ms",
        }
    ),
)

#: By the value of ottla.advertised.release; the default is the first.
RELEASES = {release.name: release for release in (KAFKA_4_4, KAFKA_4_3)}


class Advertised(NamedTuple):
    """What a node advertises, and serves: a release, with or without its unstable parts."""

    release: Release = KAFKA_4_4
    unstable_apis: bool = False
    unstable_features: bool = False

    def highest_version(self, api: Api) -> int:
        """Returns the highest version of an API, or NO_VERSION."""
        stable = api.max_version - 1 if api.latest_unstable and not self.unstable_apis else api.max_version
        return min(stable, self.release.highest.get(api.key, stable))

    @property
    def metadata_version(self) -> int:
        """The highest metadata.version, which is also that of a new cluster."""
        return self.release.unstable_metadata_version if self.unstable_features else self.release.metadata_version
