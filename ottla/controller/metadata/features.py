"""Finalized feature levels, also metadata.version. kraft.version is in raft's control records instead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from ottla.controller.metadata.shared_map import Map, MapDelta
from ottla.protocol.features import ELR_VERSION
from ottla.protocol.internal_topics.metadata_records import FeatureLevelRecord, MetadataRecord
from ottla.protocol.releases import METADATA_VERSION
from ottla.protocol.slotted import frozen


@frozen
class FeaturesImage:
    levels: Map[str, int] = field(default_factory=Map)

    def level(self, feature: str) -> int:
        """Return the finalized level, or zero."""
        return self.levels.get(feature, 0)

    @property
    def metadata_version(self) -> int:
        return self.levels.get(METADATA_VERSION, 0)

    @property
    def elr_enabled(self) -> bool:
        return self.level(ELR_VERSION) >= 1

    def to_records(self) -> Iterator[MetadataRecord]:
        # metadata.version is the first record: it decides how the others are read.
        if METADATA_VERSION in self.levels:
            yield FeatureLevelRecord(name=METADATA_VERSION, feature_level=self.metadata_version)
        for name, level in sorted(self.levels.items()):
            if name != METADATA_VERSION:
                yield FeatureLevelRecord(name=name, feature_level=level)


class FeaturesDelta(MapDelta[FeaturesImage, str, int]):
    """New levels by name; None if the feature is no longer finalized, for which its record has the level zero."""

    map_name = "levels"

    def replay_feature_level(self, record: FeatureLevelRecord) -> None:
        self.changes[record.name] = record.feature_level or None
