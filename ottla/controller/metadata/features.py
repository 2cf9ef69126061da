"""Finalized feature levels, also metadata.version. kraft.version is in raft's control records instead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ottla.controller.metadata.shared_map import Map
from ottla.protocol.internal_topics.metadata_records import FeatureLevelRecord, MetadataRecord

METADATA_VERSION = "metadata.version"
ELR_VERSION = "eligible.leader.replicas.version"


@dataclass(frozen=True, slots=True)
class FeaturesImage:
    levels: Map[str, int] = field(default_factory=Map)

    def level(self, feature: str) -> int:
        """Returns the finalized level, or zero."""
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


class FeaturesDelta:
    """New levels by name; zero if the feature is no longer finalized."""

    __slots__ = ("changes", "image")

    def __init__(self, image: FeaturesImage) -> None:
        self.image = image
        self.changes: dict[str, int] = {}

    def replay_feature_level(self, record: FeatureLevelRecord) -> None:
        self.changes[record.name] = record.feature_level

    def finish_snapshot(self) -> None:
        for name in self.image.levels:
            self.changes.setdefault(name, 0)

    def apply(self) -> FeaturesImage:
        levels = self.image.levels.mutate()
        for name, level in self.changes.items():
            if level:
                levels[name] = level
            else:
                levels.pop(name, None)
        return FeaturesImage(levels.finish())
