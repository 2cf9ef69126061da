"""The set of topics that have remote storage (KIP-405). Only changed configurations are looked at, so that 10,000 topics
without it cost nothing.

It is not a part of the package `tiers`: a broker without remote storage needs it, too, because its metadata may name such
topics.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from ottla.broker.configs import BrokerConfigs
from ottla.controller.metadata.configs import ResourceType
from ottla.controller.metadata.image import MetadataDelta, MetadataImage
from ottla.controller.metadata.topic_names import LOCAL_TOPICS
from ottla.protocol.errors import KafkaError
from ottla.server.config.remote_storage import SYSTEM, TOPIC, is_remote
from ottla.server.metrics import GAUGE, Family, Sample

#: The result of a search by time in remote storage, by topic and partition: timestamp, offset and leader epoch, or the error.
RemoteFindings: TypeAlias = Mapping[tuple[str, int], tuple[int, int, int] | KafkaError | None]

#: The metric that an alert looks at, with remote storage and without.
TIER_WAITS, WAITS_DOC = "ottla_tier_waits", "1 if copies fail: /tiers of the admin listener says why"

log = logging.getLogger(__name__)


class TieredTopics:
    """The names of the topics of the cluster that have remote storage."""

    def __init__(self, configs: BrokerConfigs) -> None:
        self._configs = configs
        self.names: set[str] = set()
        #: Called after a topic's configuration that has, or had, remote storage has changed.
        self.on_change: Callable[[], None] = lambda: None

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if delta.configs is None:
            return
        new, is_changed = set(), False
        for (kind, name), values in delta.configs.changed_resources.items():
            if kind != ResourceType.TOPIC or name in LOCAL_TOPICS or not (TOPIC in values or name in self.names):
                continue
            is_changed = True
            if is_remote(image.configs.for_topic(name)):
                new.add(name)
            else:
                self.names.discard(name)
        new -= self.names
        self.names |= new
        if new and not self._configs[SYSTEM]:
            self._report_disabled(new)
        if is_changed:
            self.on_change()

    def states(self, topic: str | None) -> Iterator[dict[str, Any]]:
        """Yield, for a broker without remote storage, why nothing is copied of each topic, or of one."""
        for name in sorted(self.names if topic is None else self.names & {topic}):
            yield {"topic": name, "failing": True, "waits": f"{SYSTEM}=false at this broker"}

    def metrics(self) -> Iterator[Family]:
        """Yield, for a broker without remote storage, the metric of the alert TierWaits."""
        samples = [Sample({"topic": name}, 1) for name in sorted(self.names)]
        yield Family(TIER_WAITS, GAUGE, WAITS_DOC, samples)

    def _report_disabled(self, topics: set[str]) -> None:
        log.error(
            "You have to delete all topics with the property %s=true before disabling tiered storage cluster-wide. This broker has %s=false:"
            " what is only in remote storage of %s cannot be read here, and nothing of them leaves this disk",
            TOPIC,
            SYSTEM,
            ", ".join(sorted(topics)),
        )
